"""Refreshes over a source with a watermark: real files appear, and every hour is published once it is whole, each row once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.permissions import Allowed
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.source_watermarks import TimeExtractor
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, UpstreamError
from airflow_dynamic_tables.services.refresh import change_detection
from airflow_dynamic_tables.services.refresh.planning import look_at_sources
from airflow_dynamic_tables.services.refresh.requests import Parent, RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import pending, what_is_missing
from airflow_dynamic_tables.services.source_progress import Growth, look, recorded_watermark
from airflow_dynamic_tables.services.status import list_tables, sample, show_table
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.other_engines import append_and_clean_away, remembered
from tests.support.pyarrow_job import write_days

PER_HOUR = TableIdentifier("lake", "sales", "per_hour")
NOW = datetime(2021, 3, 19, 20, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
sources:
- name: raw.events
  format: parquet
  path: events
  schema: n bigint
  partitioned_by: [pt_day, pt_hour]
  watermark: source
  complete_when: COMPLETE
  options:
    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00
    partition.time-interval: 1 hour
dynamic_tables:
- name: per_hour
  freshness: 1 hour
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: FORMATTER}
  query: SELECT concat(pt_day, 'T', pt_hour) AS ds, n FROM raw.events
"""


class Growing:
    """A folder that others fill, and the table that is made of it."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace = workspace
        self.folder = folder / "events"
        self.folder.mkdir()
        self.request = self.defined("{file: _SUCCESS}")
        self.reason = ""

    def defined(self, complete: str, formatter: str = "\"yyyy-MM-dd'T'HH\"") -> RefreshRequest:
        path = self.folder.parent / "sales.yaml"
        path.write_text(YAML.replace("COMPLETE", complete).replace("FORMATTER", formatter))
        definitions = load_definitions(path)
        self.request = RefreshRequest(definitions.tables[PER_HOUR], definitions.sources, NOW, "", "dag/run/refresh")
        return self.request

    def hour(self, number: int, rows: list[int] | None = None, whole: bool = True, file: str = "part-0") -> Path:
        """Write a file of an hour, if it has rows, and then its marker."""
        folder = self.folder / f"pt_day=2021-03-19/pt_hour={number:02}"
        folder.mkdir(parents=True, exist_ok=True)
        if rows is not None:
            pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), folder / f"{file}.parquet")
        if whole:
            (folder / "_SUCCESS").touch()
        return folder

    def turn(self, **changes: object) -> list[str] | str:
        """Refresh; the hours that were published, or why none was."""
        plans: list[RefreshPlan] = []

        def submit(plan: RefreshPlan) -> None:
            plans.append(plan)
            self.reason = plan.reason
            write_days(plan, rows_of(plan))

        request = replace(self.request, token=str(uuid4()), **changes)  # type: ignore[arg-type]
        outcome = run(self.workspace, request, submit)
        if isinstance(outcome, Skipped):
            return str(outcome.reason)
        return ["whole"] if plans[0].partitions.is_whole else [str(spec["ds"])[-2:] for spec in plans[0].partitions]

    def rows(self) -> dict[str, list[int]]:
        seen: dict[str, list[int]] = {}
        for row in sample(self.workspace, PER_HOUR, 100):
            seen.setdefault(row["ds"][-2:], []).append(row["n"])
        return {hour: sorted(seen[hour]) for hour in sorted(seen)}


def rows_of(plan: RefreshPlan) -> dict[str, list[int]]:
    """The query, as Spark would run it: over exactly the files of the plan, and for its partitions."""
    days: dict[str, list[int]] = {}
    for file in plan.sources[0].files:
        path = Path(file.removeprefix("file://"))
        day, hour = (name.partition("=")[2] for name in path.parts[-3:-1])
        if plan.partitions.covers({"ds": f"{day}T{hour}"}):
            days.setdefault(f"{day}T{hour}", []).extend(pq.ParquetFile(path).read()["n"].to_pylist())
    return days


@pytest.fixture
def growing(workspace: Workspace, clock: Clock, tmp_path: Path) -> Growing:
    clock.time = NOW
    return Growing(workspace, tmp_path)


def test_an_hour_is_published_once_it_is_whole_and_not_when_the_next_one_comes(growing: Growing) -> None:
    growing.hour(10, [1], whole=False)
    told = growing.turn()
    assert "waiting for pt_day=2021-03-19/pt_hour=10 of lake.raw.events: it has no _SUCCESS yet" in told
    growing.hour(10, [2], file="part-1")
    assert growing.turn() == ["10"]
    assert growing.rows() == {"10": [1, 2]}
    assert "watermark 2021-03-19T11:00:00" in growing.reason
    assert "no new complete partition" in growing.turn()
    growing.hour(11, [3])
    assert growing.turn() == ["11"]
    assert growing.rows() == {"10": [1, 2], "11": [3]}


def test_a_source_has_moved_when_a_partition_became_whole(growing: Growing) -> None:
    def moved() -> bool:
        now = look_at_sources(growing.workspace, growing.request.table, growing.request.sources)["lake.raw.events"]
        last = growing.workspace.ledger.list_refreshes(PER_HOUR, 1)[0].sources["lake.raw.events"]
        return last != now.version

    growing.hour(10, [10])
    growing.turn()
    assert not moved()
    growing.hour(11, [11], whole=False)
    assert not moved()
    growing.hour(11)
    assert moved()


def test_hours_come_in_order_and_none_by_half(growing: Growing) -> None:
    growing.hour(12, [12])
    growing.hour(11, [11], whole=False)
    growing.hour(10, [10])
    assert growing.turn() == ["10"]
    growing.hour(11)
    assert growing.turn() == ["11", "12"]
    assert growing.rows() == {"10": [10], "11": [11], "12": [12]}


def test_late_files_are_never_dropped(growing: Growing, caplog: pytest.LogCaptureFixture) -> None:
    growing.hour(10, [10])
    growing.hour(12, [12])
    assert growing.turn() == ["10", "12"]
    growing.hour(10, [100], file="late")
    growing.hour(11, [11])
    assert growing.turn() == ["10", "11"]
    assert "2 late: pt_day=2021-03-19/pt_hour=10 of lake.raw.events" in growing.reason
    assert "2 partitions came, or changed, after their time was over: pt_day=2021-03-19/pt_hour=10 of" in caplog.text
    assert growing.rows() == {"10": [10, 100], "11": [11], "12": [12]}


def test_an_hour_without_rows_moves_the_watermark(growing: Growing) -> None:
    growing.hour(10, [10])
    growing.turn()
    growing.hour(11)
    assert growing.turn() == ["11"]
    growing.hour(13, [13])
    assert growing.turn() == ["12", "13"]
    growing.hour(11, [11])
    assert growing.turn() == ["11"]
    assert growing.rows() == {"10": [10], "11": [11], "13": [13]}


def test_a_marker_that_is_taken_away_or_a_partition_that_is_dropped_changes_no_rows(growing: Growing) -> None:
    folder = growing.hour(10, [10])
    growing.hour(11, [11])
    growing.turn()
    (folder / "_SUCCESS").unlink()
    growing.hour(12, [12])
    assert growing.turn() == ["12"]
    (folder / "part-0.parquet").unlink()
    folder.rmdir()
    growing.hour(13, [13])
    assert growing.turn() == ["13"]
    assert growing.rows() == {"10": [10], "11": [11], "12": [12], "13": [13]}


def test_one_that_is_written_anew_is_waited_for(growing: Growing) -> None:
    folder = growing.hour(10, [10])
    growing.turn()
    (folder / "_SUCCESS").unlink()
    growing.hour(10, [100], whole=False)
    growing.hour(11, [11])
    assert "pt_hour=10 of lake.raw.events was read before and is being rewritten: it has no _SUCCESS yet" in growing.turn()
    with pytest.raises(UpstreamError, match="is being rewritten"):
        growing.turn(partitions=PartitionSet.of([{"ds": "2021-03-19T10"}]))
    growing.hour(10)
    assert growing.turn() == ["10", "11"]
    assert growing.rows() == {"10": [100], "11": [11]}


def test_what_is_asked_for_by_hand_takes_nothing_from_the_batches(growing: Growing) -> None:
    growing.hour(10, [10])
    growing.turn()
    growing.hour(10, [100], file="late")
    growing.hour(11, [11])
    growing.hour(12, [12])
    assert growing.turn(partitions=PartitionSet.of([{"ds": "2021-03-19T12"}])) == ["12"]
    assert growing.rows() == {"10": [10], "12": [12]}
    assert growing.turn() == ["10", "11"]
    assert growing.rows() == {"10": [10, 100], "11": [11], "12": [12]}
    growing.hour(13, [13], whole=False)
    assert growing.turn(full_refresh=True) == ["whole"]
    assert growing.rows() == {"10": [10, 100], "11": [11], "12": [12]}


def test_a_look_that_finds_nothing_new_makes_the_table_fresher_while_no_partition_is_due(growing: Growing, clock: Clock) -> None:
    """One line in the history, however often, and no version."""
    growing.hour(19, [19])
    growing.turn(is_scheduled=True)
    for minutes in (1, 2):
        clock.time = NOW + timedelta(minutes=minutes)
        assert "no new complete partition" in growing.turn(is_scheduled=True, schedule_time=clock.time)
    history = growing.workspace.ledger.list_refreshes(PER_HOUR)
    assert [(refresh.action, refresh.data_timestamp) for refresh in history] == [("NO_DATA", clock.time), ("INITIALIZE", NOW)]
    growing.hour(20, [20])
    assert growing.turn(is_scheduled=True, schedule_time=clock.time) == ["20"]


@pytest.mark.parametrize("formatter", ["\"yyyy-MM-dd'T'HH\"", ""], ids=["hours", "complete table"])
def test_a_table_whose_source_stopped_is_fresh_up_to_the_watermark_and_late(
    growing: Growing, clock: Clock, formatter: str
) -> None:
    if not formatter:
        growing.request = replace(growing.request, table=replace(growing.request.table, formatters={}, options={}))
    settled(growing.hour(10, [10]))
    growing.turn(is_scheduled=True)
    status = show_table(growing.workspace, PER_HOUR).status
    eleven = datetime(2021, 3, 19, 11, tzinfo=UTC)
    assert (status.data_timestamp, status.fresh_until, status.watermark, status.late) == (eleven, eleven, eleven, True)
    clock.time = NOW + timedelta(minutes=2)
    growing.turn(is_scheduled=True, schedule_time=clock.time)
    assert show_table(growing.workspace, PER_HOUR).status.fresh_until == eleven, "to look does not make it fresher"
    settled(growing.hour(20, [20]))
    growing.turn(is_scheduled=True, schedule_time=clock.time)
    (listed,) = list_tables(growing.workspace, {}, complete=False).tables
    assert (listed.data_timestamp, listed.watermark, listed.late) == (clock.time, NOW + timedelta(hours=1), False)
    rollback(growing.workspace, RollbackRequest(PER_HOUR, 1, str(uuid4()), "by hand"))
    assert show_table(growing.workspace, PER_HOUR).status.watermark == eleven


def test_a_child_waits_for_the_hour_that_the_source_still_owes(growing: Growing) -> None:
    growing.hour(18, [18])
    growing.turn(is_scheduled=True)
    parent = Parent(PER_HOUR, "iceberg", "0 * * * *", "UTC", growing.request.table.freshness)
    assert what_is_missing(pending(growing.workspace, [parent], NOW)).endswith("is fresh only up to 2021-03-19T19:00:00+00:00")
    growing.hour(19, [19])
    growing.turn(is_scheduled=True)
    assert not pending(growing.workspace, [parent], NOW)


def test_a_table_without_time_partitions_is_made_of_whole_ones(growing: Growing) -> None:
    growing.defined("{file: _SUCCESS}")
    table = replace(growing.request.table, formatters={}, options={})
    growing.request = replace(growing.request, table=table, is_scheduled=True)
    settled(growing.hour(10, [10]))
    growing.hour(11, [11], whole=False)
    assert growing.turn() == ["whole"]
    assert "nothing that it reads has moved" in growing.turn()
    settled(growing.hour(11))
    assert growing.turn() == ["whole"]
    assert growing.rows() == {"10": [10], "11": [11]}


def settled(folder: Path) -> None:
    """Let all of a folder have been written long before anybody looks."""
    changed(folder, NOW - timedelta(days=1))


def test_a_source_out_of_reach_is_no_empty_one(growing: Growing) -> None:
    growing.hour(10, [10])
    growing.turn()
    growing.folder.rename(growing.folder.parent / "elsewhere")
    with pytest.raises(ConfigurationError, match="there is nothing at"):
        growing.turn()
    growing.folder.mkdir()
    assert "no new complete partition" in growing.turn()
    with pytest.raises(UpstreamError, match="that was read is gone"):
        growing.turn(full_refresh=True)
    assert growing.rows() == {"10": [10]}


def test_a_rollback_goes_on_from_what_that_version_had_read(growing: Growing) -> None:
    growing.hour(10, [10])
    growing.turn()
    growing.hour(11, [11])
    growing.turn()
    rollback(growing.workspace, RollbackRequest(PER_HOUR, 1, str(uuid4()), "by hand"))
    assert growing.rows() == {"10": [10]}
    growing.hour(12, [12])
    assert growing.turn() == ["11", "12"]
    assert growing.rows() == {"10": [10], "11": [11], "12": [12]}


@pytest.mark.sampled
@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("cleans_away", [False, True])
def test_hours_that_others_took_back_are_published_again(growing: Growing, table_format: str, cleans_away: bool) -> None:
    """Also when the history of the table is cleaned away then, so that it is not known which version it is at."""
    growing.request = replace(growing.request, table=replace(growing.request.table, format=table_format))
    growing.hour(10, [10])
    growing.turn()
    go_back = remembered(growing.workspace, PER_HOUR, table_format)
    for hour in (11, 12):
        growing.hour(hour, [hour])
        growing.turn()
    go_back()
    if cleans_away:
        others = pa.table({"ds": ["2021-03-19T23"], "n": pa.array([23])})
        append_and_clean_away(growing.workspace, PER_HOUR, table_format, others)
    growing.hour(13, [13])
    growing.turn()
    assert growing.rows() == {"10": [10], "11": [11], "12": [12], "13": [13], **({"23": [23, 23]} if cleans_away else {})}


def test_a_failed_job_reads_the_same_again(growing: Growing) -> None:
    growing.hour(10, [10])
    with pytest.raises(ZeroDivisionError):
        run(growing.workspace, replace(growing.request, token="t1"), lambda _plan: 1 / 0)
    assert growing.turn() == ["10"]


def test_a_version_between_the_look_and_the_lease_is_noticed(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    growing.hour(10, [10])
    growing.turn()
    growing.hour(11, [11])

    def look_and_be_overtaken(*arguments: Any) -> Growth | None:
        looked = look(*arguments)
        monkeypatch.setattr(change_detection, "look", look)
        assert growing.turn() == ["11"]
        return looked

    monkeypatch.setattr(change_detection, "look", look_and_be_overtaken)
    with pytest.raises(ConflictError, match="changed while its sources were looked at"):
        growing.turn()
    assert growing.rows() == {"10": [10], "11": [11]}


def test_a_day_waits_for_its_hours(growing: Growing, clock: Clock) -> None:
    clock.time = NOW + timedelta(days=1)
    growing.defined("{file: _SUCCESS}", "yyyy-MM-dd")
    for number in range(23):
        growing.hour(number, [number])
    assert "no new complete partition" in growing.turn()
    growing.hour(23, [23])

    def submit(plan: RefreshPlan) -> None:
        assert plan.partitions == PartitionSet.of([{"ds": "2021-03-19"}])
        assert len(plan.sources[0].files) == 24
        write_days(plan, {"2021-03-19": [1]})

    assert isinstance(run(growing.workspace, replace(growing.request, token="t1"), submit), Version)


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("pt_day=latest/pt_hour=10", "gives 'latest 10:00:00', which is no time"),
        ("pt_day=2021-03-19/pt_hour=__HIVE_DEFAULT_PARTITION__", "has no value of pt_hour"),
        ("pt_day=2021-03-19", "has no value of pt_hour"),
        ("backup", "has no value of pt_day"),
    ],
)
def test_a_partition_that_is_no_time_is_told(growing: Growing, folder: str, told: str) -> None:
    growing.hour(10, [10])
    path = growing.folder / folder
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), path / "part-0.parquet")
    with pytest.raises(ConfigurationError, match=told):
        growing.turn()


def test_two_spellings_of_an_hour_are_both_read(growing: Growing) -> None:
    growing.hour(9, [9])
    other = growing.folder / "pt_day=2021-03-19/pt_hour=9"
    other.mkdir()
    pq.write_table(pa.table({"n": pa.array([90], pa.int64())}), other / "part-0.parquet")
    (other / "_SUCCESS").touch()
    plans: list[RefreshPlan] = []
    with pytest.raises(ZeroDivisionError):
        run(growing.workspace, replace(growing.request, token="t1"), lambda plan: plans.append(plan) or 1 / 0)  # type: ignore[func-returns-value]
    assert (str(plans[0].partitions), len(plans[0].sources[0].files)) == ("ds=2021-03-19T09", 2)


def test_a_time_to_come_is_a_mistyped_one(growing: Growing) -> None:
    growing.hour(10, [10])
    growing.hour(23, [23])
    assert growing.turn() == ["10"]
    assert "pt_hour=23 of lake.raw.events: its time has not come yet; is it mistyped?" in growing.turn()


def test_quiet_for_a_while(growing: Growing, clock: Clock) -> None:
    growing.defined("{quiet: 10 minutes}")
    growing.hour(10, [10], whole=False)
    growing.folder.joinpath("pt_day=2021-03-19/pt_hour=11").mkdir()  # made beforehand, and empty
    changed(growing.folder, NOW - timedelta(minutes=9))
    assert "has to be quiet for 0:10:00" in growing.turn()
    clock.time = NOW + timedelta(minutes=1)
    assert growing.turn() == ["10"]
    # The clock of the store is a day ahead: by its own newest change, the first hour is quiet.
    late = growing.hour(11, [11], whole=False)
    changed(late, NOW + timedelta(days=1))
    assert "it changed at 2021-03-20T20:00:00+00:00" in growing.turn()
    changed(growing.hour(12, [12], whole=False), NOW + timedelta(days=1, minutes=10))
    assert growing.turn() == ["11"]


def changed(folder: Path, time: datetime) -> None:
    """Let all of a folder have changed last at that time."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.timestamp(), time.timestamp()))


