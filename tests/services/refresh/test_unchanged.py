"""Scheduled refreshes of which nothing has moved: left out, while every doubt is a reason to refresh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, named_times
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.versions import StreamPosition, Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh import planning as binding
from airflow_dynamic_tables.services.refresh.change_detection import Moved, detect_changes
from airflow_dynamic_tables.services.refresh.planning import bind_sources
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped, StreamBatch
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import parents_of, pending
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import list_tables
from airflow_dynamic_tables.services.tables.entries import registered_or_new
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes import protocol
from airflow_dynamic_tables.services.writes.leases import open_stage
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_days, write_numbers, write_scattered

NUMBERS = TableIdentifier("lake", "sales", "numbers")
DAYS = TableIdentifier("lake", "sales", "days")
CHILD = TableIdentifier("lake", "sales", "child")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
QUERY = "SELECT sum(n) AS x FROM raw.orders"
OF_DAYS = "SELECT s.ds, s.n FROM raw.days s LEFT JOIN raw.orders o ON s.n = o.n"
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {{name: raw.orders, format: csv, path: {folder}/orders, schema: n int}}
- {{name: raw.days, format: csv, path: {folder}/days, schema: "n bigint, ds string", partitioned_by: [ds]}}
- {{name: raw.more, format: csv, path: {folder}/more, schema: "n bigint, day {kind}", partitioned_by: [day]}}
dynamic_tables:
- {{name: numbers, freshness: 1 day, query: "{query}"{more}}}
- {{name: child, freshness: 1 day, query: SELECT x FROM numbers}}
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
  query: "{of_days}"{of_more}
"""


@dataclass
class Bench:
    """One table over a folder of CSV, refreshed by schedule, day after day."""

    workspace: Workspace
    clock: Clock
    folder: Path
    query: str = QUERY
    more: str = ""
    of_days: str = OF_DAYS
    of_more: str = ""
    kind: str = "string"
    day: int = 0
    jobs: list[RefreshPlan] = field(default_factory=list)

    @property
    def orders(self) -> Path:
        return self.folder / "orders"

    def write(self, name: str = "a.csv", text: str = "1\n", age: timedelta = timedelta(hours=1)) -> Path:
        file = self.orders / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        stamp = (datetime.now(UTC) - age).timestamp()
        os.utime(file, (stamp, stamp))
        return file

    def request(self, table: TableIdentifier = NUMBERS) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        asked = {"query": self.query, "more": self.more, "of_days": self.of_days, "of_more": self.of_more, "kind": self.kind}
        path.write_text(YAML.format(folder=self.folder, **asked))
        definitions = load_definitions(path)
        time, token = MARCH + self.day * DAY, str(uuid4())
        return RefreshRequest(definitions.tables[table], definitions.sources, time, token, token, is_scheduled=True)

    def next_day(self, **asked: object) -> Version | Skipped:
        """The refresh of the next day; ``asked`` is what somebody asks for."""
        self.day += 1
        self.clock.time = max(self.clock.time, MARCH + self.day * DAY)
        return run(self.workspace, replace(self.request(), **asked), self.submit)  # type: ignore[arg-type]

    def look(self) -> Moved:
        self.day += 1
        self.clock.time = max(self.clock.time, MARCH + self.day * DAY)
        request = self.request()
        return detect_changes(self.workspace, request, registered_or_new(self.workspace, request.table), WHOLE_TABLE)

    def submit(self, plan: RefreshPlan) -> None:
        self.jobs.append(plan)
        write_numbers(plan)

    def fresh(self, table: TableIdentifier = NUMBERS) -> datetime | None:
        return next(one.fresh_until for one in list_tables(self.workspace, {}).tables if one.identifier == str(table))


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    with open_workspace(settings, clock) as workspace:
        bench = Bench(workspace, clock, tmp_path)
        bench.write()
        yield bench


@pytest.fixture
def made(bench: Bench) -> Bench:
    """A table that the first day made, and of which nothing has moved since."""
    assert isinstance(bench.next_day(), Version)
    return bench


