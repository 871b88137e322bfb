"""Iceberg tables as PyIceberg sees and changes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, update
from pyiceberg.table.snapshots import Snapshot

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.formats.commits import DATA_TIMESTAMP, NUMBER, TOKEN
from airflow_dynamic_tables.services.writes.owner_markers import MARKS
from tests.support.faults.model.lakes.base import Lake, Seen, rows_of
from tests.support.faults.model.state import Row, Rows
from tests.support.faults.model.strikes import FILE, WITHIN
from tests.support.faults.victims import REVENUE, Site


class IcebergLake(Lake):
    format = "iceberg"
    can_forget = True
    can_go_back = True
    points = (*WITHIN, FILE)

    def __init__(self, site: Site) -> None:
        self._catalog = SqlCatalog(REVENUE.catalog, uri=site.database_url, warehouse=site.warehouse)
        self._manifests: dict[str, tuple[str, ...]] = {}

    @property
    def table(self) -> TableIdentifier:
        return REVENUE

    def load(self, name: str) -> Table | None:
        """A table as it is now, once it has columns."""
        try:
            table = self._catalog.load_table((REVENUE.database, name))
        except NoSuchTableError:
            return None
        return table if table.schema().fields else None

    def versions(self, name: str) -> list[Seen]:
        table = self.load(name)
        seen = [_seen(snapshot) for snapshot in (table.snapshots() if table is not None else ())]
        return sorted(filter(None, seen), key=lambda version: version.number)

    def rows(self, name: str, snapshot: str | None = None) -> Rows:
        table = self.load(name)
        if table is None:
            return {}
        return rows_of(table.scan(snapshot_id=int(snapshot) if snapshot else None).to_arrow().to_pylist())

    def problems(self, name: str) -> list[str]:
        """See :meth:`Lake.problems`; times have to go forward, or Java and Rust refuse the table."""
        table = self.load(name)
        if table is None:
            return []
        times = [entry.timestamp_ms for entry in table.metadata.snapshot_log]
        unsorted = ["the times of snapshots do not go forward"] if times != sorted(times) else []
        return [*unsorted, *(f"{path} is missing" for path in sorted(self._data(table)) if not Path(path).exists())]

    def left_over(self, name: str) -> list[str]:
        table = self.load(name)
        if table is None:
            return []
        logged = {_local(entry.metadata_file) for entry in table.metadata.metadata_log}
        used = self._data(table) | logged | {_local(table.metadata_location)}
        files = (path for path in Path(_local(table.location())).rglob("*") if path.is_file() and path.parent.name != MARKS)
        return [str(path) for path in files if str(path) not in used]

    def append(self, name: str, day: str, row: Row) -> None:
        table = self._filled(name)
        number, width = row
        values = {"ds": [day], "n": [number]} | {f"c{place}": [number] for place in range(1, width + 1)}
        with _at_latest(table):
            table.append(pa.table(values, table.schema().as_arrow()))

    def delete(self, name: str, day: str) -> None:
        table = self._filled(name)
        with _at_latest(table):
            table.delete(f"ds == '{day}'")

    def compact(self, name: str) -> None:
        table = self._filled(name)
        with _at_latest(table):
            table.overwrite(table.scan().to_arrow())

    def forget(self, name: str, keep: int) -> None:
        table = self._filled(name)
        kept: list[int] = []
        snapshot = table.current_snapshot()
        while snapshot is not None and len(kept) < keep:
            kept.append(snapshot.snapshot_id)
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        since = min((one.sequence_number or 0 for one in table.snapshots() if one.snapshot_id in kept), default=0)
        if chosen := [one.snapshot_id for one in table.snapshots() if (one.sequence_number or 0) < since]:
            table.maintenance.expire_snapshots().by_ids(chosen).commit()  # by age: what others went back behind may stay

    def go_back(self, name: str, snapshot: str) -> None:
        table = self._filled(name)
        with _at_latest(table), patch.object(update, "datetime_to_millis", lambda _: int(time.time() * 1000)):
            table.manage_snapshots().set_current_snapshot(int(snapshot)).commit()

    def close(self) -> None:
        self._catalog.engine.dispose()

    def _filled(self, name: str) -> Table:
        table = self.load(name)
        if table is None:
            raise ValueError(f"{name} has no version yet")
        return table

    def _data(self, table: Table) -> set[str]:
        """Every manifest list, manifest and data file that a snapshot leads to."""
        used: set[str] = set()
        for snapshot in table.snapshots():
            used.add(_local(snapshot.manifest_list))
            with suppress(FileNotFoundError):  # the caller misses it
                for manifest in snapshot.manifests(table.io):
                    used |= {_local(manifest.manifest_path), *self._files(manifest, table)}
        return used

    def _files(self, manifest: ManifestFile, table: Table) -> tuple[str, ...]:
        if (files := self._manifests.get(manifest.manifest_path)) is None:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            files = tuple(_local(entry.data_file.file_path) for entry in entries)
            self._manifests[manifest.manifest_path] = files
        return files


@contextmanager
def _at_latest(table: Table) -> Iterator[None]:
    """Engines other than PyIceberg let no snapshot be older than the one before it."""
    right = time.time
    latest = max((table.metadata.last_updated_ms, *(entry.timestamp_ms for entry in table.metadata.snapshot_log)))
    behind = max(0.0, latest / 1000 - right() + 0.1)
    time.time = lambda: right() + behind
    try:
        yield
    finally:
        time.time = right


def _seen(snapshot: Snapshot) -> Seen | None:
    """The version of a snapshot; ``None`` when it is none of ours."""
    told = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    if TOKEN not in told:
        return None
    fresh = datetime.fromisoformat(told[DATA_TIMESTAMP]) if DATA_TIMESTAMP in told else None
    return Seen(int(told[NUMBER]), told[TOKEN], fresh, str(snapshot.snapshot_id))


def _local(uri: str) -> str:
    return f"/{uri.removeprefix('file:').lstrip('/')}"  # Iceberg's Java library writes one slash, PyIceberg three