class Whole:
    answer: object = True
    seen: Mapping[str, str] = {}

    def is_complete(self, partition: object) -> object:
        type(self).seen = partition.values  # type: ignore[attr-defined]
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_a_class_says_what_is_whole(growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing.defined(f"{{class: '{__name__}:Whole'}}")
    growing.hour(10, [10], whole=False)
    monkeypatch.setattr(Whole, "answer", False)
    assert "Whole says so" in growing.turn()
    monkeypatch.setattr(Whole, "answer", ConnectionError("away"))
    assert "cannot tell (ConnectionError: away)" in growing.turn()
    monkeypatch.setattr(Whole, "answer", SystemExit(3))
    assert "cannot tell (SystemExit: 3)" in growing.turn()
    monkeypatch.setattr(Whole, "answer", "yes")
    with pytest.raises(ConfigurationError, match="has to give True or False"):
        growing.turn()
    monkeypatch.setattr(Whole, "answer", True)
    assert growing.turn() == ["10"]
    assert Whole.seen == {"pt_day": "2021-03-19", "pt_hour": "10"}
    growing.defined("{class: 'nowhere:Whole'}")
    with pytest.raises(ConfigurationError, match=r"nowhere:Whole cannot be made \(ModuleNotFoundError"):
        growing.turn()
    (tmp_path / "script_that_exits.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    growing.defined("{class: 'script_that_exits:Whole'}")
    with pytest.raises(ConfigurationError, match=r"script_that_exits:Whole cannot be made \(SystemExit: 3\)"):
        growing.turn()


class Extractor:
    """Another class of a user: which time a partition stands for."""

    time: object = datetime(2021, 3, 19, 10)  # noqa: DTZ001 - on the wall

    def extract(self, keys: list[str], values: list[str]) -> object:
        assert (keys, values) == (["pt_day", "pt_hour"], ["2021-03-19", "10"])
        return self.time


def test_a_class_says_what_time_it_is(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = growing.request.sources.values()
    assert source.watermark is not None
    custom = replace(source.watermark, extractor=TimeExtractor(class_path=f"{__name__}:Extractor"))
    growing.request = replace(growing.request, sources={source.identifier: replace(source, watermark=custom)})
    growing.hour(10, [10])
    monkeypatch.setattr(Extractor, "time", NOW)
    with pytest.raises(ConfigurationError, match="to give a datetime without a time zone"):
        growing.turn()
    monkeypatch.undo()
    assert growing.turn() == ["10"]
    closed = replace(growing.workspace.settings, allowed=Allowed(python_functions=False))
    growing.workspace = replace(growing.workspace, settings=closed)
    with pytest.raises(ConfigurationError, match="is not allowed here"):
        growing.turn()


def test_a_watermark_is_seen_through_a_view_of_the_catalog(growing: Growing) -> None:
    recent = TableIdentifier("lake", "sales", "recent")
    view = "SELECT * FROM `lake`.`raw`.`events`"
    growing.workspace.catalog("lake").create_database("sales", CatalogDatabase(), ignore_if_exists=True)
    growing.workspace.catalog("lake").create_table(recent.path, CatalogView(view, view))
    request = growing.request
    query = request.table.expanded_query.replace("`lake`.`raw`.`events`", recent.sql)
    assert recent.sql in query
    table = replace(request.table, expanded_query=query, upstream=(recent,))
    sources = {**request.sources, recent: Source(recent, "view")}
    growing.hour(10, [1])
    assert growing.turn(table=table, sources=sources) == ["10"]
    current = growing.workspace.existing_table(PER_HOUR).current()
    watermark = recorded_watermark(growing.workspace, table, sources, current)
    assert watermark.isoformat() == "2021-03-19T11:00:00"
