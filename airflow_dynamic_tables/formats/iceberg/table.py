"""Iceberg: Spark writes Parquet below the table's location; PyIceberg publishes one snapshot that replaces exactly the plan.

The snapshot's summary holds the token, so that the outcome of a commit can always be looked up in the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.clients.iceberg.damage import names_damage
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.core.tables.schema import TableLayout
from airflow_dynamic_tables.core.tables.versions import StreamPosition, Version
from airflow_dynamic_tables.exceptions import (
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import LakeTable, kept_version
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.history import due, expire, position
from airflow_dynamic_tables.formats.iceberg.orphans import delete_orphans
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles

if TYPE_CHECKING:
    from airflow_dynamic_tables.formats.iceberg.stage import IcebergStagedTable


class IcebergTable(LakeTable):
    """A table of an Iceberg catalog."""

    can_add = True

    def __init__(self, store: IcebergStore, path: ObjectPath, file_format: str = "parquet") -> None:  # noqa: ARG002 - no choice
        self._store = store
        self._path = path

    def stage(self, token: str) -> IcebergStagedTable:
        """See :meth:`LakeTable.stage`."""
        from airflow_dynamic_tables.formats.iceberg.stage import IcebergStagedTable

        return IcebergStagedTable(self._store, self._path, token)

    @names_damage
    def folder(self) -> str | None:
        """See :meth:`LakeTable.folder`."""
        table = tables.load(self._store, self._path)
        return table.location().rstrip("/") if table is not None else None

    @names_damage
    def current(self) -> Version | None:
        """See :meth:`LakeTable.current`."""
        return tables.glance(self._store, self._path) or tables.current(tables.load(self._store, self._path))

    @names_damage
    def layout(self) -> TableLayout | None:
        """See :meth:`LakeTable.layout`."""
        table = tables.load(self._store, self._path)
        return tables.layout(table) if table is not None and not tables.is_new(table) else None

    @names_damage
    def position(self) -> StreamPosition | None:
        """See :meth:`LakeTable.position`."""
        return position(tables.load(self._store, self._path))

    @names_damage
    def versions(self) -> list[Version]:
        """See :meth:`LakeTable.versions`."""
        table = tables.load(self._store, self._path)
        return list(tables.versions(table))[::-1] if table is not None else []

    @names_damage
    def read(self, spark_name: str | None = None) -> TableContent:
        """See :meth:`LakeTable.read`."""
        table = self._filled()
        try:
            return tables.content(table, self._path)
        except UnsupportedError:
            if spark_name is None:
                raise
            return TableContent(tables.snapshot_id(table), table=spark_name, state=tables.state(table))

    @names_damage
    def snapshot(self) -> str:
        """See :meth:`LakeTable.snapshot`."""
        return tables.snapshot_id(self._filled())

    @names_damage
    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LakeTable.count`."""
        return tables.count(tables.load(self._store, self._path), partitions)

    @names_damage
    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LakeTable.sample`."""
        from airflow_dynamic_tables.formats.iceberg.reading import first_rows

        table = self._filled()
        if version is None:
            return first_rows(table, None, rows)
        snapshot = int(kept_version(tables.versions(table), version, self._path).snapshot)
        return first_rows(tables.as_of(table, snapshot), snapshot, rows)

    @names_damage
    def scattered(self, limits: Limits, *, is_cheap: bool = False) -> list[PartitionSet]:
        """See :meth:`LakeTable.scattered`."""
        from airflow_dynamic_tables.formats.iceberg.compacting import added_since, scattered

        table = tables.load(self._store, self._path)
        if table is None or (is_cheap and added_since(table) < limits.many):
            return []
        return scattered(table, limits)

    @names_damage
    def count_files(self, limits: Limits) -> list[PartitionFiles]:
        """See :meth:`LakeTable.count_files`."""
        from airflow_dynamic_tables.formats.iceberg.compacting import count_files, why_not

        table = self._filled()
        if why := why_not(table):
            raise UnsupportedError(f"{self._path} {why}, so it is not compacted.")
        return count_files(table, limits)

    @names_damage
    def expire(self, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int = 1) -> int:
        """See :meth:`LakeTable.expire`."""

        def choose(table: Table) -> list[int]:
            is_worth_it = len(due(table, retention, now, ())) >= least
            return due(table, retention, now, pinned()) if is_worth_it else []

        return expire(self._store, self._path, choose)

    @names_damage
    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`."""
        return delete_orphans(self._store, self._path, before, held)

    def _filled(self) -> Table:
        table = tables.load(self._store, self._path)
        if table is None or tables.is_new(table) or table.current_snapshot() is None:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._store.catalog} does not exist or has no version yet.")
        return table
