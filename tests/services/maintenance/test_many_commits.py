"""Many small commits, one every ten seconds: files, manifests, snapshots and metadata stay as few as after twenty.

The times that this takes are measured by ``benchmarks/bench_many_commits.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, StreamPosition
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.services.continuous.loop import LIMITS
from airflow_dynamic_tables.services.tables.rollback import ENOUGH
from tests.support.benches.staging import REVENUE, Bench

CADENCE = timedelta(seconds=10)
AN_HOUR = timedelta(hours=1) // CADENCE
PARTITIONS = 8

COMMITS = [pytest.param(200, id="200"), pytest.param(2_000, id="2000", marks=pytest.mark.long)]

MOST_FILES = LIMITS.many * 3 // 2
"""Files that wait for their compaction: it counts what was added by versions that may have been forgotten meanwhile."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    yield Bench(catalog.stores()[0])
    catalog.close()


class Clock:
    """The time of each commit, for everybody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.time()
        monkeypatch.setattr(time, "time", lambda: self.now)

    def tick(self) -> datetime:
        self.now += CADENCE.total_seconds()
        return datetime.fromtimestamp(self.now, UTC)


def add(bench: Bench, batch: int) -> None:
    staged = bench.stage(str(uuid4()))
    request = bench.request(bench.write(staged, {"all": [batch]}))
    follows = StreamPosition("s", batch - 1, "") if batch else None
    partitions = PartitionSet.of([{"ds": "all"}])
    added = CommitRequest(request.result, None, {}, ("ds",), partitions, position=StreamPosition("s", batch, ""), follows=follows)
    staged.commit(added, lambda: None)


def tidy(bench: Bench, now: datetime, is_due: bool) -> None:
    """What happens by itself after a commit, and in the maintenance of every hour."""
    bench.table.expire(DEFAULT_RETENTION, now, tuple, 1 if is_due else ENOUGH)
    limits = DEFAULT_LIMITS if is_due else LIMITS
    for due in bench.table.scattered(limits, is_cheap=not is_due):
        bench.stage(f"compaction-{uuid4()}").compact(due, limits, lambda: None)


def check_small(bench: Bench, most_files: int) -> None:
    table = tables.load(bench.store, REVENUE)  # type: ignore[arg-type]  # it is an Iceberg store here
    snapshot = table.current_snapshot()
    assert len(bench.table.read().files) <= most_files
    assert len(snapshot.manifests(table.io)) <= most_files + 1
    assert len(table.snapshots()) <= 160
    assert Path(table.metadata_location.removeprefix("file://")).stat().st_size < 200_000


@pytest.mark.large
@pytest.mark.parametrize("commits", COMMITS)
def test_batches_of_a_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    clock = Clock(monkeypatch)
    for number in range(commits):
        now = clock.tick()
        add(bench, number)
        tidy(bench, now, is_due=number % AN_HOUR == AN_HOUR - 1)
        if number % 50 == 49:
            check_small(bench, MOST_FILES)
    current = bench.table.current()
    assert current.number == commits
    assert bench.rows() == {"all": list(range(commits))}
    bench.table.delete_orphans(datetime.now(UTC) + timedelta(days=30), tuple)
    assert bench.rows() == {"all": list(range(commits))}
    for version in bench.table.versions()[::20]:
        assert sorted(row["n"] for row in bench.table.sample(commits, version.number)) == list(range(version.number))


@pytest.mark.parametrize("commits", [pytest.param(80, id="80"), *COMMITS[1:]])
def test_refreshes_of_one_partition(bench: Bench, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    clock = Clock(monkeypatch)
    for number in range(commits):
        now = clock.tick()
        day = str(number % PARTITIONS)
        bench.refresh({day: [number]}, day)
        tidy(bench, now, is_due=number % AN_HOUR == AN_HOUR - 1)
        if number % 50 == 49:
            check_small(bench, 2 * PARTITIONS)
    assert bench.rows() == {str(number % PARTITIONS): [number] for number in range(commits - PARTITIONS, commits)}
