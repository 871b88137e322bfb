"""What is shown of a table: how far it lies behind, whether that is too far, how fast it is, and how far it read its sources."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.formats import registry
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.refresh.planning import look_at_sources
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import TableState, TableStatus, list_tables, overview, readers_of, show_table
from airflow_dynamic_tables.services.tables.source_reads import NewerParent, Reader, SourcePosition, positions_of, versions_read
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.clock import Clock
from tests.support.ports import free_port
from tests.support.pyarrow_job import write_numbers

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
NUMBERS, TOTAL = (TableIdentifier("lake", "sales", name) for name in ("numbers", "total"))
YAML = """
defaults: {catalog: lake, database: sales}
sources:
  - {name: raw.orders, format: parquet, path: orders, partitioned_by: [ds], schema: "x bigint, ds string"}
dynamic_tables:
  - {name: numbers, freshness: 1 day, query: SELECT x FROM raw.orders}
  - {name: total, freshness: 1 hour, query: SELECT x FROM numbers}
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Definitions:
    (tmp_path / "sales.yaml").write_text(YAML)
    write_orders(tmp_path, "2024-02-28")
    write_orders(tmp_path, "2024-02-29")
    return load_definitions(tmp_path / "sales.yaml", cache=Cache(None))


def write_orders(folder: Path, ds: str) -> None:
    day = folder / "orders" / f"ds={ds}"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), day / "part.parquet")


def refresh(workspace: Workspace, definitions: Definitions, name: TableIdentifier, at: datetime = MARCH) -> Version:
    request = RefreshRequest(definitions.tables[name], definitions.sources, at, f"{name.table}-{at:%d%H}", "test")
    version = run(workspace, request, write_numbers)
    assert isinstance(version, Version)
    return version


def test_a_table_is_late_when_its_next_refresh_should_have_ended(
    workspace: Workspace, clock: Clock, definitions: Definitions
) -> None:
    def status() -> TableStatus:
        shown = show_table(workspace, NUMBERS).status
        assert shown == replace(list_tables(workspace, definitions.tables).tables[0], defined=None), (
            "by its definition, and without"
        )
        assert shown == replace(list_tables(workspace, {}).tables[0], defined=None)
        return shown

    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    clock.time = MARCH + timedelta(hours=47, minutes=59)
    fine = status()
    assert (fine.freshness_seconds, fine.lag_seconds, fine.allowed_lag_seconds, fine.late) == (86_400, 172_740, 172_740, False)
    assert fine.fresh_until == fine.data_timestamp == MARCH
    clock.time = MARCH + timedelta(hours=48)
    late = status()
    assert (late.lag_seconds, late.allowed_lag_seconds, late.late) == (172_800, 86_400, True)
    refresh(workspace, definitions, NUMBERS, MARCH + timedelta(days=2))
    assert (status().lag_seconds, status().late) == (0, False)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, TableState.FRESH),
        ({"late": None}, TableState.UNKNOWN),
        ({"late": None, "version": None}, TableState.NO_VERSION),
        ({"late": None, "version": None, "last_refresh": "RUNNING"}, TableState.REFRESHING),
        ({"last_refresh": "RUNNING", "dag_paused": True}, TableState.PAUSED),
        ({"last_refresh": "RUNNING", "late": True, "dag_paused": True}, TableState.LATE),
        ({"last_refresh": "UNDONE", "late": True}, TableState.FAILED),
        ({"last_refresh": "QUARANTINED", "late": True}, TableState.QUARANTINED),
        ({"last_refresh": "REJECTED", "late": True}, TableState.REJECTED),
        ({"last_refresh": "FAILED", "job_state": JobState.SUSPENDED}, TableState.SUSPENDED),
    ],
)
def test_the_state_is_the_most_urgent_one(
    workspace: Workspace, clock: Clock, definitions: Definitions, changes: Mapping[str, Any], state: TableState
) -> None:
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    assert replace(show_table(workspace, NUMBERS).status, **changes).state is state


def test_a_look_at_which_nothing_had_moved_makes_a_table_fresher(
    workspace: Workspace, clock: Clock, definitions: Definitions
) -> None:
    clock.time = MARCH
    for name in (NUMBERS, TOTAL):
        refresh(workspace, definitions, name)
    clock.time = MARCH + timedelta(days=3)
    assert show_table(workspace, TOTAL).status.late
    request = RefreshRequest(definitions.tables[TOTAL], definitions.sources, clock.time, "looked", "test", is_scheduled=True)
    assert isinstance(run(workspace, request, lambda plan: pytest.fail(f"submitted {plan}")), Skipped)
    shown = show_table(workspace, TOTAL)
    assert (shown.status.version, shown.status.data_timestamp, shown.status.fresh_until) == (1, MARCH, clock.time)
    assert (shown.status.lag_seconds, shown.status.late) == (0, False)
    assert [pace.version for pace in shown.pace] == [1], "what writes nothing has no pace"


