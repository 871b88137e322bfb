"""Kill -9 of the worker of a stream and of its driver: every row is in the table once, as the batch query has it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import closing, suppress
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.maintenance import sweeping
from tests.support.faults.report import FaultReport
from tests.support.faults.stream_job import run_stream
from tests.support.faults.victims import KILL, Child, start, victim, when_leases_are_over
from tests.support.streams import DEADLINE, WINDOWS, StreamSite, rows, table_of, turn_until

POINTS = (
    *("asked", "opened", "planned", "commit", "publishing", "swap", "swapped", "landed", "published", "completed", "answered"),
)
OF_JOB = ("noted", "wrote", "told")
WATERMARK = "watermark: {column: ts, delay: 10 seconds}"
SPARK = SparkSettings(
    conf={
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> StreamSite:
    """A table of format ``iceberg``, or of another."""
    state = f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    return StreamSite(tmp_path, state, format=getattr(request, "param", "iceberg"))


@pytest.fixture
def windowed(site: StreamSite) -> StreamSite:
    return replace(site, query=WINDOWS, watermark=WATERMARK)


def keep_fresh(site: StreamSite, wanted: int) -> None:
    """Turn, as the loop does, until the table has so many rows."""
    with site.open() as workspace:
        runner = SparkSubmitRunner(SPARK, "local[1]")
        with closing(site.streaming(workspace, lambda plan: runner.run(plan, {}), runner.stop)) as stream:
            while len(rows(workspace)) < wanted:
                with suppress(JobFailedError, ConflictError):
                    turn_until(stream, lambda: len(rows(workspace)) >= wanted)


def take_in(site: StreamSite, wanted: int) -> None:
    """As :func:`keep_fresh`, without Spark."""
    with site.open() as workspace, closing(site.streaming(workspace, run_stream, lambda: None)) as stream:
        turn_until(stream, lambda: len(rows(workspace)) >= wanted)


def kill_driver() -> None:
    """Kill spark-submit and all that it started; the worker lives."""
    for child in psutil.Process().children():
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def kill(report: FaultReport, point: str, *target: Any) -> None:
    child = victim(point, KILL, *target)
    child.process.join(DEADLINE)
    assert child.process.exitcode == -signal.SIGKILL, child.answer()
    report.injected("kill -9")


def minute(site: StreamSite, number: int) -> None:
    """All events of a minute; with those of the minute before, its window is closed."""
    site.arrive(str(number), *((10 * number + second, f"00:{number:02}:{second:02}") for second in range(0, 60, 10)))


def windows(minutes: int) -> list[tuple[object, ...]]:
    """What the query returns of so many minutes."""
    return [(f"00:{number:02}", 6, sum(10 * number + second for second in range(0, 60, 10))) for number in range(minutes)]


def check(site: StreamSite, expected: list[tuple[object, ...]]) -> None:
    """Every row is there once, every version is in the ledger, and nothing is left over."""
    with site.open(when_leases_are_over) as workspace:
        landed = {version.token for version in table_of(workspace).versions()}  # the sweep forgets some of many
        sweeping.sweep(workspace)
        assert rows(workspace) == expected
        states = {stage.token: stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))}
        assert states == {token: StageState.COMMITTED if token in landed else StageState.ABORTED for token in states}
        assert landed <= states.keys()


def struck(report: FaultReport, point: str, of: str, site: StreamSite, wanted: int) -> None:
    """Keep the table fresh while worker or driver dies at a point."""
    child: Child = victim(point, KILL if of == "worker" else kill_driver, keep_fresh, site, wanted)
    if of == "worker":
        child.process.join(DEADLINE)
        assert child.process.exitcode == -signal.SIGKILL, child.answer()
    else:
        assert child.answer() == (None, None)
    report.injected(f"kill -9 of the {of} of a stream at {point}")


def _matrix() -> list[object]:
    """Every point at the first batch and at a later one; CI has those before and after which most changes."""
    short = {("planned", True), ("landed", False), ("published", True), ("answered", False), ("told", True)}
    points = product(("begin", *POINTS, *OF_JOB), (True, False))
    return [pytest.param(*point, marks=() if point in short else pytest.mark.long) for point in points]


@pytest.mark.sampled
@pytest.mark.parametrize(("point", "first"), _matrix())
def test_killed_at(site: StreamSite, fault_report: FaultReport, point: str, first: bool) -> None:
    killed_at(site, fault_report, point, first)


@pytest.mark.parametrize("site", ["delta"], indirect=True)
@pytest.mark.parametrize(
    ("point", "first"), [pytest.param("publishing", True, marks=pytest.mark.long), ("publishing", False), ("published", False)]
)
def test_a_stream_into_a_delta_table_killed_at(site: StreamSite, fault_report: FaultReport, point: str, first: bool) -> None:
    killed_at(site, fault_report, point, first)


def killed_at(site: StreamSite, fault_report: FaultReport, point: str, first: bool) -> None:
    """Worker and job die together, at the first batch of a stream or at a later one; the next ones go on."""
    site.arrive("1", (1, "00:00:01"), (2, "00:00:02"))
    if not first:
        assert start(take_in, site, 2).answer() == (None, None)
        site.arrive("2", (3, "00:00:03"))
    kill(fault_report, point, take_in, site, 3)
    site.arrive("3", (4, "00:00:04"))
    expected = [1, 2, 4] if first else [1, 2, 3, 4]
    assert start(take_in, site, len(expected)).answer() == (None, None)
    check(site, [(number,) for number in expected])


@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.long
@pytest.mark.parametrize("site", ["iceberg", "delta"], indirect=True)
def test_killed_after_the_commit_and_while_the_next_batch_is_written(windowed: StreamSite, fault_report: FaultReport) -> None:
    minute(windowed, 0)
    minute(windowed, 1)
    struck(fault_report, "published", "worker", windowed, 1)
    minute(windowed, 2)
    struck(fault_report, "planned", "driver", windowed, 2)
    check(windowed, windows(2))


@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.long
def test_twenty_deaths_in_a_row(windowed: StreamSite, fault_report: FaultReport) -> None:
    minute(windowed, 0)
    deaths = zip(cycle(POINTS), cycle(("worker", "driver", "driver", "worker", "worker")), range(1, 21), strict=False)
    for point, of, number in deaths:
        minute(windowed, number)
        struck(fault_report, point, of, windowed, number)
    assert start(keep_fresh, windowed, 20).answer() == (None, None)
    check(windowed, windows(20))


@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.long
def test_killed_between_a_feed_and_its_commit(site: StreamSite, fault_report: FaultReport) -> None:
    """Of a source by whole partitions: its rows are copied for Spark, and nobody has committed them."""
    events = site.home / "hours"
    source = f"""
- name: raw.events
  format: json
  path: {events}
  schema: id bigint
  partitioned_by: [hour]
  watermark: source
  options: {{partition.time-extractor.timestamp-pattern: '2024-01-01 $hour:00:00', partition.time-interval: 1 hour}}"""
    whole = replace(site, source=source, query="SELECT id, hour FROM raw.events")

    def fill(hour: int) -> None:
        folder = events / f"hour={hour}"
        folder.mkdir(parents=True)
        for number in (2 * hour, 2 * hour + 1):
            (folder / f"{number}.json").write_text(json.dumps({"id": number}))
        (folder / "_SUCCESS").touch()

    for hour, of in ((10, "driver"), (11, "worker"), (12, "driver")):
        fill(hour)
        struck(fault_report, "planned", of, whole, 2 * (hour - 9))
    assert start(keep_fresh, whole, 6).answer() == (None, None)
    check(whole, [(number, str(number // 2)) for number in range(20, 26)])
