"""Hive tables while things die: a committer killed at every call, a sweeper beside a zombie, a metastore that stops."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from hive_metastore.ttypes import MetaException
from thrift.transport.TTransport import TBufferedTransport

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, CommitUnknownError
from tests.support.benches.hive import hive_bench, uri_of
from tests.support.benches.staging import Bench
from tests.support.faults.report import FaultReport
from tests.support.metastore import HiveMetastore

OLD, NEW = {"1": [1], "2": [2]}, {"1": [10], "3": [30]}
DAYS = ("1", "2", "3")
CALLS = 10
"""Thrift calls of a commit that fills, adds and empties partitions."""


on_derby = pytest.mark.parametrize("server", ["hive_metastore"], indirect=True)
on_postgres = pytest.mark.parametrize(
    "server", [pytest.param("hive_metastore_on_postgres", marks=pytest.mark.postgres)], indirect=True
)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> HiveMetastore:
    found: HiveMetastore = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def hive(server: HiveMetastore, tmp_path: Path) -> Iterator[Bench]:
    with closing(Metastore(server.uri)) as metastore:
        yield hive_bench(metastore, tmp_path)


class CountingMetastore(Metastore):
    """Says which calls were made."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.calls: list[str] = []

    def call(self, method: str, *arguments: Any) -> Any:
        self.calls.append(method)
        return super().call(method, *arguments)


def beside(bench: Bench, metastore: Metastore) -> Bench:
    """The same table through other connections."""
    return Bench(MetastoreStore("lake", metastore), bench.path, hive_format="parquet", is_registered=bench.is_registered)


def partitions(bench: Bench) -> list[str]:
    with closing(Metastore(uri_of(bench))) as metastore:
        return sorted(metastore.call("get_partition_names", bench.path.database, bench.path.name, -1))


def parameters(bench: Bench) -> dict[str, str]:
    with closing(Metastore(uri_of(bench))) as metastore:
        return dict(metastore.call("get_table", bench.path.database, bench.path.name).parameters)


def settle(bench: Bench, token: str) -> Version | None:
    """What the services do with a stage whose owner is gone."""
    staged = bench.stage(token, *DAYS)
    staged.fence()
    version = staged.outcome()
    if version is None:
        staged.abort()
    return version


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def wait_for_partitions(bench: Bench, days: Iterable[str]) -> None:
    names = sorted(f"ds={day}" for day in days)
    wait_for(lambda: partitions(bench) == names, f"{partitions(bench)} is not {names}")


def die_committing(bench: Bench, call: int, sent: bool) -> bool:
    """Commit in a child that is killed at one of its calls; False when it came through."""
    staged = bench.stage("dead", *DAYS)
    result = bench.write(staged, NEW)
    child = os.fork()
    if child == 0:
        flush, left = TBufferedTransport.flush, call

        def flush_and_die(transport: TBufferedTransport) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not sent:
                os.kill(os.getpid(), signal.SIGKILL)
            flush(transport)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            TBufferedTransport.flush = flush_and_die
            again = beside(bench, Metastore(uri_of(bench)))
            again.commit(again.stage("dead", *DAYS), result)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0


@pytest.mark.sampled
@on_postgres
@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_committer_killed_at_any_call(hive: Bench, call: int, sent: bool, fault_report: FaultReport) -> None:
    hive.refresh(OLD)
    assert die_committing(hive, call, sent)
    fault_report.injected("kill -9 in a Hive commit")
    assert hive.rows() in (OLD, NEW)
    landed = settle(hive, "dead")
    assert hive.rows() == (NEW if landed else OLD)
    assert [version.token for version in hive.table.versions()][1:] == (["dead"] if landed else [])
    # What the metastore was still doing for the dead comes to nothing, and the next sweep clears it.
    names = ["ds=1", "ds=3"] if landed else ["ds=1", "ds=2"]
    wait_for(lambda: settle(hive, "dead") == landed and partitions(hive) == names, f"{partitions(hive)} is not {names}")
    assert hive.refresh({"1": [100]}, *DAYS).number == (3 if landed else 2)
    assert hive.rows() == {"1": [100]}
    assert partitions(hive) == ["ds=1"]
    assert not [key for key in parameters(hive) if "pending" in key]
    stage = Path(hive.stage("dead").begin().removeprefix("file://"))
    assert not (stage / "empty").exists()
    assert stage.exists() == bool(landed)