def test_a_table_that_is_refreshed_all_the_time_is_late_after_two_freshnesses(
    workspace: Workspace, clock: Clock, definitions: Definitions
) -> None:
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    always = {NUMBERS: replace(definitions.tables[NUMBERS], cron=None)}
    for seconds, late in ((172_800, False), (172_801, True)):
        clock.time = MARCH + timedelta(seconds=seconds)
        (status,) = list_tables(workspace, always).tables
        assert (status.lag_seconds, status.allowed_lag_seconds, status.late) == (seconds, 172_800, late)


def test_a_table_is_behind_a_parent_that_has_a_newer_version_than_it_read(
    workspace: Workspace, clock: Clock, definitions: Definitions
) -> None:
    def behind() -> tuple[NewerParent, ...]:
        """What the list says of the child, as do a look at it and the history alone."""
        listed = {one.identifier: one for one in list_tables(workspace, definitions.tables).tables}
        entry = workspace.dynamic_table(TOTAL)
        (told,) = overview(workspace, {TOTAL: entry}, definitions.tables)
        assert listed[str(NUMBERS)].behind == ()
        assert listed[str(TOTAL)].behind == show_table(workspace, TOTAL).status.behind == told.behind
        return told.behind

    clock.time = MARCH
    assert behind_nothing(workspace, definitions)
    for name in (NUMBERS, TOTAL):
        refresh(workspace, definitions, name)
    assert behind() == ()
    refresh(workspace, definitions, NUMBERS, MARCH + timedelta(hours=1))
    assert behind() == (NewerParent("lake.sales.numbers", 2, 1),)
    assert str(behind()[0]) == "lake.sales.numbers v2 is newer than the v1 that was read"
    refresh(workspace, definitions, NUMBERS, MARCH + timedelta(hours=2))
    assert behind() == (NewerParent("lake.sales.numbers", 3, 1),)
    (position,) = show_table(workspace, TOTAL).sources
    assert (position.source, position.number, position.number_now) == ("lake.sales.numbers", 1, 3)
    assert readers_of(workspace, NUMBERS) == readers_of(workspace, NUMBERS, [TOTAL]) == [Reader("lake.sales.total", 1, 1)]
    refresh(workspace, definitions, TOTAL, MARCH + timedelta(hours=3))
    assert behind() == ()
    assert readers_of(workspace, NUMBERS) == [Reader("lake.sales.total", 2, 3)]
    new = replace(TOTAL, table="new")
    assert readers_of(workspace, TOTAL) == []
    assert readers_of(workspace, TOTAL, [new]) == [Reader("lake.sales.new", None, None)], "declared, and not deployed yet"


def behind_nothing(workspace: Workspace, definitions: Definitions) -> bool:
    """Whether no table is behind, while none has a version."""
    return all(one.behind == () for one in list_tables(workspace, definitions.tables).tables)


def test_where_no_version_of_a_parent_was_read_the_times_tell_whether_it_is_newer(workspace: Workspace) -> None:
    """A compaction, or another engine, made the snapshot that was read."""
    child = Version(1, "t", "s", MARCH, MARCH, {"lake.sales.numbers": "compacted"})
    for committed, expected in ((-1, ()), (1, (NewerParent("lake.sales.numbers", 4, None),))):
        parent = Version(4, "p", "s4", MARCH, MARCH + timedelta(minutes=committed))
        read = versions_read(workspace.ledger, {TOTAL: child}, {"lake.sales.numbers": parent})[TOTAL]
        assert read.newer(child) == expected
    assert str(NewerParent("lake.sales.numbers", 4, None)) == "lake.sales.numbers v4 is newer than what was read"


def test_a_catalog_that_is_down_hides_no_table(
    workspace: Workspace, clock: Clock, definitions: Definitions, tmp_path: Path
) -> None:
    file = tmp_path / "catalogs.yaml"
    lake = {"name": "lake", "type": "sql"}
    gone = {"name": "gone", "type": "jdbc", "connection-params": {"url": f"postgresql://127.0.0.1:{free_port()}/shop"}}
    file.write_text(json.dumps({"catalogs": [{**lake, "is-default": True}, gone]}))
    lost, new = (TableIdentifier("gone", "shop", name) for name in ("lost", "new"))
    gone_too = {name: replace(definitions.tables[TOTAL], identifier=name) for name in (new, lost)}
    tables = {NUMBERS: definitions.tables[NUMBERS], **gone_too}
    clock.time = MARCH
    with open_workspace(replace(workspace.settings, catalogs_file=file), clock) as opened:
        refresh(opened, definitions, NUMBERS)
        opened.ledger.record(refused(lost))
        listed = list_tables(opened, tables)
    assert [(one.identifier, one.version, one.last_refresh, one.defined) for one in listed.tables] == [
        ("gone.shop.lost", None, "FAILED", True),
        ("gone.shop.new", None, None, True),
        ("lake.sales.numbers", 1, "SUCCEEDED", True),
    ]
    assert list(listed.problems) == ["gone"]
    assert "Connection refused" in str(listed.problems["gone"])


