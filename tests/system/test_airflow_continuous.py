"""Tables that are refreshed all the time, in a running Airflow: files appear, people interfere, workers die.

What happens to each goes on at the same time, as most of it is waiting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from statistics import median

import pytest

from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from tests.support.airflow import Stack, jobs_of, until
from tests.support.airflow_version import since
from tests.support.live import LIMIT, TABLE, Live

pytestmark = [pytest.mark.system, pytest.mark.postgres, pytest.mark.timeout(1800)]

STOPPED = {RefreshState.ABORTED, RefreshState.FAILED}
"""A task that is stopped says so, unless the machine stalls: then it may tell first that its job failed."""


def is_interfered_with(stack: Stack) -> None:
    live = Live(stack, "live")
    live.begin(TABLE)
    live.until_rows(1)
    live.add(2)
    live.until_rows(1, 2)
    first = {refresh.token for refresh in live.committed()}
    until("events of both", lambda: first <= set(live.told()), LIMIT)

    until("a task at work", live.kill_task, LIMIT)
    live.add(3)
    live.until_rows(1, 2, 3)

    live.add(10, "other")
    live.define(TABLE.replace("FROM live_source", "FROM live_other"))
    live.until_rows(10)
    assert any("its definition changed" in why for why in live.ends())

    # Its run waits for the loop, which makes way.
    by_hand = stack.trigger(live.dag, conf={"full_refresh": True})
    stack.until_state(live.dag, by_hand, "success", seconds=LIMIT)
    assert any(refresh.reason_code == "FULL_REFRESH" for refresh in live.committed())
    live.pause()
    live.check_history()


def waits_and_goes_on(stack: Stack) -> None:
    """It is suspended until its hold is over, its worker is shut down half-way through a turn, and its DAG is paused."""
    patient = Live(stack, "patient")
    patient.begin(TABLE.replace("events: 5 seconds", "hold: 10 seconds"))
    patient.until_rows(1)
    with stack.airflow.workspace() as workspace:
        suspend(workspace, patient.identifier)
        patient.add(2)
        until("a loop that waits", lambda: patient.said("is suspended; resume it to refresh again"), LIMIT)
        until("the end of its hold", lambda: any("its hold is over" in why for why in patient.ends()), LIMIT)
        assert patient.rows() == [1]
        resume(workspace, patient.identifier)
    patient.until_rows(1, 2)

    patient.add(3, nap=True)
    until("a turn half-way", lambda: any(map(jobs_of, patient.stages())), LIMIT)
    until("a task at work", patient.drain, LIMIT)
    until("its end", lambda: any("the task was stopped" in why for why in patient.ends()), LIMIT)
    patient.wake()
    patient.until_rows(1, 2, 3)
    assert STOPPED & {refresh.state for refresh in patient.history()}

    patient.pause()
    patient.add(4)
    stack.unpause(patient.dag)
    patient.until_rows(1, 2, 3, 4)
    patient.pause()
    patient.check_history()


STREAM = """
sources: [{name: live_source, format: json, path: FOLDER/rows, schema: "id bigint"}]
dynamic_tables:
  - name: lake.continuous.live
    freshness: 3 seconds
    continuous: {strategy: stream, events: 5 seconds}
    retry_delay: 1 second
    spark: {conn_id: spark_stand_in}
    query: SELECT id FROM live_source