def test_nothing_moved_nothing_is_done(made: Bench) -> None:
    ledger = made.workspace.ledger
    for _ in range(3):
        skipped = made.next_day()
        assert isinstance(skipped, Skipped)
        assert skipped.reason.code is ReasonCode.UNCHANGED
        assert "nothing that it reads has moved since version 1: lake.raw.orders (files:" in skipped.reason.text
    found, first = ledger.list_refreshes(NUMBERS)
    assert (found.action, found.state, found.schedule_time) == (RefreshAction.NO_DATA, RefreshState.SKIPPED, MARCH + 4 * DAY)
    assert (found.version, found.data_timestamp) == (1, MARCH + 4 * DAY)
    assert first.state is RefreshState.SUCCEEDED
    assert len(made.jobs) == 1
    assert [stage.token for stage in ledger.list_stages(NUMBERS, tuple(StageState))] == [first.token]
    assert len(made.workspace.existing_table(NUMBERS).versions()) == 1
    assert made.fresh() == MARCH + 4 * DAY


def test_a_compaction_moves_nothing(bench: Bench) -> None:
    """Neither for the table itself nor for what reads it."""
    bench.day += 1
    bench.clock.time = MARCH + bench.day * DAY
    numbers = range(DEFAULT_LIMITS.many + 1)
    assert isinstance(run(bench.workspace, bench.request(), lambda plan: write_scattered(plan, numbers)), Version)
    assert isinstance(run(bench.workspace, bench.request(CHILD), write_numbers), Version)
    assert compact(bench.workspace, NUMBERS).made == 1
    assert isinstance(bench.next_day(), Skipped)
    outcome = run(bench.workspace, bench.request(CHILD), bench.submit)
    assert isinstance(outcome, Skipped)
    assert outcome.reason.code is ReasonCode.UNCHANGED
    assert bench.jobs == []


def test_children_do_not_wait_for_what_has_not_moved(made: Bench) -> None:
    made.next_day()
    child = made.request(CHILD)
    parents = parents_of(child.table, Definitions({NUMBERS: made.request().table}))
    assert pending(made.workspace, parents, child.schedule_time) == ()
    assert pending(made.workspace, parents, child.schedule_time + DAY) != ()


def test_what_was_found_holds_for_its_version_alone(made: Bench) -> None:
    made.next_day()
    rollback(made.workspace, RollbackRequest(NUMBERS, 1, "back", "me"))
    assert made.fresh() == MARCH + DAY, "the version that is restored has a token of its own"


def test_a_table_that_was_found_to_be_fresh_is_not_refreshed_for_an_earlier_time(made: Bench) -> None:
    made.next_day()
    made.next_day()
    made.day = 1
    skipped = made.next_day(is_scheduled=False)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.ALREADY_FRESH


def test_partitions_that_somebody_refreshes_take_no_freshness_away(made: Bench) -> None:
    made.next_day()
    assert isinstance(made.next_day(is_scheduled=False, partitions=WHOLE_TABLE), Version)
    assert made.fresh() == MARCH + 2 * DAY


def test_an_older_time_takes_nothing_back(made: Bench) -> None:
    made.next_day()
    made.next_day()
    made.day -= 2
    made.next_day()
    assert made.fresh() == MARCH + 3 * DAY


@pytest.mark.parametrize("asked", [{"is_scheduled": False}, {"is_scheduled": False, "full_refresh": True}])
def test_what_somebody_asks_for_is_done(made: Bench, asked: dict[str, object]) -> None:
    assert isinstance(made.next_day(**asked), Version)


def _appears(bench: Bench) -> None:
    bench.write("b.csv")


def _goes(bench: Bench) -> None:
    bench.write("b.csv")
    bench.next_day()
    (bench.orders / "b.csv").unlink()


def _rewritten(bench: Bench) -> None:
    bench.write(text="2\n")