def test_a_table_whose_extra_is_not_installed_hides_no_other_one(
    workspace: Workspace, clock: Clock, definitions: Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.TABLES, ("delta", "entry"), registry.Module("not_installed.table:Table", "delta"))
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    listed = list_tables(workspace, {**definitions.tables, TOTAL: replace(definitions.tables[TOTAL], format="delta")})
    assert [(one.identifier, one.version, one.defined) for one in listed.tables] == [
        ("lake.sales.numbers", 1, True),
        ("lake.sales.total", None, True),
    ]
    assert {name: str(problem) for name, problem in listed.problems.items()} == {
        "lake.sales.total": 'Not installed; run: pip install "airflow-dynamic-tables[delta]"'
    }


def test_a_list_of_many_tables_asks_no_more_often_than_one_of_few(workspace: Workspace, definitions: Definitions) -> None:
    """Versions are read from the tables, so that what other engines did is seen, but catalog and ledger are asked for all."""
    statements: list[str] = []

    def asked(count: int) -> int:
        tables = {}
        for number in range(count):
            name = replace(NUMBERS, table=f"numbers_{number}")
            tables[name] = replace(definitions.tables[NUMBERS], identifier=name)
            ensure(workspace, tables[name])
        refresh(workspace, Definitions(tables, definitions.sources), next(iter(tables)), MARCH + timedelta(days=count))
        statements.clear()
        listed = list_tables(workspace, tables)
        assert (listed.problems, listed.tables[0].last_refresh, len(listed.tables)) == ({}, "SUCCEEDED", count)
        return len(statements)

    def count_statement(*event: object) -> None:
        statements.append(str(event[2]))

    listen(Engine, "before_cursor_execute", count_statement)
    try:
        assert asked(2) == asked(12)
    finally:
        remove(Engine, "before_cursor_execute", count_statement)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:100],
        lambda _: b"",
        lambda _: b"\xff\xfe{",
        lambda _: b"[]",
        lambda content: content.replace(b'"format-version":2', b'"format-version":"x"'),
        lambda content: content.replace(b'"string"', b'"strange"').replace(b'"long"', b'"strange"'),
    ],
    ids=["cut short", "empty", "no text", "no table", "format", "type"],
)
def test_damaged_metadata_of_a_table_hide_no_other_table(
    workspace: Workspace, clock: Clock, definitions: Definitions, damage: Callable[[bytes], bytes]
) -> None:
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    refresh(workspace, definitions, TOTAL)
    (store,) = (store for store in workspace.catalog("lake").stores() if isinstance(store, IcebergStore))
    metadata = Path(store.tables.load_table((TOTAL.database, TOTAL.table)).metadata_location.removeprefix("file://"))
    content = metadata.read_bytes()
    metadata.write_bytes(damage(content))
    assert metadata.read_bytes() != content
    with open_workspace(workspace.settings, clock) as opened:  # another process, which has not read the file before
        listed = list_tables(opened, definitions.tables)
        changes = {one.identifier: one.change for one in differences(opened, definitions, list(definitions.tables.values()))}
    assert [(one.identifier, one.version) for one in listed.tables] == [("lake.sales.numbers", 1), ("lake.sales.total", 1)]
    assert list(listed.problems) == ["lake.sales.total"]
    assert "sales.total" in str(listed.problems["lake.sales.total"])
    assert (changes[TOTAL] is Change.UNKNOWN, changes[NUMBERS] is Change.UNKNOWN) == (True, False)


@pytest.mark.parametrize("value", ['{"x": 1}', "[]", "{no JSON"])
def test_a_damaged_entry_of_a_catalog_hides_no_other_table(
    workspace: Workspace, clock: Clock, definitions: Definitions, tmp_path: Path, value: str
) -> None:
    clock.time = MARCH
    for name in (NUMBERS, TOTAL):
        refresh(workspace, definitions, name)
    with sqlite3.connect(tmp_path / "dynamic_tables" / "state.db") as state:
        state.execute("UPDATE dt_tables SET value = ? WHERE name = ?", (value, TOTAL.table))
    listed = list_tables(workspace, definitions.tables)
    assert [(one.identifier, one.version) for one in listed.tables] == [("lake.sales.numbers", 1), ("lake.sales.total", 1)]
    assert list(listed.problems) == ["lake.sales.total"]
    assert str(listed.problems["lake.sales.total"]).startswith("What the catalog keeps of sales.total cannot be read (")
    changes = {one.identifier: one.change for one in differences(workspace, definitions)}
    assert (changes[TOTAL], changes[NUMBERS]) == (Change.UNKNOWN, Change.UNCHANGED)
    assert readers_of(workspace, NUMBERS) == [], "what cannot be read is not known to read it"


