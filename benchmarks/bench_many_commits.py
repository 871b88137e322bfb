"""A table that is committed to every ten seconds: what a commit and a reader cost after 2,000 commits, and after 20.

Once with batches of a stream, each of which adds a file; once with refreshes, each of which replaces one of 24 partitions. In
between happens what happens by itself: refreshes forget versions, a stream compacts its small files, and every hour the
maintenance does both. The time is set forward by ten seconds a commit; everything else is real.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from measure import compare, interleave

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, StreamPosition
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.services.continuous.loop import LIMITS
from airflow_dynamic_tables.services.tables.rollback import ENOUGH

MANY = 2000
FEW = 20
ROUNDS = 21
CADENCE = timedelta(seconds=10)
MAINTENANCE = timedelta(hours=1) // CADENCE

HOURS = 24
COLUMNS = (Column("hour", "string"), Column("n", "bigint"))


class Growing:
    """A table that grows commit by commit."""

    def __init__(self, catalog: SqlCatalog, name: str, is_stream: bool) -> None:
        self.catalog = catalog
        self.path = ObjectPath("bench", name)
        self.is_stream = is_stream
        self.commits = 0

    @property
    def table(self) -> IcebergTable:
        """As a process finds it that just began."""
        return IcebergTable(IcebergStore("bench", self.catalog.iceberg, nullcontext), self.path)

    def grow(self, commits: int) -> None:
        """Commit as often, with all that happens by itself."""
        for _ in range(commits):
            self.commit()
            self.tidy()

    def commit(self) -> float:
        """Seconds of CPU of one commit."""
        number = self.commits
        self.commits += 1
        token = str(uuid4())
        staged = self.table.stage(token)
        hour = "all" if self.is_stream else f"{number % HOURS:02d}"
        file = Path(staged.begin().removeprefix("file://"), "part-0.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"hour": [hour], "n": [number]}), file)
        files = (StagedFile(f"file://{file}", file.stat().st_size),)
        request = CommitRequest(
            RefreshResult(token, "bench", 1, files, COLUMNS, ({"hour": hour},)),
            None,
            partition_keys=("hour",),
            partitions=PartitionSet.of([{"hour": hour}]),
            position=StreamPosition("s", number, "") if self.is_stream else None,
            follows=StreamPosition("s", number - 1, "") if self.is_stream and number else None,
        )
        with self._at(number):
            return cpu(lambda: staged.commit(request, lambda: None))

    def tidy(self) -> None:
        """What the refresh does after its commit, and the maintenance when it is due."""
        is_due = self.commits % MAINTENANCE == 0
        with self._at(self.commits):
            now = datetime.fromtimestamp(time.time(), UTC)
            self.table.expire(DEFAULT_RETENTION, now, tuple, 1 if is_due else ENOUGH)
            limits = DEFAULT_LIMITS if is_due else LIMITS
            for due in self.table.scattered(limits, is_cheap=not is_due):
                self.table.stage(f"compaction-{uuid4()}").compact(due, limits, lambda: None)

    def read(self) -> float:
        """Seconds of CPU to find all files of the table, and to read their rows."""

        def rows() -> int:
            return sum(pq.read_table(file.removeprefix("file://")).num_rows for file in self.table.read().files)

        return cpu(rows)

    def _at(self, number: int) -> AbstractContextManager[object]:
        """The time of that commit, for everybody."""
        return mock.patch("time.time", return_value=began + number * CADENCE.total_seconds())


began = time.time()


def cpu(action: Callable[[], object]) -> float:
    """Seconds of CPU that something takes in this process."""
    started = time.process_time()
    action()
    return time.process_time() - started


def main(many: int) -> None:
    """Grow one table by many commits and one by few, and commit to both in turn."""
    for is_stream, kind in ((True, "batches of a stream"), (False, "refreshes of one partition")):
        with tempfile.TemporaryDirectory() as folder:
            catalog = SqlCatalog("lake", Database(f"sqlite:///{folder}/state.db"), f"file://{folder}/warehouse")
            catalog.open()
            large = Growing(catalog, "large", is_stream)
            small = Growing(catalog, "small", is_stream)
            large.grow(many - 1)
            small.grow(FEW - 1)
            print(f"after {many - 1} {kind}: {sizes(large)}\nafter {FEW - 1}: {sizes(small)}")
            reads = interleave(ROUNDS, ours=fresh(large, large.read), rival=fresh(small, small.read))
            commits = interleave(ROUNDS, ours=fresh(large, large.commit), rival=fresh(small, small.commit))
            for what, measured in (("reading", reads), ("a commit", commits)):
                compare(f"CPU of {what} after {many} {kind}", measured["ours"], measured["rival"], f"after {FEW}", target=1.5)
            catalog.close()


def fresh(table: Growing, action: Callable[[], float]) -> Callable[[], float]:
    """The same by a process that does not know the table yet."""

    def measured() -> float:
        table.catalog.close()
        table.catalog.open()
        return action()

    return measured


def sizes(growing: Growing) -> str:
    """What a table is made of."""
    table = growing.catalog.iceberg.load_table(("bench", growing.path.name))
    snapshot = table.current_snapshot()
    manifests = len(snapshot.manifests(table.io)) if snapshot else 0
    metadata = Path(table.metadata_location.removeprefix("file://")).stat().st_size
    files = len(growing.table.read().files)
    return f"{files} files, {manifests} manifests, {len(table.snapshots())} snapshots, {metadata / 1000:.0f} kB of metadata"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MANY)
