"""Folders of Parquet files, as any engine reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq


def data_files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.glob("*.*")) if not path.name.startswith(("_", ".")))


def read_rows(file: Path) -> list[dict[str, Any]]:
    """All rows of a file, without what the names of folders say."""
    rows: list[dict[str, Any]] = pq.read_table(file, partitioning=None).to_pylist()
    return rows


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows into one more file of a folder; what a row does not have is null."""
    names = sorted({name for row in rows for name in row})
    columns = {name: [row.get(name) for row in rows] for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"foreign-{uuid4()}.parquet")
