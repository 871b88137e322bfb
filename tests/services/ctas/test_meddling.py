"""CREATE TABLE AS while others rename, drop and make tables of the name; and names that a catalog cannot hold."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    ConflictError,
    JobFailedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.iceberg import stage as pointer
from airflow_dynamic_tables.services.ctas.planning import decide
from airflow_dynamic_tables.services.ctas.running import Submit, create_table_as, make
from airflow_dynamic_tables.services.ctas.wanted import CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_numbers, write_scattered

NUMBERS = TableIdentifier("lake", "sales", "numbers")
QUERY = "SELECT 1 AS x"


def wanted(purpose: Purpose) -> WantedTable:
    return WantedTable(NUMBERS, QUERY, ("lake", "sales"), QueryPlace(Path("query"), QUERY), purpose)


def create(workspace: Workspace, token: str, purpose: Purpose = Purpose.CREATE, job: Submit = write_numbers) -> CtasOutcome:
    return create_table_as(workspace, Definitions(), wanted(purpose), (token, f"owner of {token}"), job).outcome


def test_files_stay_of_a_table_that_got_its_name_and_another_one_before_its_creator_knew(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = workspace.catalog("lake")
    rename = catalog.rename_table

    def answer_is_lost(path: ObjectPath, new_name: str) -> None:
        rename(path, new_name)
        if new_name == NUMBERS.table:
            rename(NUMBERS.path, "figures")
            raise CatalogUnavailableError("the answer is lost")

    monkeypatch.setattr(catalog, "rename_table", answer_is_lost)
    with pytest.raises(CommitRejectedError):
        create(workspace, "t1")
    assert [row["x"] for row in sample(workspace, TableIdentifier("lake", "sales", "figures"), 10)] == [1, 2, 3]


def test_a_query_without_rows_does_not_empty_what_others_made_of_the_name_meanwhile(workspace: Workspace) -> None:
    create(workspace, "t1")
    catalog = workspace.catalog("lake")
    (store,) = (store for store in catalog.stores() if isinstance(store, IcebergStore))

    def job(plan: RefreshPlan) -> None:
        catalog.drop_table(NUMBERS.path)
        rows = pa.table({"x": pa.array([42], pa.int64())})
        store.tables.create_table(("sales", "numbers"), schema=rows.schema).append(rows)
        write_scattered(plan, ())

    with pytest.raises(CommitRejectedError, match="was dropped and recreated"):
        create(workspace, "t2", Purpose.CREATE_OR_REPLACE, job)
    assert [row["x"] for row in sample(workspace, NUMBERS, 10)] == [42]


def test_a_table_that_was_dropped_before_it_was_to_be_replaced_is_not_made_empty(workspace: Workspace) -> None:
    create(workspace, "t1")
    decision = decide(workspace, Definitions(), wanted(Purpose.CREATE_OR_REPLACE))
    workspace.catalog("lake").drop_table(NUMBERS.path)
    with pytest.raises(ConflictError, match="was dropped while it was to be replaced"):
        make(workspace, wanted(Purpose.CREATE_OR_REPLACE), decision, ("t2", "owner"), write_numbers)
    assert workspace.catalog("lake").list_tables("sales") == []


def test_rows_are_deleted_of_a_draft_whose_folder_a_server_chose(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pointer, "new_location", lambda *_: f"{tmp_path.as_uri()}/chosen/{uuid4()}")

    def fail(plan: RefreshPlan) -> None:
        write_numbers(plan)
        assert list((tmp_path / "chosen").rglob("*.parquet"))
        raise JobFailedError("DIVIDE_BY_ZERO")

    with pytest.raises(JobFailedError):
        create(workspace, "t1", job=fail)
    assert list((tmp_path / "chosen").rglob("*.parquet")) == []
    assert workspace.catalog("lake").list_tables("sales") == []


@pytest.mark.parametrize("path", [ObjectPath("sales", "Numbers"), ObjectPath("sales", "n" * 257), ObjectPath("Sales", "numbers")])
def test_names_that_a_metastore_would_change_are_refused_without_asking_it(path: ObjectPath) -> None:
    with pytest.raises(UnsupportedError, match="is a Hive metastore, where the name of a"):
        HiveCatalog("hms", Metastore("thrift://127.0.0.1:1")).check_path(path)
