"""Rows of data files as ``show`` has them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

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
