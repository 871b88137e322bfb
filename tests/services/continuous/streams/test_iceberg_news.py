"""What a stream hears of an Iceberg table: rows that were added, and nothing else without a word."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.formats.registry import added_since
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.pyarrow_job import write_scattered

MERGED = Limits(many=2)


@pytest.fixture
def bench(tmp_path: Path, empty_state: Path) -> Iterator[VersionBench]:
    opened = VersionBench(tmp_path, f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}")
    with closing(opened.workspace):
        yield opened


def look(bench: VersionBench, since: SourceState | None = None) -> Increment:
    stores = bench.workspace.readable(NUMBERS.catalog).stores()
    return added_since(Source(NUMBERS, "iceberg"), stores, "numbers", since)


def loaded(bench: VersionBench) -> Table:
    stores = bench.workspace.readable(NUMBERS.catalog).stores()
    store = next(store for store in stores if isinstance(store, IcebergStore))
    return store.tables.load_table((NUMBERS.database, NUMBERS.table))


def append(bench: VersionBench, number: int) -> None:
    """Add a row as any engine does, in a file that a compaction may take."""
    table = loaded(bench)
    file = Path(urlsplit(table.location()).path) / f"data/{number}.parquet"
    pq.write_table(pa.table({"x": pa.array([number], pa.int64())}), file)
    table.add_files([file.as_uri()])


def numbers(told: Increment) -> list[int]:
    assert told.binding is not None, told
    files = (pq.read_table(urlsplit(file).path) for file in told.binding.files)
    return sorted(number for file in files for number in file["x"].to_pylist())


def state(told: Increment) -> SourceState:
    assert told.binding is not None
    assert told.binding.state is not None
    return told.binding.state


def test_rows_that_were_added_are_new_once(bench: VersionBench) -> None:
    """Also when they were merged with old ones before anybody looked."""
    with pytest.raises(TableNotFoundError):
        look(bench)
    run(bench.workspace, bench.request(), lambda plan: write_scattered(plan, [1, 2, 3]))
    first = look(bench)
    assert numbers(first) == [1, 2, 3]
    assert look(bench, state(first)) == Increment()
    append(bench, 4)
    append(bench, 5)
    assert compact(bench.workspace, NUMBERS, MERGED).files == 5
    append(bench, 6)
    append(bench, 7)
    second = look(bench, state(first))
    assert numbers(second) == [4, 5, 6, 7]
    assert compact(bench.workspace, NUMBERS, MERGED).files == 3
    assert look(bench, state(second)) == Increment()


def _overwrite(bench: VersionBench) -> None:
    bench.refresh(9)


def _delete(bench: VersionBench) -> None:
    loaded(bench).delete("x = 2")


def _append_and_forget(bench: VersionBench) -> None:
    append(bench, 4)
    missed = loaded(bench).current_snapshot()
    append(bench, 5)
    loaded(bench).maintenance.expire_snapshots().by_id(missed.snapshot_id).commit()


def _new_column(bench: VersionBench) -> None:
    with loaded(bench).update_schema() as schema:
        schema.union_by_name(pa.schema([("x", pa.int64()), ("y", pa.string())]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_overwrite, r"snapshot \d+ \(overwrite\) replaced or removed rows of it"),
        (_delete, r"snapshot \d+ \((overwrite|delete)\) replaced or removed rows of it"),
        (_append_and_forget, r"its changes since snapshot \d+ are unknown: later snapshots were expired"),
        (_new_column, "its columns changed"),
    ],
)
def test_what_else_was_done_ends_the_stream(bench: VersionBench, change: Callable[[VersionBench], None], why: str) -> None:
    run(bench.workspace, bench.request(), lambda plan: write_scattered(plan, [1, 2, 3]))
    first = look(bench)
    change(bench)
    told = look(bench, state(first))
    assert told.binding is None
    assert re.search(why, told.ended), told


def test_a_rollback_ends_the_stream(bench: VersionBench) -> None:
    """Of another tool, which moves the table back to an older snapshot; ours is one that replaces."""
    run(bench.workspace, bench.request(), lambda plan: write_scattered(plan, [1, 2, 3]))
    before = loaded(bench).current_snapshot()
    append(bench, 4)
    read = look(bench)
    loaded(bench).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    append(bench, 5)
    assert "or it was rolled back" in look(bench, state(read)).ended
