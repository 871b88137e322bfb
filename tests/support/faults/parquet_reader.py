"""A reader of a plain partitioned Parquet table: the files that are there now, and nothing else, are its rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

ROWS = 3
"""Rows of every partition, all with the version in the column ``v``."""

TORN = "torn: "


@dataclass(frozen=True, slots=True)
class _File:
    version: int
    rows: int


class ParquetReader:
    """Polls a folder. A file is read once, when it is first listed: a second reading would fail even more often."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._folder = folder
        self._partitions = partitions
        self._files: dict[Path, _File] = {}

    def poll(self) -> tuple[str, str]:
        found = {path: self._read(path) for path in self._folder.glob("p=*/[!._]*.parquet")}
        return "files", self._state(found)

    def close(self) -> list[str]:
        return []

    def _read(self, path: Path) -> _File:
        if path not in self._files:
            rows = pq.read_table(path, columns=["v"], partitioning=None)
            self._files[path] = _File(rows.column("v")[0].as_py(), rows.num_rows)
        return self._files[path]

    def _state(self, found: dict[Path, _File]) -> str:
        if not found:
            return f"{TORN}no rows"
        if len({path.parent for path in found}) < self._partitions:
            return f"{TORN}partitions missing"
        versions = Counter(file.version for file in found.values())
        if len(versions) > 1:
            return f"{TORN}versions mixed"
        if sum(file.rows for file in found.values()) != self._partitions * ROWS:
            return f"{TORN}another number of rows"
        return f"version {next(iter(versions))}"
