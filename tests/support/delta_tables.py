"""Delta tables of others, as engines that are not installed here leave them: made by delta-rs, or by hand in the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions


def write_file(path: Path, rows: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return path


def add(root: Path, path: str, values: Mapping[str, str | None], rows: int = 1) -> AddAction:
    """What the log says of a file: its path as the log has it, and its partition."""
    size = next(file.stat().st_size for file in (root / path, *root.rglob("*.parquet")) if file.exists())
    return AddAction(path, size, values, 0, True, json.dumps({"numRecords": rows}))


def make_table(root: Path, schema: pa.Schema, keys: list[str], files: list[AddAction]) -> DeltaTable:
    create_table_with_add_actions(str(root), Schema.from_arrow(schema), files, "error", keys)
    return DeltaTable(str(root))


def commit_file(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020}.json"


def rewrite(root: Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    file = commit_file(root, version)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
    file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def require(features: Iterable[str], **configuration: str) -> Callable[[dict[str, Any]], None]:
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


def replay(root: Path, version: int) -> list[dict[str, Any]]:
    """What a table is like as of a version, by all entries: its latest protocol, metadata, transactions and files."""
    state: dict[tuple[str, str], dict[str, Any]] = {}
    for number in range(version + 1):
        actions = [json.loads(line) for line in commit_file(root, number).read_text().splitlines()]
        for kind, said in sorted((pair for action in actions for pair in action.items()), key=lambda pair: pair[0] == "add"):
            if kind != "commitInfo":
                place = "file" if kind in ("add", "remove") else kind
                state[place, said.get("path") or said.get("appId") or ""] = {kind: said}
    return [*state.values()]


def write_checkpoint_in_text(root: Path, version: int) -> Path:
    """A checkpoint as Spark writes it with ``delta.checkpointPolicy=v2``: JSON, whose files are told of in a file beside it."""
    log = root / "_delta_log"
    actions = replay(root, version)
    files = [action["add"] for action in actions if "add" in action]
    values = pa.array([[*file["partitionValues"].items()] for file in files], pa.map_(pa.string(), pa.string()))
    names = ("path", "size", "modificationTime", "dataChange", "stats")
    columns = [*(pa.array([file.get(name) for file in files]) for name in names), values]
    told = pa.StructArray.from_arrays(columns, [*names, "partitionValues"])
    nothing = pa.nulls(len(files), pa.struct([("path", pa.string())]))
    beside = write_file(log / "_sidecars" / f"{uuid4()}.parquet", pa.table({"add": told, "remove": nothing}))
    sidecar = {"path": beside.name, "sizeInBytes": beside.stat().st_size, "modificationTime": 0}
    lines = [
        {"checkpointMetadata": {"version": version}},
        *(action for action in actions if not {"add", "remove"} & action.keys()),
        {"sidecar": sidecar},
    ]
    checkpoint = log / f"{version:020}.checkpoint.{uuid4()}.json"
    checkpoint.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return checkpoint