@on_derby
def test_no_call_for_each_partition(hive: Bench, server: HiveMetastore) -> None:
    counted = []
    for count in (3, 150):
        days = [str(day) for day in range(count)]
        table = hive_bench_with(hive, f"t{count}")
        table.refresh({day: [1] for day in days[: count // 3 * 2]})
        staged = table.stage("counted", *days)
        result = table.write(staged, {day: [2] for day in days[count // 3 :]})
        with closing(CountingMetastore(server.uri)) as metastore:
            again = beside(table, metastore)
            again.commit(again.stage("counted", *days), result)
            counted.append(metastore.calls)
    assert len(counted[0]) == CALLS, counted[0]
    assert counted[1] == counted[0]


def hive_bench_with(bench: Bench, name: str) -> Bench:
    """A bench for another table of the same database."""
    return Bench(bench.store, type(bench.path)(bench.path.database, name), hive_format=bench.hive_format)


@pytest.mark.large
@pytest.mark.parametrize(
    "server",
    [
        pytest.param("hive_metastore", marks=pytest.mark.long),  # Derby makes one wait 20 s for the other, and then chooses
        pytest.param("hive_metastore_on_postgres", marks=pytest.mark.postgres),
    ],
    indirect=True,
)
def test_a_sweeper_beside_a_zombie(hive: Bench, server: HiveMetastore, fault_report: FaultReport) -> None:
    """Whoever is first, both say the same of the commit, and so does the table."""
    hive.refresh(OLD)
    landed = []
    for number, gap in enumerate((-2, *(step / 100 for step in range(-4, 14, 2)), 2)):
        token, before = str(uuid4()), hive.rows()
        rows = {"1": [number], "3": [number]} if "2" in before else {"2": [number]}
        with closing(WaitingMetastore(server.uri, max(0, gap))) as metastore:
            zombie = Zombie(beside(hive, metastore), token, rows)
            zombie.start()
            metastore.ready.wait()
            time.sleep(max(0, -gap))
            zombie.given_up.set()
            version = settle(hive, token)
            zombie.join()
        fault_report.injected("fence beside a Hive commit")
        landed.append(version is not None)
        expected = rows if version else before
        assert (zombie.said, hive.rows()) == (version, expected), (number, before, rows)
        wait_for_partitions(hive, expected)
        assert hive.rows() == expected, (number, before, rows)
    assert landed[0]
    assert not landed[-1]


class WaitingMetastore(Metastore):
    """Says when it is about to alter partitions, and does it some seconds later."""

    def __init__(self, uri: str, seconds: float) -> None:
        super().__init__(uri)
        self.ready, self._seconds = Event(), seconds

    def alter_partitions(self, *arguments: Any) -> None:
        self.ready.set()
        time.sleep(self._seconds)
        super().alter_partitions(*arguments)


class Zombie(Thread):
    """Commits though it may be given up meanwhile."""

    def __init__(self, bench: Bench, token: str, rows: dict[str, list[int]]) -> None:
        super().__init__()
        self._bench, self._staged = bench, bench.stage(token, *DAYS)
        self._result = bench.write(self._staged, rows)
        self.given_up = Event()
        self.said: Version | None = None

    def run(self) -> None:
        with suppress(CommitRejectedError):
            self.said = self._bench.commit(self._staged, self._result, self._before_publish)

    def _before_publish(self) -> None:
        if self.given_up.is_set():
            raise CommitRejectedError("given up")


@pytest.mark.large
def test_a_metastore_that_stops_before_the_commit(
    hive_metastore: HiveMetastore, tmp_path: Path, fault_report: FaultReport
) -> None:
    with closing(Metastore(hive_metastore.uri)) as metastore:
        hive = hive_bench(metastore, tmp_path)
        hive.refresh(OLD)
        staged = hive.stage("t2", *DAYS)
        result = hive.write(staged, NEW)
        try:
            with pytest.raises(CommitUnknownError, match="The outcome of the commit of"):
                hive.commit(staged, result, hive_metastore.stop)
            fault_report.injected("metastore stopped")
            assert Path(result.files[0].path.removeprefix("file://")).exists()
            with pytest.raises(CatalogUnavailableError):
                staged.outcome()
        finally:
            hive_metastore.start()
        assert settle(hive, "t2") is None
        assert hive.rows() == OLD
        assert hive.refresh(NEW, *DAYS).number == 2


class StoppingMetastore(Metastore):
    """Connections to a server that stops as soon as it has altered partitions."""

    server: HiveMetastore

    def alter_partitions(self, *arguments: Any) -> None:
        super().alter_partitions(*arguments)
        self.server.stop()


@pytest.mark.large
def test_a_metastore_stopped_after_the_commit(hive_metastore: HiveMetastore, tmp_path: Path, fault_report: FaultReport) -> None:
    with closing(StoppingMetastore(hive_metastore.uri)) as metastore:
        metastore.server = hive_metastore
        hive = hive_bench(metastore, tmp_path)
        staged = hive.stage("t1", *DAYS)
        try:
            committed = hive.commit(staged, hive.write(staged, NEW))
            fault_report.injected("metastore stopped")
        finally:
            hive_metastore.start()
        assert hive.table.current() == staged.outcome() == committed
        assert hive.rows() == NEW
        assert settle(hive, "t1") == committed
        assert hive.table.versions() == [committed]
        assert partitions(hive) == ["ds=1", "ds=3"]


class LyingMetastore(Metastore):
    """Connections to a server that alters partitions and says that it did not, and then drops none."""

    def alter_partitions(self, *arguments: Any) -> None:
        super().alter_partitions(*arguments)
        raise MetaException("the database is gone")

    def call(self, method: str, *arguments: Any) -> Any:
        if method in ("get_partition", "drop_partition"):
            raise MetaException("the database is gone")
        return super().call(method, *arguments)


@pytest.mark.large
@on_derby
def test_a_metastore_that_refuses_what_it_did(hive: Bench, server: HiveMetastore, fault_report: FaultReport) -> None:
    hive.refresh(OLD)
    with closing(LyingMetastore(server.uri)) as metastore:
        other = beside(hive, metastore)
        staged = other.stage("t2", *DAYS)
        with pytest.raises(CommitUnknownError):
            other.commit(staged, other.write(staged, NEW))
    fault_report.injected("wrong answer of the metastore")
    assert hive.rows() == NEW
    version = settle(hive, "t2")
    assert version is not None
    assert version.number == 2
    assert partitions(hive) == ["ds=1", "ds=3"]
