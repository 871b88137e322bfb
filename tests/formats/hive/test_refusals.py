"""A metastore that refuses a commit: it is said in its words, and soon; nobody else is blamed, and the next commit works."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hive_metastore.ttypes import InvalidObjectException, MetaException

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.exceptions import CommitRejectedError, StageRejectedError
from tests.support.benches.hive import uri_of
from tests.support.benches.staging import Bench

ALTER_TABLE = "alter_table_with_environment_context"
ALTER_PARTITIONS = "alter_partitions_with_environment_context"


class RefusingMetastore(Metastore):
    """Connections over which some calls of one method are refused."""

    def __init__(self, uri: str, method: str, error: Exception, times: int) -> None:
        super().__init__(uri)
        self._method, self._error, self.left = method, error, times

    def call(self, method: str, *arguments: Any) -> Any:
        if method == self._method and self.left:
            self.left -= 1
            raise self._error
        return super().call(method, *arguments)


REFUSED = [
    (("ds",), "add_partitions_req", MetaException("the disk is full"), 1_000),
    (("ds",), "add_partitions_req", InvalidObjectException("no such value"), 1_000),
    (("ds",), ALTER_PARTITIONS, MetaException("the disk is full"), 1_000),
    (("ds",), ALTER_TABLE, MetaException("the disk is full"), 2),
    ((), ALTER_TABLE, MetaException("the disk is full"), 2),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("keys", "method", "error", "times"), REFUSED)
def test_a_refusal_is_said_in_the_words_of_the_metastore(
    hive: Bench, keys: tuple[str, ...], method: str, error: MetaException, times: int
) -> None:
    hive.partition_keys = keys
    hive.refresh({"1": [1]})
    with closing(RefusingMetastore(uri_of(hive), method, error, times)) as refusing:
        other = Bench(MetastoreStore("lake", refusing), hive.path, keys, hive_format="parquet", is_registered=True)
        staged = other.stage("refused")
        with pytest.raises(CommitRejectedError, match=f"refuses to change .*: {error.message}"):
            other.commit(staged, other.write(staged, {"1": [10], "2": [20]}))
        assert refusing.left in (0, 998)
    assert hive.rows() == {"1": [1]}
    assert hive.refresh({"1": [3]}).number == 2
    assert hive.rows() == {"1": [3]}


@pytest.mark.sampled
@pytest.mark.parametrize(("keys", "method", "error", "times"), REFUSED)
def test_one_refusal_is_tried_again(hive: Bench, keys: tuple[str, ...], method: str, error: MetaException, times: int) -> None:  # noqa: ARG001
    hive.partition_keys = keys
    hive.refresh({"1": [1]})
    with closing(RefusingMetastore(uri_of(hive), method, error, 1)) as refusing:
        other = Bench(MetastoreStore("lake", refusing), hive.path, keys, hive_format="parquet", is_registered=True)
        assert other.refresh({"2": [10]}).number == 2
    assert hive.rows() == {"2": [10]}


def test_partitions_that_differ_in_blanks_at_the_end(hive: Bench) -> None:
    with pytest.raises(StageRejectedError, match=r"Partitions ds=a and ds=a%20 of .* differ only in blanks at the end"):
        hive.refresh({"a": [1], "b": [2], "a ": [3]})
    hive.refresh({"a": [1], " b": [2], "c ": [3]})
    with pytest.raises(StageRejectedError, match=r"Partitions ds=a and ds=a%20 of .* differ only in blanks at the end"):
        hive.refresh({"a ": [3]})
    assert hive.rows() == {" b": [2], "a": [1], "c ": [3]}
    hive.refresh({"c ": [4]}, "c ")
    assert hive.rows() == {" b": [2], "a": [1], "c ": [4]}
