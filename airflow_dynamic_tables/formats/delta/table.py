"""Delta tables: what they hold and which versions they had. ``stage`` changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import cached_property
from typing import Any

from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.clients.delta.snapshots import DeltaSnapshot, open_snapshot
from airflow_dynamic_tables.clients.stores import EntryStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.core.tables.schema import TableLayout
from airflow_dynamic_tables.core.tables.versions import StreamPosition, Version
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable, kept_version
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.data_files import first_rows
from airflow_dynamic_tables.formats.delta.history import DeltaHistory
from airflow_dynamic_tables.formats.delta.orphans import delete_orphans
from airflow_dynamic_tables.formats.delta.reading import EXTENSION, content, unreadable_by_name
from airflow_dynamic_tables.formats.delta.retention import expire
from airflow_dynamic_tables.formats.delta.stage import DeltaStagedTable
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles

FORMAT = "delta"


class DeltaLakeTable(LakeTable):
    """A table whose entry in a catalog says where it lies."""

    can_add = True
    library = EXTENSION

    def __init__(self, store: EntryStore, path: ObjectPath, file_format: str = "parquet") -> None:  # noqa: ARG002 - no choice
        self._store = store
        self._path = path

    def stage(self, token: str) -> DeltaStagedTable:
        """See :meth:`LakeTable.stage`."""
        return DeltaStagedTable(self.folder, self._path, token)

    def load(self) -> _LoadedDeltaTable:
        """See :meth:`LakeTable.load`."""
        return _LoadedDeltaTable(self._store, self._path)

    def expire(self, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int = 1) -> int:
        """See :meth:`LakeTable.expire`."""
        location = self.folder()
        return expire(location, retention, now, pinned, least) if location is not None else 0

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`."""
        location = self.folder()
        return delete_orphans(location, before, held) if location is not None else Deleted()

    def count_files(self, limits: Limits) -> list[PartitionFiles]:  # noqa: ARG002
        """See :meth:`LakeTable.count_files`: they are not compacted."""
        raise UnsupportedError(
            f"{self._path} is a Delta table, so it is not compacted here; OPTIMIZE of another engine may do it."
        )


class _LoadedDeltaTable(LoadedTable):
    """Where the catalog says that a table lies, and its log from the first question about it on."""

    def __init__(self, store: EntryStore, path: ObjectPath) -> None:
        self._catalog = store.catalog
        self._path = path
        self._location = store.location(path, FORMAT)

    def folder(self) -> str | None:
        return self._location

    def current(self) -> Version | None:
        return self._history and self._history.current()

    def layout(self) -> TableLayout | None:
        return self._history and self._history.layout()

    def position(self) -> StreamPosition | None:
        return self._history and self._history.position()

    def versions(self) -> list[Version]:
        return list(self._history.versions())[::-1] if self._history is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:
        return content(self._filled, self._path, has_library=spark_name is not None)

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        try:
            files = self._filled.files
        except TableNotFoundError:
            return None
        if any(file.rows is None for file in files) or unreadable_by_name(self._filled):
            return None
        return RowCounts.of(((file.partition, file.rows or 0) for file in files), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        snapshot = self._filled
        if version is not None:
            kept = kept_version(self.versions(), version, self._path)
            snapshot = open_snapshot(snapshot.location, int(kept.snapshot)) or snapshot
        if why := unreadable_by_name(snapshot):
            raise UnsupportedError(f"Delta table {self._path} {why}; read it with a Delta reader that knows this.")
        return first_rows(((file.uri, file.partition) for file in snapshot.files), snapshot.columns, "parquet", rows)

    @cached_property
    def _history(self) -> DeltaHistory | None:
        return DeltaHistory.at(self._location) if self._location is not None else None

    @property
    def _filled(self) -> DeltaSnapshot:
        if self._history is None or self._history.snapshot is None or self._history.is_new:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._catalog} does not exist or has no version yet.")
        return self._history.snapshot
