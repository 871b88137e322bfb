"""The wire to the metastore is cut at any call from the swap of a commit on: green follows from the swap alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from thrift.transport.TTransport import TBufferedTransport

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitUnknownError
from tests.support.benches.hive import hive_bench, uri_of
from tests.support.benches.staging import Bench
from tests.support.faults.report import FaultReport
from tests.support.metastore import HiveMetastore

OLD, NEW = {"1": [1], "2": [2]}, {"1": [10], "3": [30]}
DAYS = ("1", "2", "3")
WITH_AND_WITHOUT = pytest.mark.parametrize("keys", [("ds",), ()], ids=["partitioned", "whole"])
SWAPS = {("ds",): "alter_partitions_with_environment_context", (): "alter_table_with_environment_context"}
CALLS_AFTER = {("ds",): 3, (): 0}
"""Calls of a commit after its swap: by two it is recorded in the table, by one what it emptied is dropped."""


class Frayed(Metastore):
    """Connections to a metastore whose wire is cut at one of the calls from a swap on, which is number 0.

    :param at: that call.
    :param is_sent: whether the metastore still gets it, so that only its answer is lost.
    :param for_good: whether no connection can be made from then on.
    """

    def __init__(self, uri: str, swap: str, at: int, *, is_sent: bool = False, for_good: bool = False) -> None:
        super().__init__(uri)
        self.calls: list[str] = []
        self._swap = swap
        self._at = at
        self._is_sent = is_sent
        self._for_good = for_good

    def call(self, method: str, *arguments: Any) -> Any:
        if self.calls or method == self._swap:
            self.calls.append(method)
        if not self.calls or len(self.calls) - 1 != self._at:
            return super().call(method, *arguments)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # nobody listens there
            if self._for_good:
                self._addresses = [closed.getsockname()]
        with _cut(self._is_sent):
            return super().call(method, *arguments)


@contextmanager
def _cut(is_sent: bool) -> Iterator[None]:
    """Cut the wire of whatever is sent meanwhile."""
    flush = TBufferedTransport.flush

    def flush_and_cut(transport: TBufferedTransport) -> None:
        wire = transport._TBufferedTransport__trans.handle
        if is_sent:
            flush(transport)
            wire.recv(65536)  # the metastore has done it; what it says of that is lost
        wire.shutdown(socket.SHUT_RDWR)
        if not is_sent:
            flush(transport)

    TBufferedTransport.flush = flush_and_cut
    try:
        yield
    finally:
        TBufferedTransport.flush = flush


@pytest.fixture
def keys() -> tuple[str, ...]:
    """The partition keys of the table, where nobody says otherwise."""
    return ("ds",)


@pytest.fixture
def hive(hive_metastore: HiveMetastore, tmp_path: Path, keys: tuple[str, ...]) -> Iterator[Bench]:
    """A table with a version."""
    with closing(Metastore(hive_metastore.uri)) as metastore:
        bench = hive_bench(metastore, tmp_path)
        bench.partition_keys = keys
        bench.refresh(OLD)
        yield bench


def commit(bench: Bench, at: int, **how: bool) -> tuple[Version, list[str]]:
    """Commit over a wire that is cut; the calls from the swap on."""
    days = DAYS if bench.partition_keys else ()
    staged = bench.stage("t2", *days)
    result = bench.write(staged, NEW)
    with closing(Frayed(uri_of(bench), SWAPS[bench.partition_keys], at, **how)) as frayed:
        other = Bench(MetastoreStore("lake", frayed), bench.path, bench.partition_keys, hive_format="parquet", is_registered=True)
        return other.commit(other.stage("t2", *days), result), frayed.calls


def check_committed(bench: Bench, version: Version) -> None:
    """The version is there, for readers and for the next refresh, and once the maintenance ran nothing is left beside it."""
    assert (version.number, version.token) == (2, "t2")
    assert bench.rows() == NEW
    assert bench.table.current() == version
    assert bench.stage("t2").outcome() == version


def partitions(bench: Bench) -> list[str]:
    with closing(Metastore(uri_of(bench))) as metastore:
        return sorted(metastore.call("get_partition_names", bench.path.database, bench.path.name, -1))


@WITH_AND_WITHOUT
def test_a_commit_makes_few_calls_after_its_swap(hive: Bench) -> None:
    version, calls = commit(hive, at=-1)
    assert len(calls) - 1 == CALLS_AFTER[hive.partition_keys], calls
    check_committed(hive, version)


@pytest.mark.sampled
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, CALLS_AFTER["ds",] + 1))
def test_a_wire_that_is_cut_after_the_swap(
    hive: Bench, tmp_path: Path, fault_report: FaultReport, call: int, is_sent: bool, for_good: bool
) -> None:
    version, _ = commit(hive, call, is_sent=is_sent, for_good=for_good)
    fault_report.injected("wire to the metastore cut after a Hive commit")
    check_committed(hive, version)
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    hive.table.delete_orphans(datetime.now(UTC) + timedelta(days=1), list)
    assert partitions(hive) == ["ds=1", "ds=3"]
    assert hive.rows() == NEW


@WITH_AND_WITHOUT
def test_an_answer_of_the_swap_that_is_lost_is_looked_up(hive: Bench, fault_report: FaultReport) -> None:
    version, calls = commit(hive, at=0, is_sent=True)
    fault_report.injected("answer of a Hive swap lost")
    check_committed(hive, version)
    assert calls.count(SWAPS[hive.partition_keys]) == 1


@WITH_AND_WITHOUT
def test_a_swap_that_did_not_arrive_is_made_again(hive: Bench, fault_report: FaultReport) -> None:
    version, _ = commit(hive, at=0)
    fault_report.injected("Hive swap lost")
    check_committed(hive, version)
    if hive.partition_keys:
        assert partitions(hive) == ["ds=1", "ds=3"]


@WITH_AND_WITHOUT
@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_a_metastore_that_stays_away_leaves_it_unknown(hive: Bench, is_sent: bool) -> None:
    with pytest.raises(CommitUnknownError) as error:
        commit(hive, at=0, is_sent=is_sent, for_good=True)
    assert isinstance(error.value.__cause__, CatalogUnavailableError)
    assert (hive.stage("t2").outcome() is not None) == is_sent
