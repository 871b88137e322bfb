"""The commit of a Delta table alone: 200 partitions replaced by 200 new files, on a local disk.

The rival is what one would write by hand with delta-rs: ``create_write_transaction`` with the new files in mode overwrite, which
knows neither version nor plan, checks no file, and has what it says of them from whoever calls it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from measure import check, compare, interleave

from airflow_dynamic_tables.clients.stores import EntryStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.delta.table import DeltaLakeTable

FILES = 200
ROUNDS = 7
MANY = 2000
"""Versions of a table before whose next commit nobody should wait longer."""
DAYS = tuple(f"day-{number:04d}" for number in range(FILES))
COLUMNS = (Column("ds", "string"), Column("country", "string"), Column("revenue", "double"))
SCHEMA = pa.schema([("ds", pa.string()), ("country", pa.string()), ("revenue", pa.float64())])


def main() -> None:
    """Fill two tables, then replace all of them in turn; then the same with two thousand versions behind it."""
    with tempfile.TemporaryDirectory() as folder:
        ours, rival = (f"file://{folder}/{name}" for name in ("ours", "rival"))
        commit_ours(ours)
        commit_rival(rival)
        measured = interleave(ROUNDS, ours=lambda: commit_ours(ours), rival=lambda: commit_rival(rival))
        what = f"Delta commit of {FILES} files"
        compare(what, measured["ours"], measured["rival"], "delta-rs by hand")
        check(what, measured["ours"], "s", 1)

        many, few = (f"file://{folder}/{name}" for name in ("many", "few"))
        for location, count in ((many, MANY), (few, 20)):
            for _ in range(count):
                commit_ours(location, DAYS[:1])
        measured = interleave(ROUNDS, ours=lambda: commit_ours(many, DAYS[:1]), rival=lambda: commit_ours(few, DAYS[:1]))
        what = f"Delta commit after {MANY} others"
        compare(what, measured["ours"], measured["rival"], "after 20")
        check(what, measured["ours"], "s", 1)


def commit_ours(location: str, days: tuple[str, ...] = DAYS) -> float:
    """Seconds that our commit of a stage takes."""
    token = str(uuid4())
    staged = DeltaLakeTable(EntryStore("bench", lambda *_: location), ObjectPath("bench", "t")).stage(token)
    files = tuple(StagedFile(uri, size) for uri, size in write_files(staged.begin() + "/data", days))
    result = RefreshResult(token, "bench", len(days), files, COLUMNS, tuple({"ds": day} for day in days))
    request = CommitRequest(result, None, {}, ("ds",))
    started = time.perf_counter()
    staged.commit(request, lambda: None)
    return time.perf_counter() - started


def commit_rival(location: str) -> float:
    """Seconds that a transaction of delta-rs takes with as many files."""
    stage = uuid4().hex
    files = write_files(f"{location}/{stage}", DAYS)
    started = time.perf_counter()
    actions = [
        AddAction(uri[len(location) + 1 :], size, {"ds": day}, 0, True, '{"numRecords":1}')
        for day, (uri, size) in zip(DAYS, files, strict=True)
    ]
    if Path(location.removeprefix("file://"), "_delta_log").exists():
        table = DeltaTable(location)
        table.create_write_transaction([*actions], "overwrite", table.schema(), partition_by=["ds"])
    else:
        create_table_with_add_actions(location, Schema.from_arrow(SCHEMA), actions, "error", ["ds"])
    return time.perf_counter() - started


def write_files(data: str, days: tuple[str, ...]) -> list[tuple[str, int]]:
    """One file of one row for every day, as the job writes them; their URIs and sizes."""
    rows = pa.table({"country": ["DE"], "revenue": [1.0]})
    written = []
    for day in days:
        path = Path(data.removeprefix("file://"), f"ds={day}", "part-0.parquet")
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path)
        written.append((f"file://{path}", path.stat().st_size))
    return written


if __name__ == "__main__":
    main()