def refused(table: TableIdentifier) -> Refresh:
    return Refresh(
        token="refused",
        table=table,
        action=RefreshAction.SKIP,
        reason="a test",
        state=RefreshState.FAILED,
        schedule_time=MARCH,
        started_at=MARCH,
        finished_at=MARCH,
    )


def test_what_has_no_version_or_no_freshness_is_neither_late_nor_in_time(
    workspace: Workspace, clock: Clock, definitions: Definitions
) -> None:
    never = list_tables(workspace, definitions.tables).tables[1]
    assert (never.lag_seconds, never.allowed_lag_seconds, never.late) == (None, 3600 + clock.time.minute * 60, None)
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    entry = workspace.catalog("lake").get_table(NUMBERS.path)
    assert isinstance(entry, CatalogDynamicTable)
    workspace.catalog("lake").alter_table(NUMBERS.path, replace(entry, freshness="whenever"))
    strange = show_table(workspace, NUMBERS).status
    assert (strange.freshness, strange.freshness_seconds, strange.allowed_lag_seconds, strange.late) == (
        *("whenever", None, None),
        None,
    )
    assert strange.lag_seconds == 0


def test_sources_are_shown_as_they_were_read_and_looked_at_when_asked(
    workspace: Workspace, clock: Clock, definitions: Definitions, tmp_path: Path
) -> None:
    clock.time = MARCH
    first = refresh(workspace, definitions, NUMBERS)
    (orders,) = show_table(workspace, NUMBERS).sources
    read = first.sources["lake.raw.orders"]
    assert orders == SourcePosition("lake.raw.orders", read, 2, "ds=2024-02-29"), "nobody looked"
    refresh(workspace, definitions, TOTAL)
    assert moved(workspace, definitions, NUMBERS) is moved(workspace, definitions, TOTAL) is False
    write_orders(tmp_path, "2024-03-01")
    assert (moved(workspace, definitions, NUMBERS), moved(workspace, definitions, TOTAL)) == (True, False)
    refresh(workspace, definitions, NUMBERS, MARCH + timedelta(hours=1))
    assert (moved(workspace, definitions, NUMBERS), moved(workspace, definitions, TOTAL)) == (False, True)


def moved(workspace: Workspace, definitions: Definitions, name: TableIdentifier) -> bool | None:
    now = look_at_sources(workspace, definitions.tables[name], definitions.sources)
    (position,) = show_table(workspace, name, sources_now=now).sources
    assert position.version_now == now[position.source].version
    return position.moved


def test_a_source_that_cannot_be_looked_at_is_unknown(
    workspace: Workspace, clock: Clock, definitions: Definitions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    (tmp_path / "orders").rename(tmp_path / "elsewhere")
    now = look_at_sources(workspace, definitions.tables[NUMBERS], definitions.sources)
    assert "Cannot read lake.raw.orders: Source lake.raw.orders: there is nothing at" in caplog.text
    (position,) = show_table(workspace, NUMBERS, sources_now=now).sources
    assert (position.version_now, position.moved) == (None, None)


def test_what_a_server_counts_for_all_its_tables_says_of_none_that_it_moved() -> None:
    version = Version(1, "t", "s", MARCH, MARCH, {"pg.public.orders": "snapshot:7"})
    for now, expected in ((SourceState("snapshot:7"), False), (SourceState("snapshot:8"), None)):
        (position,) = positions_of(version, {}, {"pg.public.orders": now})
        assert (position.moved, position.version_now, position.partitions) == (expected, now.version, None)


def test_the_pace_of_refreshes(workspace: Workspace, clock: Clock, definitions: Definitions) -> None:
    clock.time = MARCH
    refresh(workspace, definitions, NUMBERS)
    workspace.ledger.update_refresh("numbers-0100", seconds={"begin": 0.5, "spark": 1.5, "spark.query": 1.25}, rows=3)
    (pace,) = show_table(workspace, NUMBERS).pace
    assert (pace.token, pace.version, pace.seconds, pace.rows, pace.rows_per_second) == ("numbers-0100", 1, 2.0, 3, 1.5)
    workspace.ledger.update_refresh("numbers-0100", seconds={})
    (pace,) = show_table(workspace, NUMBERS).pace
    assert pace.rows_per_second is None
