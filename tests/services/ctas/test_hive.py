"""CREATE TABLE AS in a Hive metastore: one rename there makes the table, with all its partitions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import JobFailedError, TableAlreadyExistsError
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

pytestmark = pytest.mark.metastore

QUERY = "SELECT '1' AS ds, 1 AS n"


@pytest.mark.parametrize(("table_format", "keys"), [("parquet", ("ds",)), ("orc", ())])
def test_a_table_is_made_replaced_and_dropped(
    hive_workspace: Workspace, tmp_path: Path, table_format: str, keys: tuple[str, ...]
) -> None:
    table = TableIdentifier("hms", f"db_{uuid4().hex}", "days")
    catalog = hive_workspace.catalog("hms")

    def create(token: str, job: partial[None], purpose: Purpose = Purpose.CREATE) -> CtasOutcome:
        wanted = WantedTable(table, QUERY, ("hms", table.database), QueryPlace(Path("query"), QUERY), purpose, table_format, keys)
        return create_table_as(hive_workspace, Definitions(), wanted, (token, f"owner of {token}"), job).outcome

    def fail(plan: RefreshPlan) -> None:
        write_days(plan, {"1": [1]})
        assert not catalog.table_exists(table.path)
        raise JobFailedError("DIVIDE_BY_ZERO")

    with pytest.raises(JobFailedError):
        create("t1", partial(fail))
    assert catalog.list_tables(table.database) == []
    assert list((tmp_path / "hive").rglob("*.parquet")) == list((tmp_path / "hive").rglob("*.orc")) == []

    assert create("t2", partial(write_days, days={"1": [1], "2": [2]})) is CtasOutcome.CREATED
    assert catalog.list_tables(table.database) == ["days"]
    assert sorted(row["n"] for row in sample(hive_workspace, table, 9)) == [1, 2]
    with pytest.raises(TableAlreadyExistsError):
        create("t3", partial(write_days, days={"9": [9]}))
    assert create("t4", partial(write_days, days={"3": [3]}), Purpose.CREATE_OR_REPLACE) is CtasOutcome.REPLACED
    assert [row["n"] for row in sample(hive_workspace, table, 9)] == [3]
    assert sweep(hive_workspace).failed == ()
    assert drop(hive_workspace, table, purge=True).purged.files > 0
    assert catalog.list_tables(table.database) == []
