"""What is told of a commit whose entry has been put into the log, whatever happens then."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_dynamic_tables.clients.delta.log import Action, DeltaLog
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitUnknownError
from tests.support.benches.staging import Bench


def test_a_commit_after_which_the_log_cannot_be_read_is_not_told_as_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1]})

    def unreachable(*_: object) -> bool:
        raise CatalogUnavailableError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "may_be_cut_off", unreachable)
        with pytest.raises(CommitUnknownError, match="is unknown"):
            bench.commit(staged, result)
    assert bench.commit(staged, result).number == 1
    assert bench.rows() == {"1": [1]}


def test_a_table_that_forgets_tokens_at_once_keeps_what_landed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else commits right after the put, so that the table is asked for the token; its entry must not go for that."""
    bench.refresh({"1": [1]})
    forgets = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    DeltaTable(bench.table.folder() or "").alter.set_table_properties(forgets)
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    put = DeltaLog.put

    def put_and_append(log: DeltaLog, version: int, actions: list[Action]) -> bool:
        landed = put(log, version, actions)
        write_deltalake(log.location, pa.table({"ds": ["3"], "n": [3]}), mode="append")
        return landed

    monkeypatch.setattr(DeltaLog, "put", put_and_append)
    assert bench.commit(staged, result).number == 2
    assert bench.rows() == {"1": [2], "3": [3]}
