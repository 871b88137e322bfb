"""Delta tables of others, as engines that are not installed here leave them: made by delta-rs, or by hand in the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions


def write_file(path: Path, rows: pa.Table) -> Path:
    """A Parquet file with these rows, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return path


def add(root: Path, path: str, values: Mapping[str, str | None], rows: int = 1) -> AddAction:
    """What the log says of a file: its path as the log has it, and its partition."""
    size = next(file.stat().st_size for file in (root / path, *root.rglob("*.parquet")) if file.exists())
    return AddAction(path, size, values, 0, True, json.dumps({"numRecords": rows}))


def make_table(root: Path, schema: pa.Schema, keys: list[str], files: list[AddAction]) -> DeltaTable:
    """A table of files that are there already."""
    create_table_with_add_actions(str(root), Schema.from_arrow(schema), files, "error", keys)
    return DeltaTable(str(root))


def commit_file(root: Path, version: int) -> Path:
    """The file of a commit."""
    return root / "_delta_log" / f"{version:020}.json"


def rewrite(root: Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit, as another engine would have written them."""
    file = commit_file(root, version)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
    file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def require(features: Iterable[str], **configuration: str) -> Callable[[dict[str, Any]], None]:
    """A change that makes a table need readers with these features."""

    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            names = list(features)
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": names,
                "writerFeatures": names,
            }
        if "metaData" in action:
            action["metaData"]["configuration"].update(configuration)

    return change
