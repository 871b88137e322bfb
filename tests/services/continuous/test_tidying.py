"""A table that grows batch by batch is compacted between two turns, and a turn never fails for it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import StreamPosition
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.services.continuous import loop as tidying
from airflow_dynamic_tables.services.continuous.base import TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.loop import LIMITS, Tidying
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.benches.versions import NUMBERS, VersionBench


class Batches:
    """Each turn adds a row in a file of its own, or has nothing to do."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.batch = -1

    def turn(self, number: int) -> TurnOutcome:
        if number == 0:
            return TurnOutcome(reason="nothing new")
        token = str(uuid4())
        staged = self.workspace.existing_table(NUMBERS).stage(token)
        follows = StreamPosition("s", self.batch, "") if self.batch >= 0 else None
        self.batch += 1
        file = Path(staged.begin().removeprefix("file://"), "part-0.parquet")
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"x": pa.array([self.batch], pa.int64())}), file)
        written = StagedFile(f"file://{file}", file.stat().st_size)
        result = RefreshResult(token, "by hand", 1, (written,), (Column("x", "bigint"),))
        request = CommitRequest(result, None, position=StreamPosition("s", self.batch, ""), follows=follows)
        return TurnOutcome((staged.commit(request, lambda: None),))

    def close(self) -> None:
        self.batch = -1


def strategy(bench: VersionBench) -> Tidying:
    table = bench.definitions.tables[NUMBERS]
    work = Work(bench.workspace, table, {}, (), uuid4(), "me", lambda _: None, lambda: None)
    return Tidying(work, Batches(bench.workspace))


def files(bench: VersionBench) -> int:
    return len(bench.workspace.existing_table(NUMBERS).read().files)


@pytest.mark.large
def test_a_table_that_grows_never_has_many_small_files(version_bench: VersionBench) -> None:
    version_bench.refresh(0)
    batches = strategy(version_bench)
    counts = []
    for number in range(1, 51):
        assert batches.turn(number).versions[0].number == number + 1
        counts.append(files(version_bench))
    assert max(counts) == LIMITS.many
    assert counts.count(1) == 3, "the first batch, and each time that there were too many"
    assert sorted(version_bench.numbers()) == list(range(50))
    assert batches.turn(0) == TurnOutcome(reason="nothing new")
    batches.close()


def test_a_compaction_that_fails_is_left_to_the_maintenance(
    version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    version_bench.refresh(0)
    monkeypatch.setattr(tidying, "compact", fail)
    assert strategy(version_bench).turn(1).versions
    assert "the maintenance does it" in caplog.text