def _rewritten_and_set_back(bench: Bench) -> None:
    """As ``cp -p`` and ``rsync -t`` do it."""
    file = bench.orders / "a.csv"
    before = file.stat()
    file.write_text("2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _linked(bench: Bench) -> None:
    """Of a link, the file system says when that was made."""
    target = bench.folder / "target.csv"
    target.write_text("1\n")
    (bench.orders / "b.csv").symlink_to(target)
    bench.next_day()
    target.write_text("2\n")


def _query(bench: Bench) -> None:
    bench.query = QUERY.replace("sum", "max")


def _setting(name: str) -> Callable[[Bench], None]:
    def change(bench: Bench) -> None:
        bench.more = f", {name}"

    return change


def _failed(bench: Bench) -> None:
    def fail(_: RefreshPlan) -> None:
        raise JobFailedError("no")

    bench.day += 1
    with pytest.raises(JobFailedError):
        run(bench.workspace, replace(bench.request(), is_scheduled=False), fail)


def _restored(bench: Bench) -> None:
    bench.next_day(is_scheduled=False)
    rollback(bench.workspace, RollbackRequest(NUMBERS, 1, "back", "me"))


def _emptied_by_others(bench: Bench) -> None:
    store = bench.workspace.catalog("lake").stores()[0]
    store.tables.load_table(("sales", "numbers")).delete()  # type: ignore[attr-defined]


def _made_anew(bench: Bench) -> None:
    bench.workspace.catalog("lake").drop_table(NUMBERS.path)


def _forgotten(bench: Bench) -> None:
    """Somebody restored an older database of the ledger, say."""
    version = bench.workspace.existing_table(NUMBERS).current()
    unknown = SourceState(version.snapshot)
    bench.workspace.ledger.record_source_states(NUMBERS, version.token, {str(NUMBERS): unknown})


MOVED = {
    "a file appears": _appears,
    "a file goes": _goes,
    "a file is rewritten": _rewritten,
    "a file is rewritten, and its time set back": _rewritten_and_set_back,
    "what a link leads to is rewritten": _linked,
    "query": _query,
    "timezone": _setting("timezone: Europe/Berlin"),
    "comment": _setting("comment: new"),
    "comment of a column": _setting("columns: {x: new}"),
    "expectations": _setting("expectations: [{not_null: [x]}]"),
    "row count": _setting("expectations: [{row_count: {max: 9}}]"),
    "settings that decide": _setting("spark: {conf: {spark.sql.ansi.enabled: 'false'}}"),
    "turned off": _setting("skip_unchanged: false"),
    "the last refresh failed": _failed,
    "rolled back": _restored,
    "emptied by others": _emptied_by_others,
    "dropped": _made_anew,
    "nobody knows what the sources were like": _forgotten,
}


@pytest.mark.parametrize("move", MOVED.values(), ids=MOVED)
def test_what_moved_is_refreshed(made: Bench, move: Callable[[Bench], None]) -> None:
    move(made)
    moved = made.look()
    assert moved.partitions.is_whole, moved.why


@pytest.mark.parametrize("setting", ["tags: [a]", "schedule: '0 6 * * *'", "retries: 3", "spark: {driver_memory: 4g}"])
def test_settings_that_decide_no_row_do_not_count(made: Bench, setting: str) -> None:
    made.more = f", {setting}"
    moved = made.look()
    assert moved.partitions.is_empty, moved.why


@pytest.mark.parametrize("query", ["SELECT n AS x, rand() AS r FROM raw.orders", "SELECT now() AS x FROM raw.orders"])
def test_queries_that_give_other_rows_are_never_left_out(bench: Bench, query: str) -> None:
    bench.query = query
    assert isinstance(bench.next_day(), Version)
    assert isinstance(bench.next_day(), Version)


def test_a_time_is_that_of_the_schedule_whenever_the_job_runs(bench: Bench) -> None:
    bench.query = "SELECT now() AS x FROM raw.orders"
    first = bench.next_day()
    assert isinstance(first, Version)
    bench.clock.time += timedelta(hours=40)
    bench.day -= 1  # another run of the same tick
    skipped = bench.next_day()
    assert isinstance(skipped, Skipped)
    assert f"nothing that it reads has moved since version {first.number}" in skipped.reason.text
    assert isinstance(bench.next_day(), Version)
    times = [named_times(plan.query, plan.times) for plan in bench.jobs]
    assert times == [
        {"now()": "TIMESTAMP_LTZ '2024-03-02 00:00:00.000000+00:00'"},
        {"now()": "TIMESTAMP_LTZ '2024-03-03 00:00:00.000000+00:00'"},
    ]


def test_a_date_is_the_same_for_all_ticks_of_its_day(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench.query = "SELECT 1 AS x FROM raw.orders WHERE current_date > '2024-01-01'"
    bench.more = ", schedule: '0 */8 * * *'"
    made = []
    for hours in (0, 8, 16, 24):
        bench.clock.time = max(bench.clock.time, MARCH + timedelta(hours=hours))
        request = replace(bench.request(), schedule_time=MARCH + timedelta(hours=hours))
        made.append(run(bench.workspace, request, bench.submit))
    assert [isinstance(one, Version) for one in made] == [True, False, False, True]
    assert [plan.times[0].sql for plan in bench.jobs] == ["DATE '2024-03-01'", "DATE '2024-03-02'"]
    _, why = [message for message in caplog.messages if message.startswith("Building")]
    assert "current_date is another time, or its definition changed" in why


def test_an_expectation_that_looks_at_the_clock_is_asked_again(bench: Bench) -> None:
    bench.more = ", expectations: [{name: old, predicate: 'x < year(now())', action: drop}]"
    assert isinstance(bench.next_day(), Version)
    assert isinstance(bench.next_day(), Version)


def test_a_file_that_was_just_written_may_change_once_more(bench: Bench) -> None:
    bench.write("b.csv", age=timedelta())
    assert isinstance(bench.next_day(), Version)
    bench.write("b.csv")
    assert isinstance(bench.next_day(), Version)
    assert isinstance(bench.next_day(), Skipped)


def test_a_file_of_the_future_is_never_settled(bench: Bench) -> None:
    bench.write("b.csv", age=-DAY)
    assert isinstance(bench.next_day(), Version)
    assert isinstance(bench.next_day(), Version)


def test_a_clock_that_is_behind_sees_too_little(made: Bench) -> None:
    made.day += 1
    made.clock.time = MARCH + made.day * DAY - timedelta(seconds=1)
    assert isinstance(run(made.workspace, made.request(), made.submit), Version)


def test_a_source_that_is_away_fails_as_ever(made: Bench) -> None:
    (made.orders / "a.csv").unlink()
    made.orders.rmdir()
    with pytest.raises(Exception, match="there is nothing at"):
        made.next_day()
    last = made.workspace.ledger.list_refreshes(NUMBERS)[0]
    assert last.state is RefreshState.FAILED


def test_what_keeps_on_being_left_out_is_one_line(made: Bench) -> None:
    ledger = made.workspace.ledger
    suspend(made.workspace, NUMBERS)
    for _ in range(3):
        assert isinstance(made.next_day(), Skipped)
        made.clock.time += timedelta(hours=1)
    last, first = ledger.list_refreshes(NUMBERS)
    assert (last.reason_code, last.action, last.data_timestamp) == (ReasonCode.SUSPENDED, RefreshAction.SKIP, None)
    assert last.schedule_time == MARCH + 4 * DAY
    assert last.finished_at is not None
    assert last.finished_at > last.started_at
    assert first.state is RefreshState.SUCCEEDED
    assert isinstance(made.next_day(is_scheduled=False), Skipped)
    assert len(ledger.list_refreshes(NUMBERS)) == 3, "what somebody asked for has a line of its own"
    resume(made.workspace, NUMBERS)
    made.write("b.csv")
    assert isinstance(made.next_day(), Version)
    suspend(made.workspace, NUMBERS)
    made.next_day()
    assert [one.state for one in ledger.list_refreshes(NUMBERS, 2)] == [RefreshState.SKIPPED, RefreshState.SUCCEEDED]


def test_batches_without_rows_are_one_line_and_as_fresh_as_the_last_one(made: Bench) -> None:
    ledger = made.workspace.ledger

    def batch(number: int, follows: StreamPosition | None, rows: tuple[int, ...]) -> tuple[Version | Skipped, StreamPosition]:
        position = StreamPosition("s", number, "read")
        made.clock.time += timedelta(minutes=1)
        streamed = StreamBatch(made.jobs[0], position, follows)
        request = replace(made.request(), schedule_time=made.clock.time, is_scheduled=False, batch=streamed)
        return run(made.workspace, request, lambda plan: write_numbers(plan, rows)), position

    outcome, first = batch(1, None, (1, 2))
    for number in (2, 3, 4):
        skipped, _ = batch(number, first, ())
        assert isinstance(skipped, Skipped)
        assert skipped.reason == Reason(ReasonCode.NOTHING_TO_REFRESH, f"batch {number} of stream s has no rows")
    found, version, *_ = ledger.list_refreshes(NUMBERS)
    assert (found.action, found.reason, found.version) == (
        RefreshAction.NO_DATA,
        "batch 4 of stream s has no rows",
        outcome.number,
    )
    assert version.token == outcome.token
    assert made.fresh() == made.clock.time
    assert len(ledger.list_refreshes(NUMBERS)) == 3
    assert isinstance(batch(5, first, (3,))[0], Version)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    listed: list[str] = []

    def listed_once_more(*args: Any) -> Any:
        listed.append(str(args[1].identifier))
        return bind_sources(*args)

    monkeypatch.setattr(binding, "bind_sources", listed_once_more)
    return listed


def test_what_was_compared_is_what_is_read(made: Bench, looks: list[str]) -> None:
    for move in (_appears, _query, _setting("spark: {conf: {spark.sql.ansi.enabled: 'false'}}")):
        move(made)
        assert isinstance(made.next_day(), Version)
        assert len(looks) == 1
        assert [Path(file).name for file in made.jobs[-1].sources[0].files] == ["a.csv", "b.csv"]
        assert isinstance(made.next_day(), Skipped), "what it read is what the ledger has"
        looks.clear()


def test_what_was_compared_is_not_read_any_more_when_somebody_committed_since(
    made: Bench, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have read what is newer, and nothing older goes over it."""
    made.write("b.csv")

    def after_another_refresh(*args: Any) -> None:
        monkeypatch.setattr(protocol, "open_stage", open_stage)
        made.write("c.csv")
        assert isinstance(run(made.workspace, replace(made.request(), is_scheduled=False), made.submit), Version)
        open_stage(*args)

    monkeypatch.setattr(protocol, "open_stage", after_another_refresh)
    assert isinstance(made.next_day(), Version)
    assert len(looks) == 3
    assert all(any(file.endswith("c.csv") for file in plan.sources[0].files) for plan in made.jobs[1:])


def test_a_child_is_left_out_while_its_parent_is(made: Bench) -> None:
    assert isinstance(run(made.workspace, made.request(CHILD), made.submit), Version)
    made.next_day()
    assert isinstance(run(made.workspace, made.request(CHILD), made.submit), Skipped)
    made.write("b.csv")
    made.next_day()
    assert isinstance(run(made.workspace, made.request(CHILD), made.submit), Version)


@pytest.fixture
def days(bench: Bench) -> Bench:
    """A table with a partition a day, the first two of which were made one after the other."""
    for day in (1, 2):
        bench.write(f"../days/ds=2024-03-0{day}/a.csv")
        assert made_of(bench, day) == [f"ds=2024-03-0{day}"]
    return bench


def made_of(bench: Bench, *days: int) -> list[str]:
    """What the refresh that replaces these days does replace: those of which something moved."""
    wanted = PartitionSet.of([{"ds": f"2024-03-0{day}"} for day in days])
    bench.clock.time += DAY
    request = replace(bench.request(DAYS), schedule_time=bench.clock.time, updated=wanted)
    moved = detect_changes(bench.workspace, request, registered_or_new(bench.workspace, request.table), wanted)
    if moved.partitions.is_empty:
        return []
    by_hand = replace(request, partitions=moved.partitions, is_scheduled=False)

    def write(plan: RefreshPlan) -> None:
        write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

    assert isinstance(run(bench.workspace, by_hand, write), Version)
    return [describe(spec) for spec in moved.partitions]


def test_each_partition_is_compared_with_what_made_it_last(days: Bench) -> None:
    assert made_of(days, 1, 2) == []
    days.write("../days/ds=2024-03-03/a.csv")
    assert made_of(days, 1, 2, 3) == ["ds=2024-03-03"]
    days.write("../days/ds=2024-03-01/late.csv")
    assert made_of(days, 1, 2, 3) == ["ds=2024-03-01"]
    assert made_of(days, 1, 2, 3) == []
    (days.folder / "days/ds=2024-03-02/a.csv").unlink()
    assert made_of(days, 1, 2, 3) == ["ds=2024-03-02"]


UNION = "SELECT ds, n FROM raw.days UNION ALL SELECT day, n FROM raw.more"
JOIN = "SELECT s.ds, s.n FROM raw.days s LEFT JOIN raw.more m ON s.ds = m.day"


@pytest.mark.parametrize("query", [UNION, JOIN], ids=["union", "join"])
def test_partitions_of_every_table_are_compared_that_the_key_tells_apart(bench: Bench, query: str) -> None:
    bench.of_days = query
    for day in (1, 2):
        bench.write(f"../days/ds=2024-03-0{day}/a.csv")
        bench.write(f"../more/day=2024-03-0{day}/a.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]
    assert made_of(bench, 1, 2) == []
    bench.write("../more/day=2024-03-01/late.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-01"]
    bench.write("../days/ds=2024-03-02/late.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-02"]


@pytest.mark.parametrize("query", [UNION, JOIN], ids=["union", "join"])
def test_a_key_of_another_type_may_be_spelled_otherwise_so_it_tells_nothing_apart(bench: Bench, query: str) -> None:
    """Spark makes ``2024-03-01`` of the date in ``day=2024-3-1``."""
    bench.of_days = query
    bench.kind = "date"
    bench.write("../days/ds=2024-03-01/a.csv")
    bench.write("../more/day=2024-3-1/a.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]
    bench.write("../more/day=2024-3-1/late.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]


def test_columns_that_differ_in_case_alone_tell_nothing_apart(bench: Bench) -> None:
    """With ``spark.sql.caseSensitive``, ``s.DS`` may be another column than the key ``s.ds``."""
    bench.of_days = "SELECT s.ds, s.n FROM raw.days s LEFT JOIN raw.more m ON s.DS = m.day"
    for day in (1, 2):
        bench.write(f"../days/ds=2024-03-0{day}/a.csv")
        bench.write(f"../more/day=2024-03-0{day}/a.csv")
    bench.of_more = "\n  spark: {conf: {spark.sql.caseSensitive: true}}"
    assert made_of(bench, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]
    bench.write("../more/day=2024-03-02/b.csv")
    assert made_of(bench, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]


def test_what_every_partition_reads_moves_them_all(days: Bench) -> None:
    days.write("b.csv")
    assert made_of(days, 1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]


def test_a_partition_that_others_emptied_is_made_anew(days: Bench) -> None:
    store = days.workspace.catalog("lake").stores()[0]
    store.tables.load_table(("sales", "days")).delete("ds = '2024-03-01'")  # type: ignore[attr-defined]
    assert made_of(days, 1, 2) == ["ds=2024-03-01"]


def test_a_scheduled_refresh_replaces_only_what_moved(days: Bench) -> None:
    def refresh() -> tuple[Version | Skipped, list[PartitionSet]]:
        plans: list[RefreshPlan] = []
        request = replace(days.request(DAYS), schedule_time=MARCH + 2 * DAY, updated=PartitionSet.of([{"ds": "2024-03-01"}]))
        days.clock.time += DAY

        def write(plan: RefreshPlan) -> None:
            plans.append(plan)
            write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

        return run(days.workspace, request, write), [plan.partitions for plan in plans]

    assert isinstance(refresh()[0], Skipped)
    assert days.fresh(DAYS) == MARCH + 2 * DAY
    days.write("../days/ds=2024-03-01/late.csv")
    assert refresh()[1] == [PartitionSet.of([{"ds": "2024-03-01"}])]
    assert days.fresh(DAYS) == MARCH + 2 * DAY


def test_a_table_of_plain_files_is_left_out_until_somebody_touches_one(bench: Bench) -> None:
    bench.more = ", format: parquet, atomicity: none"
    assert isinstance(bench.next_day(), Version)
    assert isinstance(bench.next_day(), Skipped)
    folder = Path((bench.workspace.existing_table(NUMBERS).folder() or "").removeprefix("file://"))
    next(folder.glob("*.parquet")).unlink()
    assert isinstance(bench.next_day(), Version)
