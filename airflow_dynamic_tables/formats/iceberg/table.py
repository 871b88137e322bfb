"""Iceberg tables: handles, sample rows, and changes for streams."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import cached_property
from typing import Any

from pyiceberg.table import Table

from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.clients.iceberg.catalog import names_damage
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import TableLayout
from airflow_dynamic_tables.core.versions import Retention, StreamPosition, Version
from airflow_dynamic_tables.exceptions import UnsupportedError, VersionNotFoundError
from airflow_dynamic_tables.formats.base import (
    ChangedFiles,
    LakeTable,
    ListedFile,
    LoadedTable,
    RowCounts,
    TableContent,
    kept_version,
)
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.history import delete_orphans, due, expire, position
from airflow_dynamic_tables.formats.iceberg.stage import IcebergStagedTable
from airflow_dynamic_tables.formats.iceberg.statistics import changes_of, files_of
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles


@names_damage
class IcebergTable(LakeTable):
    """A table of an Iceberg catalog."""

    can_add = True

    def __init__(self, store: IcebergStore, path: ObjectPath, file_format: str = "parquet") -> None:  # noqa: ARG002 - only one format
        self._store = store
        self._path = path

    def stage(self, token: str) -> IcebergStagedTable:
        return IcebergStagedTable(self._store, self._path, token)

    def load(self) -> _LoadedIcebergTable:
        return _LoadedIcebergTable(self._store, self._path)

    def current(self) -> Version | None:
        """See :meth:`LoadedTable.current`; reads as little as possible."""
        return tables.glance(self._store, self._path) or self.load().current()

    def scattered(self, limits: Limits, *, is_cheap: bool = False) -> list[PartitionSet]:
        from airflow_dynamic_tables.formats.iceberg.compaction import files_added, scattered

        table = self.load().table
        if table is None or (is_cheap and files_added(table) < limits.many):
            return []
        return scattered(table, limits)

    def count_files(self, limits: Limits) -> list[PartitionFiles]:
        from airflow_dynamic_tables.formats.iceberg.compaction import count_files, why_not

        table = self.load().filled
        if why := why_not(table):
            raise UnsupportedError(f"{self._path} {why}, so it is not compacted.")
        return count_files(table, limits)

    def expire(self, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int = 1) -> int:

        def choose(table: Table) -> list[int]:
            is_worth_it = len(due(table, retention, now, ())) >= least
            return due(table, retention, now, pinned()) if is_worth_it else []

        return expire(self._store, self._path, choose)

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        return delete_orphans(self._store, self._path, before, held)


@names_damage
class _LoadedIcebergTable(LoadedTable):
    """The metadata of a table as loaded from its catalog; ``table`` is ``None`` if it does not exist."""

    def __init__(self, store: IcebergStore, path: ObjectPath) -> None:
        self._store = store
        self._path = path
        self.table = tables.load(store, path)

    def folder(self) -> str | None:
        return self.table.location().rstrip("/") if self.table is not None else None

    def keeps_files(self) -> str | None:
        return tables.keeps_files(self.table) if self.table is not None else None

    def current(self) -> Version | None:
        return tables.current(self.table)

    def layout(self) -> TableLayout | None:
        return tables.layout(self.table) if self.table is not None and not tables.is_new(self.table) else None

    def position(self) -> StreamPosition | None:
        return position(self.table)

    def versions(self) -> list[Version]:
        return list(tables.versions(self.table))[::-1] if self.table is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:
        try:
            return self._content
        except UnsupportedError:
            if spark_name is None:
                raise
            return _by_library(self.filled, spark_name)

    def state(self, recorded: SourceState | None) -> SourceState | None:
        found = tables.still_in(self.filled, recorded) if recorded is not None else None
        return found or self.read().state

    def read_at(self, snapshot: str, spark_name: str | None = None) -> TableContent:
        if snapshot not in (str(kept.snapshot_id) for kept in self.filled.snapshots()):
            raise VersionNotFoundError(f"snapshot {snapshot} of {self._path} has expired")
        then = tables.at_snapshot(self.filled, int(snapshot))
        try:
            return tables.content(then, self._path)
        except UnsupportedError:
            if spark_name is None:
                raise
            return _by_library(then, spark_name)

    def changed_files(self, columns: Collection[str], since: SourceState, now: SourceState) -> ChangedFiles:
        return changes_of(self.filled, columns, since, now)

    def list_files(self, columns: Collection[str], state: SourceState) -> list[ListedFile]:
        return files_of(self.filled, self._path, columns, state)

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        return tables.count(self.table, partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        from airflow_dynamic_tables.formats.iceberg.reading import first_rows  # not before: Arrow's scans take long to import

        table = self.filled
        if version is None:
            return first_rows(table, None, rows)
        snapshot = int(kept_version(tables.versions(table), version, self._path).snapshot)
        return first_rows(tables.as_of(table, snapshot), snapshot, rows)

    @property
    def filled(self) -> Table:
        return tables.filled(self.table, self._path, self._store.catalog)

    @cached_property
    def _content(self) -> TableContent:
        return tables.content(self.filled, self._path)


def _by_library(table: Table, spark_name: str) -> TableContent:
    return TableContent(tables.snapshot_id(table), table=spark_name, state=tables.state(table))
