"""Delta tables as delta-rs sees and changes them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.delta.snapshots import NOTHING_YET
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.commits import DATA_TIMESTAMP, NUMBER, TOKEN
from airflow_dynamic_tables.services.writes.owner_markers import MARKS
from tests.support.faults.model.lakes.base import Lake, Seen, rows_of
from tests.support.faults.model.state import Row, Rows
from tests.support.faults.model.strikes import FILE
from tests.support.faults.victims import REVENUE, Site


class DeltaLake(Lake):
    format = "delta"
    can_forget = True
    can_go_back = True
    columns_go_back = True
    points = (FILE, FILE, FILE, "statement", "sent")

    def __init__(self, site: Site) -> None:
        self._workspace = site.open()

    @property
    def table(self) -> TableIdentifier:
        return REVENUE

    def folder(self, name: str) -> Path | None:
        """Where a table lies, once it has a version."""
        try:
            entry = self._workspace.catalog(REVENUE.catalog).get_table(ObjectPath(REVENUE.database, name))
        except TableNotFoundError:
            return None
        assert isinstance(entry, CatalogDynamicTable)
        folder = Path((entry.location or "/nowhere").removeprefix("file://"))
        if not _entries(folder) or NOTHING_YET in DeltaTable(str(folder)).metadata().configuration:
            return None
        return folder

    def versions(self, name: str) -> list[Seen]:
        folder = self.folder(name)
        seen = [_seen(entry) for entry in _entries(folder)] if folder is not None else []
        return sorted(filter(None, seen), key=lambda version: version.number)

    def rows(self, name: str, snapshot: str | None = None) -> Rows:
        folder = self.folder(name)
        if folder is None:
            return {}
        return rows_of(DeltaTable(str(folder), version=int(snapshot) if snapshot else None).to_pyarrow_table().to_pylist())

    def problems(self, name: str) -> list[str]:
        folder = self.folder(name)
        return [f"{path} is missing" for path in sorted(_used(folder)) if not Path(path).exists()] if folder is not None else []

    def left_over(self, name: str) -> list[str]:
        folder = self.folder(name)
        if folder is None:
            return []
        files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name not in (MARKS, "_delta_log")]
        used = _used(folder)
        return [str(path) for path in (*files, *(folder / "_delta_log").glob("*.tmp")) if str(path) not in used]

    def append(self, name: str, day: str, row: Row) -> None:
        number, width = row
        values = {"ds": [day], "n": [number]} | {f"c{place}": [number] for place in range(1, width + 1)}
        write_deltalake(self._filled(name), pa.table(values), mode="append", schema_mode="merge")

    def delete(self, name: str, day: str) -> None:
        self._filled(name).delete(f"ds = '{day}'")

    def compact(self, name: str) -> None:
        self._filled(name).optimize.compact()

    def forget(self, name: str, keep: int) -> None:
        """See :meth:`Lake.forget`: as Spark cuts off a log, behind a checkpoint."""
        table = self._filled(name)
        oldest = max(0, table.version() - keep + 1)
        folder = self.folder(name)
        entries = _entries(folder) if folder is not None else []
        if not entries or int(entries[0].stem) >= oldest:
            return
        DeltaTable(str(folder), version=oldest).create_checkpoint()
        for entry in entries:
            if int(entry.stem) < oldest:
                entry.unlink()

    def go_back(self, name: str, snapshot: str) -> None:
        self._filled(name).restore(int(snapshot))

    def close(self) -> None:
        self._workspace.close()

    def _filled(self, name: str) -> DeltaTable:
        folder = self.folder(name)
        if folder is None:
            raise ValueError(f"{name} has no version yet")
        return DeltaTable(str(folder))


def _entries(folder: Path) -> list[Path]:
    return sorted((folder / "_delta_log").glob("*.json"))


def _actions(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_text().splitlines()]


def _used(folder: Path) -> set[str]:
    """Every file of every version that can be read."""
    used = {uri for entry in _entries(folder) for uri in DeltaTable(str(folder), version=int(entry.stem)).file_uris()}
    return {str(Path(uri.removeprefix("file://"))) for uri in used}


def _seen(entry: Path) -> Seen | None:
    """The version that an entry is; ``None`` when it is none of ours."""
    told = next((action["commitInfo"].get("tags") or {} for action in _actions(entry) if "commitInfo" in action), {})
    if TOKEN not in told:
        return None
    fresh = datetime.fromisoformat(told[DATA_TIMESTAMP]) if DATA_TIMESTAMP in told else None
    return Seen(int(told[NUMBER]), told[TOKEN], fresh, str(int(entry.stem)))
