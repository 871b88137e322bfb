"""Readers of Hive tables while they are committed: every observation is one committed version, whole and in order."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.benches.hive import hive_bench, uri_of
from tests.support.benches.staging import Bench
from tests.support.faults.report import FaultReport
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark, running_plain_spark

pytestmark = pytest.mark.postgres

Observation = frozenset[tuple[str, str]]
CHANGES = 3
"""So often, and more, a reader must have seen another version than before, or it proves nothing."""
"""Partitions with rows, each with the token of the commit that wrote them; an unpartitioned table has one, without a name."""


# On PostgreSQL, as metastores are run: Derby answers a read of many partitions by many statements, each of its own moment.
@pytest.fixture
def hive(hive_metastore_on_postgres: HiveMetastore, tmp_path: Path) -> Iterator[Bench]:
    with closing(Metastore(hive_metastore_on_postgres.uri)) as metastore:
        yield hive_bench(metastore, tmp_path)


def observe(metastore: Metastore, path: ObjectPath) -> Observation:
    """What an engine sees that asks for the table now."""
    table = metastore.ask("get_table", path.database, path.name)
    if not table.partitionKeys:
        return frozenset({("", _token(table.sd.location))})
    found = metastore.ask("get_partitions", path.database, path.name, -1)
    return frozenset((one.values[0], _token(one.sd.location)) for one in found if not one.sd.location.endswith("/empty"))


def _token(location: str) -> str:
    return location.partition("/_versions/")[2].partition("/")[0]


def poll(uri: str, path: ObjectPath, answers: Connection, stop: Connection) -> None:
    """A reader process: looks until it is told to stop, then says what it saw, in order and without repetitions."""
    seen: list[Observation] = []
    polls = 0
    with closing(Metastore(uri)) as metastore:
        while not stop.poll():
            observation = observe(metastore, path)
            polls += 1
            if not seen or seen[-1] != observation:
                seen.append(observation)
            if polls % 10 == 1:
                answers.send((polls, len(seen)))
        answers.send((polls, seen))


@dataclass
class Watch:
    """Reader processes on one table."""

    bench: Bench
    readers: int = 2
    versions: list[Observation] = field(default_factory=list)

    def run(self, commit: Callable[[int], None], polls: int, commits: int) -> tuple[int, list[list[Observation]]]:
        """Commit until there were so many polls and commits, and a reader saw changes; the first commit was made before."""
        context = multiprocessing.get_context("fork")
        self._record()
        started = []
        for _ in range(self.readers):
            answers, answering = context.Pipe(False)
            stop, stopping = context.Pipe(False)
            process = context.Process(target=poll, args=(uri_of(self.bench), self.bench.path, answering, stop))
            process.start()
            started.append((process, answers, stopping))
        polled, changes, number = [0] * self.readers, [0] * self.readers, 0
        deadline = time.monotonic() + 1_200
        while sum(polled) < polls or number < commits or max(changes) <= CHANGES:
            assert time.monotonic() < deadline, f"{polled} polls, {changes} changes seen, {number} commits"
            number += 1
            commit(number)
            self._record()
            for reader, (process, answers, _) in enumerate(started):
                assert process.is_alive(), "a reader died"
                while answers.poll():
                    polled[reader], changes[reader] = answers.recv()
        seen, total = [], 0
        for process, answers, stopping in started:
            stopping.send(True)
            while not isinstance((last := answers.recv())[1], list):
                continue
            process.join()
            total += last[0]
            seen.append(last[1])
        return total, seen

    def _record(self) -> None:
        with closing(Metastore(uri_of(self.bench))) as metastore:
            self.versions.append(observe(metastore, self.bench.path))

    def wrong(self, seen: list[Observation]) -> list[Observation]:
        """Observations of one reader that are no version, or come after a newer one."""
        position, wrong = 0, []
        for observation in seen:
            later = next((at for at in range(position, len(self.versions)) if self.versions[at] == observation), None)
            if later is None:
                wrong.append(observation)
            else:
                position = later
        return wrong


def judge(watch: Watch, polls: int, seen: list[list[Observation]], fault_report: FaultReport) -> None:
    wrong = [observation for one in seen for observation in watch.wrong(one)]
    fault_report.polled(polls, len(wrong))
    assert not wrong, f"{len(wrong)} of {polls}: {sorted(wrong[0])[:10]}"
    assert max(map(len, seen)) > CHANGES, "readers saw the table change"


@pytest.mark.large
@pytest.mark.parametrize(
    ("polls", "commits"), [(1_000, 6), pytest.param(20_000, 100, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_readers_of_an_unpartitioned_table(hive: Bench, polls: int, commits: int, fault_report: FaultReport) -> None:
    hive.partition_keys = ()
    hive.refresh({"0": [0]})
    watch = Watch(hive)
    judge(watch, *watch.run(lambda number: ignore(hive.refresh({str(number): [number]})), polls, commits), fault_report)


@pytest.mark.large
@pytest.mark.parametrize(
    ("count", "polls", "commits"),
    [
        (1, 500, 6),
        (200, 100, 4),
        pytest.param(1, 10_000, 100, marks=pytest.mark.long),
        pytest.param(200, 2_000, 40, marks=pytest.mark.long),
        pytest.param(2_000, 60, 4, marks=pytest.mark.long),
    ],
)
def test_readers_of_partitions(hive: Bench, count: int, polls: int, commits: int, fault_report: FaultReport) -> None:
    """Every commit replaces all partitions but a tenth, which turn is theirs, comes and goes."""
    days = [str(day) for day in range(count)]
    hive.refresh(rows_of(0, days), *days)
    watch = Watch(hive)
    judge(watch, *watch.run(lambda number: ignore(hive.refresh(rows_of(number, days), *days)), polls, commits), fault_report)


def rows_of(number: int, days: list[str]) -> dict[str, list[int]]:
    gone = {day for day in days if len(days) > 1 and (int(day) + number) % 10 == 0}
    return {day: [number] for day in days if day not in gone}


@pytest.mark.large
@pytest.mark.spark
def test_a_plain_spark_that_stays_open(hive: Bench, hive_metastore_on_postgres: HiveMetastore, fault_report: FaultReport) -> None:
    """It has nothing of ours; each of its queries sees one version, and never an older one than the query before."""
    days = [str(day) for day in range(12)]
    with running_plain_spark(hive_metastore_on_postgres.uri, hive_metastore_on_postgres.warehouse) as spark:
        for name, keys in (("parted", ("ds",)), ("whole", ())):
            table = Bench(hive.store, ObjectPath(hive.path.database, name), keys, hive_format=hive.hive_format)
            planned, failed = days if keys else [], list[str]()
            table.refresh(rows_of(0, days), *planned)
            seen = [spark_rows(spark, table, failed)]
            with ThreadPoolExecutor(1) as executor:
                for number in range(1, 9):
                    commit = executor.submit(table.refresh, rows_of(number, days), *planned)
                    while not commit.done():
                        seen.append(spark_rows(spark, table, failed))
                    commit.result()
            seen.append(spark_rows(spark, table, failed))
            versions = [rows_of(number, days) for number in range(9)]
            wrong = [rows for rows in seen if rows not in versions]
            fault_report.polled(len(seen), len(wrong))
            fault_report.note(f"an open Spark at a {name} Hive table: {len(seen)} queries, {len(failed)} had to be repeated")
            assert not wrong, (name, wrong[0])
            order = [versions.index(rows) for rows in seen]
            assert order == sorted(order)
            assert (order[0], order[-1]) == (0, 8)
            assert len(set(order)) > 4, "the session saw the table change"


def spark_rows(spark: PlainSpark, table: Bench, failed: list[str]) -> dict[str, list[int]]:
    """All rows; asked again when the query failed because partitions were dropped while the metastore read them."""
    while True:
        try:
            rows = spark.sql(f"SELECT ds, n FROM {table.path.database}.{table.path.name}")
        except AssertionError as error:
            if "Table.createSpec" not in str(error):
                raise
            failed.append(str(error))
            assert len(failed) < 20, "only now and then"
            continue
        return {row["ds"]: [row["n"]] for row in rows}


def ignore(_: object) -> None:
    """A commit is made for what readers see of it."""
