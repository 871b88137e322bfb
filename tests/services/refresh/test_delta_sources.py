"""Tables of which the sources are Delta tables of others: only what has moved is made anew, by its own name or a catalog's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.continuous.streams.feeds import look_of
from airflow_dynamic_tables.services.refresh.change_detection import detect_changes
from airflow_dynamic_tables.services.refresh.planning import bind_sources
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.delta_tables import require, rewrite
from tests.support.pyarrow_job import write_days, write_numbers

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {{catalog: lake, database: sales}}
sources: [{{name: raw.orders, format: delta, path: {folder}/orders}}]
dynamic_tables:
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  query: SELECT ds, n FROM raw.orders
  {more}
"""


def orders(folder: Path, *rows: tuple[int, str], **how: Any) -> None:
    data = pa.table({"n": [row[0] for row in rows], "ds": [row[1] for row in rows]})
    write_deltalake(str(folder / "orders"), data, partition_by=["ds"], **how)


def request_(folder: Path, day: int, more: str = "") -> RefreshRequest:
    path = folder / "sales.yaml"
    path.write_text(YAML.format(folder=folder, more=more))
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    token = str(uuid4())
    return RefreshRequest(table, definitions.sources, MARCH + timedelta(days=day), token, token, is_scheduled=True)


def test_a_refresh_of_a_delta_table_that_has_not_moved_is_left_out(workspace: Workspace, clock: Clock, tmp_path: Path) -> None:
    orders(tmp_path, (1, "a"), (2, "b"))
    plans: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        plans.append(plan)
        write_days(plan, {"a": [1], "b": [2]})

    clock.time = MARCH + timedelta(days=1)
    run(workspace, request_(tmp_path, 1), job)
    clock.time = MARCH + timedelta(days=2)
    skipped = run(workspace, request_(tmp_path, 2), job)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.UNCHANGED
    assert [source.version for plan in plans for source in plan.sources] == ["0"]

    orders(tmp_path, (3, "b"), mode="overwrite", predicate="ds = 'b'")
    asked = PartitionSet.of([{"ds": "a"}, {"ds": "b"}])
    clock.time = MARCH + timedelta(days=3)
    request = request_(tmp_path, 3)
    found = detect_changes(workspace, request, workspace.look_up(request.table.identifier), asked)
    assert found.partitions == PartitionSet.of([{"ds": "b"}]), found.why
    assert not detect_changes(workspace, request, workspace.look_up(request.table.identifier), WHOLE_TABLE).holds


def test_a_delta_table_that_only_a_catalog_names_is_read_where_it_lies(workspace: Workspace, tmp_path: Path) -> None:
    orders(tmp_path, (1, "a"))
    catalog = workspace.catalog("lake")
    catalog.create_database("raw", CatalogDatabase())
    catalog.create_table(ObjectPath("raw", "theirs"), CatalogTable(format="delta", location=f"{tmp_path}/orders"))
    catalog.create_table(ObjectPath("raw", "seen"), CatalogView("SELECT * FROM raw.theirs", "SELECT * FROM lake.raw.theirs"))
    path = tmp_path / "definitions.yaml"
    path.write_text(
        "sources: [{name: lake.raw.seen, format: view}]\n"
        "dynamic_tables: [{name: lake.sales.t, freshness: 1 day, query: SELECT n AS x FROM lake.raw.seen}]\n"
    )
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    request = RefreshRequest(table, definitions.sources, MARCH, "t1", "t1")
    plans: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        plans.append(plan)
        write_numbers(plan)

    run(workspace, request, job)
    (source,) = plans[0].sources
    assert (source.identifier, source.version, len(source.parts)) == ("lake.raw.theirs", "0", 1)


def test_deltas_own_library_in_the_definition_reads_what_files_do_not_tell(workspace: Workspace, tmp_path: Path) -> None:
    orders(tmp_path, (1, "a"))
    rewrite(tmp_path / "orders", 0, require(["typeWidening"]))
    request = request_(tmp_path, 1)
    with pytest.raises(UnsupportedError, match=r"Delta table lake\.raw\.orders needs a reader that knows typeWidening"):
        bind_sources(workspace, request.table, request.sources)
    library = "spark: {conf: {spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension}}"
    request = request_(tmp_path, 1, library)
    (binding,) = bind_sources(workspace, request.table, request.sources)
    assert (binding.format, binding.table, binding.version) == ("delta", f"{tmp_path}/orders", "0")


def test_a_stream_hears_what_is_new_in_a_delta_table_of_ours(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "definitions.yaml"
    path.write_text(
        "defaults: {freshness: 1 day}\n"
        "dynamic_tables:\n"
        "- {name: lake.sales.parent, format: delta, partitioned_by: [ds], query: \"SELECT 'a' AS ds, 1L AS n\"}\n"
        "- {name: lake.sales.child, freshness: 1 day, query: SELECT n AS x FROM lake.sales.parent}\n"
    )
    parent, child = load_definitions(path).tables.values()
    run(workspace, RefreshRequest(parent, {}, MARCH, "t1", "t1"), lambda plan: write_days(plan, {"a": [1]}))
    look = look_of(workspace, child, parent.identifier, None, "v")
    assert look is not None
    first = look(None).binding
    assert first is not None
    assert sum(len(part.files) for part in first.parts) == 1
    location = workspace.existing_table(parent.identifier).folder() or ""
    write_deltalake(location, pa.table({"ds": ["b"], "n": [2]}), mode="append")
    second = look(first.state).binding
    assert [part.files[0].split("/")[-2] for part in second.parts] == ["ds=b"]
    (binding,) = bind_sources(workspace, child, {})
    assert sum(len(part.files) for part in binding.parts) == 2


def test_a_delta_table_of_ours_from_which_others_deleted_rows_needs_deltas_own_library(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "definitions.yaml"
    conf = "{spark.sql.catalog.lake: x, spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension}"
    path.write_text(
        "defaults: {freshness: 1 day}\n"
        "dynamic_tables:\n"
        "- {name: lake.sales.parent, format: delta, partitioned_by: [ds], query: \"SELECT 'a' AS ds, 1L AS n\"}\n"
        "- {name: lake.sales.without, query: SELECT n FROM lake.sales.parent, spark: {conf: {spark.sql.catalog.lake: x}}}\n"
        f"- {{name: lake.sales.having, query: SELECT n FROM lake.sales.parent, spark: {{conf: {conf}}}}}\n"
    )
    parent, without, having = load_definitions(path).tables.values()
    run(workspace, RefreshRequest(parent, {}, MARCH, "t1", "t1"), lambda plan: write_days(plan, {"a": [1]}))
    folder = Path((workspace.existing_table(parent.identifier).folder() or "").removeprefix("file://"))
    rewrite(folder, 0, require(["typeWidening"]))
    with pytest.raises(UnsupportedError, match=r"Delta table sales\.parent needs a reader that knows typeWidening"):
        bind_sources(workspace, without, {})
    (binding,) = bind_sources(workspace, having, {})
    assert (binding.format, binding.table, binding.version) == ("delta", f"file://{folder}", "0")
