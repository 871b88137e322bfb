"""Rows of data files as ``show`` has them."""

from __future__ import annotations

from datetime import date
from io import BufferedReader, FileIO
from pathlib import Path
from threading import get_ident
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_dynamic_tables.formats.data_files import plain_rows, read_rows

FAR = pa.array([2932897, 0, None], pa.date32())
OLD = pa.array([-(10**10), 0, None], pa.timestamp("s", "UTC"))


def test_dates_that_python_lacks_are_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "far": FAR}), tmp_path / "a.parquet")
    rows = read_rows([(f"file://{tmp_path}/a.parquet", {"ds": "x"})], "parquet", 2)
    assert rows == [{"id": 1, "far": "10000-01-01", "ds": "x"}, {"id": 2, "far": date(1970, 1, 1), "ds": "x"}]


def test_nested_ones_too() -> None:
    far = FAR[:1]
    deep = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], far)], ["days"])
    pairs = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), far)
    assert plain_rows(pa.table({"deep": deep, "pairs": pairs})) == [
        {"deep": {"days": ["10000-01-01"]}, "pairs": [("k", "10000-01-01")]}
    ]


def test_orc_times_that_arrow_cannot_read_hide_no_other_column(tmp_path: Path) -> None:
    pa_orc.write_table(pa.table({"id": [1, 2, 3], "old": OLD}), tmp_path / "a.orc")
    rows = read_rows([(f"file://{tmp_path}/a.orc", {})], "orc", 2)
    assert [row["id"] for row in rows] == [1, 2]
    assert {row["old"] for row in rows} == {"(a time before 1677 or after 2262)"}


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.orc").write_text("no ORC")
    with pytest.raises(OSError, match="Not an ORC file"):
        read_rows([(f"file://{tmp_path}/a.orc", {})], "orc", 2)


def test_rows_are_read_across_row_groups_and_no_further_than_wanted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(9)}), tmp_path / "a.parquet", row_group_size=2)
    files: list[tuple[str, dict[str, object]]] = [(f"file://{tmp_path}/a.parquet", {"part": part}) for part in (1, 2)]
    assert [row["id"] for row in read_rows(files, "parquet", 5)] == [0, 1, 2, 3, 4]
    assert [row["part"] for row in read_rows(files, "parquet", 10)] == [1] * 9 + [2]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_no_thread_of_arrow_holds_a_stream_when_the_interpreter_ends(file_format: str, tmp_path: Path) -> None:
    readers: set[int] = set()

    class Stream(FileIO):
        def readinto(self, buffer: Any) -> int:
            readers.add(get_ident())
            return super().readinto(buffer) or 0

    class Watched(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        protocol = "watched"

        def open(self, path: str, *_: Any, **__: Any) -> BufferedReader:
            return BufferedReader(Stream(path))

    fsspec.register_implementation("watched", Watched, clobber=True)
    write = pq.write_table if file_format == "parquet" else pa_orc.write_table
    write(pa.table({"id": [1, 2, 3]}), tmp_path / "data")
    assert [row["id"] for row in read_rows([(f"watched://{tmp_path}/data", {})], file_format, 2)] == [1, 2]
    assert readers == {get_ident()}