"""


def is_a_stream(stack: Stack, text: str = STREAM, name: str = "flow") -> None:
    """Its worker dies, and its job outlives that until the next one takes over; then its DAG is paused."""
    flow = Live(stack, name, column="id")
    flow.begin(text)
    flow.until_rows(1)
    flow.add(2)
    flow.until_rows(1, 2)
    until("a task at work", flow.kill_task, LIMIT)
    flow.add(3)
    flow.until_rows(1, 2, 3)
    flow.pause()
    flow.add(4)
    stack.unpause(flow.dag)
    flow.until_rows(1, 2, 3, 4)
    flow.pause()
    flow.check_history()
    assert flow.times_said("cannot be called outside of the Task Runner") == 0


SCENES = (waits_and_goes_on, is_a_stream, is_interfered_with)


@pytest.fixture(scope="module")
def scenes(stack: Stack, request: pytest.FixtureRequest) -> Iterator[dict[Callable[[Stack], None], Future[None]]]:
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    chosen = [item.callspec.params["scene"] for item in items if "scenes" in item.fixturenames]
    with ThreadPoolExecutor(len(SCENES)) as pool:
        yield {scene: pool.submit(scene, stack) for scene in SCENES if scene in chosen}


@pytest.mark.large
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_table_that_is_refreshed_all_the_time(
    scenes: dict[Callable[[Stack], None], Future[None]], scene: Callable[[Stack], None]
) -> None:
    scenes[scene].result()


@pytest.mark.long  # four starts of Spark
def test_a_stream_that_spark_runs(stack: Stack) -> None:
    is_a_stream(stack, STREAM.replace("{conn_id: spark_stand_in}", "SPARK"), "spark_flow")


LONG = 7200
"""Seconds of the long form."""

STEADY = TABLE.replace("3 seconds", "10 seconds").replace("5 seconds", "1 minute")


@pytest.mark.long
@pytest.mark.timeout(LONG + 1800)
def test_two_hours_of_ten_seconds_freshness(stack: Stack) -> None:
    """A file every five seconds: nothing is lost or doubled, and 95 % are visible within two freshnesses."""
    steady = Live(stack, "steady")
    steady.begin(STEADY)
    steady.until_rows(1)
    added = [datetime.now(UTC)]
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(5)
        added.append(datetime.now(UTC))
        steady.add(len(added))
    steady.until_rows(*range(1, len(added) + 1))
    commits = sorted((refresh.finished_at, refresh.rows) for refresh in steady.committed())
    seen = [next(at for at, rows in commits if rows >= number) for number in range(1, len(added) + 1)]
    delays = sorted((visible - at).total_seconds() for visible, at in zip(seen, added, strict=True))
    late = delays[-len(delays) // 20]
    print(f"{len(delays)} files, {len(commits)} versions, seconds until visible: median {median(delays)}, 95 % {late}")
    assert late <= 20
    steady.pause()


WHOLE = """
sources:
  - {name: whole_source, format: json, path: FOLDER, schema: "x bigint, ds string", partitioned_by: [day], watermark: source,
     options: {partition.time-interval: 1 day}}
dynamic_tables:
  - name: lake.continuous.whole
    freshness: 3 seconds
    partitioned_by: [ds]
    continuous: {events: 5 seconds}
    spark: {conn_id: spark_stand_in}
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd, sink.partition-commit.trigger: partition-time}
    query: SELECT x, ds FROM whole_source
"""

WHOLE_NAME, WHOLE_DAG = "lake.continuous.whole", "dynamic_table__lake__continuous__whole"


@since(3, 3)
@pytest.mark.long  # three rounds of loop, event and end of the run
def test_partitions_are_told_once_they_are_whole(stack: Stack) -> None:
    folder = stack.airflow.home / "whole"

    def add(day: str, number: int) -> None:
        (folder / f"day={day}").mkdir(parents=True, exist_ok=True)
        row = json.dumps({"x": number, "ds": day})
        (folder / f"day={day}" / f"{number}.json").write_text(row + "\n")

    def told() -> list[str]:
        events = stack.get("/assets/events", name_pattern="dynamic-table://lake/continuous/whole", limit=100)["asset_events"]
        return sorted(event["partition_key"] for event in events if event["partition_key"])

    add("2021-03-19", 1)
    stack.airflow.define("whole.yaml", WHOLE.replace("FOLDER", str(folder)))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=WHOLE_DAG)["total_entries"])
    stack.unpause(WHOLE_DAG)
    until("a look", lambda: any("has no _SUCCESS yet" in each.reason for each in stack.airflow.refreshes(WHOLE_NAME)), LIMIT)
    assert told() == []
    (folder / "day=2021-03-19" / "_SUCCESS").touch()
    until("the first day", lambda: told() == ["ds=2021-03-19"], LIMIT)
    assert [row["x"] for row in stack.airflow.rows(WHOLE_NAME)] == [1]
    add("2021-03-20", 2)
    (folder / "day=2021-03-20" / "_SUCCESS").touch()
    until("the second day", lambda: told() == ["ds=2021-03-19", "ds=2021-03-20"], LIMIT)
    add("2021-03-19", 3)
    until("the first day again", lambda: told() == ["ds=2021-03-19", "ds=2021-03-19", "ds=2021-03-20"], LIMIT)
    assert sorted(row["x"] for row in stack.airflow.rows(WHOLE_NAME)) == [1, 2, 3]
    stack.pause(WHOLE_DAG)
    assert stack.runs(WHOLE_DAG, state="failed") == []
