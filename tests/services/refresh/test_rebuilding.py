"""A full refresh of a table whose columns or partition keys changed, from the request to the version."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Rebuild
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConflictError, QuarantinedError, SchemaEvolutionError
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support.pyarrow_job import write_days

VISITS = TableIdentifier("lake", "web", "visits")
TOTAL = TableIdentifier("lake", "web", "total")
YAML = """
defaults: {catalog: lake, database: web}
dynamic_tables:
- name: visits
  freshness: 1 day
  partitioned_by: [ds]
  query: SELECT '1' AS ds, 1 AS n, 1 AS extra
  expectations: [{row_count: {max_decrease: 50%}}]
- {name: total, freshness: 1 day, query: SELECT sum(n) AS n FROM visits}
"""


@pytest.fixture
def first(tmp_path: Path) -> RefreshRequest:
    path = tmp_path / "web.yaml"
    path.write_text(YAML)
    definitions = load_definitions(path)
    return RefreshRequest(definitions.tables[VISITS], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), "t1", "a test")


def wide(plan: RefreshPlan) -> None:
    write_days(plan, {"1": [1], "2": [2]}, more=("extra",))


def narrow(plan: RefreshPlan) -> None:
    write_days(plan, {"1": [10], "2": [20]})


def rows(workspace: Workspace) -> list[dict[str, object]]:
    return sorted(sample(workspace, VISITS, 10), key=lambda row: str(row["ds"]))


OLD = [{"ds": "1", "n": 1, "extra": 1}, {"ds": "2", "n": 2, "extra": 2}]
NEW = [{"ds": "1", "n": 10}, {"ds": "2", "n": 20}]


def test_an_ordinary_refresh_names_the_way_out_and_a_full_one_takes_it(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    with pytest.raises(SchemaEvolutionError, match=r"no longer returns column 'extra'.* --full-refresh .*dynamic-tables drop"):
        run(workspace, replace(first, token="t2"), narrow)
    assert rows(workspace) == OLD
    version = run(workspace, replace(first, token="t3", full_refresh=True), narrow)
    assert version.number == 2
    assert rows(workspace) == NEW
    refused = workspace.ledger.get_refresh("t2")
    assert refused.state is RefreshState.FAILED


def test_other_partition_keys_and_what_a_child_reads(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    unkeyed = replace(first.table, partition_keys=())
    with pytest.raises(SchemaEvolutionError, match=r"definition now by \(\)\. Refresh all of it with --full-refresh"):
        begin(workspace, replace(first, token="t2", table=unkeyed))
    entry = workspace.catalog("lake").get_table(VISITS.path)
    assert isinstance(entry, CatalogDynamicTable)
    assert entry.partition_keys == ("ds",), "that of its rows"
    plans: list[RefreshPlan] = []

    def submit(plan: RefreshPlan) -> None:
        plans.append(RefreshPlan.from_json(plan.to_json()))
        narrow(plan)

    run(workspace, replace(first, token="t3", table=unkeyed, full_refresh=True), submit)
    assert [plan.rebuild for plan in plans] == [Rebuild.EVERYTHING]
    assert rows(workspace) == NEW
    layout = workspace.existing_table(VISITS).layout()
    assert layout.partition_keys == ()

    child = load_definitions(Path(first.table.path)).tables[TOTAL]
    begun = begin(workspace, RefreshRequest(child, {}, first.schedule_time, "c1", "a test"))
    assert [source.schema for source in begun.plan.sources] == ["`ds` string, `n` bigint"]


def test_a_job_that_fails_leaves_the_old_table(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)

    def fail(plan: RefreshPlan) -> None:
        narrow(plan)
        raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="the cluster is gone"):
        run(workspace, replace(first, token="t2", full_refresh=True), fail)
    assert rows(workspace) == OLD


def test_nobody_refreshes_beside_it(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    begin(workspace, replace(first, token="t2", full_refresh=True, owner="elsewhere"))
    with pytest.raises(ConflictError, match="is being refreshed by elsewhere"):
        run(workspace, replace(first, token="t3"), wide)


def test_what_is_in_quarantine_is_published_with_its_columns(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    with pytest.raises(QuarantinedError):
        run(workspace, replace(first, token="t2", full_refresh=True), lambda plan: write_days(plan, {}))
    assert rows(workspace) == OLD
    publish(workspace, "t2")
    assert rows(workspace) == []
    run(workspace, replace(first, token="t3", full_refresh=True), narrow)
    assert rows(workspace) == NEW


def test_a_rollback_to_other_columns_is_refused(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    run(workspace, replace(first, token="t2", full_refresh=True), narrow)
    with pytest.raises(
        SchemaEvolutionError, match="but not restored: change the definition back and refresh with --full-refresh"
    ):
        rollback(workspace, RollbackRequest(VISITS, 1, "back", "a test"))
    assert rows(workspace) == NEW
    assert sorted(sample(workspace, VISITS, 10, 1), key=lambda row: str(row["ds"])) == OLD
    run(workspace, replace(first, token="t3", full_refresh=True), wide)
    assert rows(workspace) == OLD


def test_a_plain_folder_gets_other_columns_and_keys(workspace: Workspace, first: RefreshRequest) -> None:
    folder = replace(first, table=replace(first.table, format="parquet", atomicity="none"))
    run(workspace, folder, wide)
    with pytest.raises(SchemaEvolutionError, match="--full-refresh"):
        run(workspace, replace(folder, token="t2"), narrow)
    run(workspace, replace(folder, token="t3", full_refresh=True), narrow)
    assert rows(workspace) == NEW
    unkeyed = replace(folder.table, partition_keys=())
    run(workspace, replace(folder, token="t4", table=unkeyed, full_refresh=True), wide)
    assert rows(workspace) == OLD


def test_another_format_is_refused_before_anything_is_done(workspace: Workspace, first: RefreshRequest) -> None:
    run(workspace, first, wide)
    folder = replace(first.table, format="parquet", atomicity="none")
    for full_refresh in (False, True):
        with pytest.raises(SchemaEvolutionError, match=r"is a table of format iceberg, its definition now says parquet.*drop"):
            begin(workspace, replace(first, token="t2", table=folder, full_refresh=full_refresh))
    assert rows(workspace) == OLD
    assert workspace.ledger.get_stage("t2") is None
