"""Delta tables: what they hold and which versions they had. ``stage`` changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
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
from airflow_dynamic_tables.formats.base import LakeTable, kept_version
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.data_files import read_rows, typed_value
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

    def folder(self) -> str | None:
        """See :meth:`LakeTable.folder`."""
        return self._store.location(self._path, FORMAT)

    def current(self) -> Version | None:
        """See :meth:`LakeTable.current`."""
        history = self._history()
        return history.current() if history is not None else None

    def layout(self) -> TableLayout | None:
        """See :meth:`LakeTable.layout`."""
        history = self._history()
        return history.layout() if history is not None else None

    def position(self) -> StreamPosition | None:
        """See :meth:`LakeTable.position`."""
        history = self._history()
        return history.position() if history is not None else None

    def versions(self) -> list[Version]:
        """See :meth:`LakeTable.versions`."""
        history = self._history()
        return list(history.versions())[::-1] if history is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:
        """See :meth:`LakeTable.read`."""
        return content(self._filled(), self._path, has_library=spark_name is not None)

    def snapshot(self) -> str:
        """See :meth:`LakeTable.snapshot`."""
        return str(self._filled().version)

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LakeTable.count`."""
        history = self._history()
        if history is None or history.snapshot is None or history.is_new:
            return None
        files = history.snapshot.files
        if any(file.rows is None for file in files) or unreadable_by_name(history.snapshot):
            return None
        return RowCounts.of(((file.partition, file.rows or 0) for file in files), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LakeTable.sample`."""
        snapshot = self._filled()
        if version is not None:
            kept = kept_version(self.versions(), version, self._path)
            snapshot = open_snapshot(snapshot.location, int(kept.snapshot)) or snapshot
        if why := unreadable_by_name(snapshot):
            raise UnsupportedError(f"Delta table {self._path} {why}; read it with a Delta reader that knows this.")
        kinds = {column.name: column.type for column in snapshot.columns}
        files = [
            (file.uri, {key: typed_value(value, kinds[key]) for key, value in file.partition.items()}) for file in snapshot.files
        ]
        first = read_rows(files, "parquet", rows)
        return [{name: row.get(name) for name in kinds} for row in first]

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

    def _history(self) -> DeltaHistory | None:
        location = self.folder()
        return DeltaHistory.at(location) if location is not None else None

    def _filled(self) -> DeltaSnapshot:
        history = self._history()
        if history is None or history.snapshot is None or history.is_new:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._store.catalog} does not exist or has no version yet.")
        return history.snapshot
