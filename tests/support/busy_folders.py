"""Folders in which others make and remove files meanwhile: ``Path.rglob`` and whoever opens what it found fail there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def paths_below(folder: Path, name_part: str = "") -> list[Path]:
    return [Path(top, name) for top, folders, files in os.walk(folder) for name in (*folders, *files) if name_part in name]


def contents_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in paths_below(folder):
        if path.is_file():
            with suppress(FileNotFoundError):
                yield path, path.read_bytes()
