"""Partitions of the ``sql`` catalog, from Iceberg metadata or rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog import delta_entries as delta
from airflow_dynamic_tables.catalog.base import full_spec, no_partition, one_partition, partition_keys, partition_taken
from airflow_dynamic_tables.catalog.iceberg.metadata import partitions_of
from airflow_dynamic_tables.catalog.sql.tables import Details, SqlTables, described
from airflow_dynamic_tables.catalog.values import CatalogPartition
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import InvalidPartitionError, TableNotFoundError


@dataclass(frozen=True, slots=True)
class SqlPartitions:
    """Partitions of tables; those of Iceberg tables cannot be changed here."""

    tables: SqlTables

    def find(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """Return the partitions that match ``spec``, ordered by their values."""
        wanted = spec or {}
        entry, physical = self.tables.load(path)
        keys = partition_keys(self.tables.store.catalog, path, self.tables.as_stored(path, entry, physical), wanted)
        if physical is not None:
            return partitions_of(physical, keys, wanted)
        if delta.is_delta(entry):
            return delta.partitions_of(entry, keys, wanted)
        with self.tables.store.transaction() as rows:
            return [partition for partition in Details(rows, path).partitions() if wanted.items() <= partition.spec.items()]

    def get(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """Return a partition."""
        return one_partition(self.tables.store.catalog, path, spec, self.find)

    def create(self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False) -> None:
        """Insert all rows or, on an error, none."""
        with self.tables.store.transaction() as rows:
            table, details = described(rows, path)
            in_order = [replace(partition, spec=full_spec(rows.catalog, path, table, partition.spec)) for partition in partitions]
            taken = details.add_partitions(in_order)
            if taken and not ignore_if_exists:
                raise partition_taken(rows.catalog, path, taken[0].spec)  # rolls back

    def alter(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the row."""
        with self._changed(path, partition.spec, ignore_if_not_exists) as (details, current):
            if current is not None:
                details.replace_partition(replace(partition, spec=current.spec))

    def drop(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """Delete the row."""
        with self._changed(path, spec, ignore_if_not_exists) as (details, current):
            if current is not None:
                details.remove_partition(current.spec)

    @contextmanager
    def _changed(
        self, path: ObjectPath, spec: PartitionSpec, ignore_if_not_exists: bool
    ) -> Iterator[tuple[Details, CatalogPartition | None]]:
        """Transaction that yields the current partition; ``None`` when it is missing and that is ignored."""
        with self.tables.store.transaction() as rows:
            details = Details(rows, path)
            try:
                table, _ = described(rows, path)
                current = details.partition(full_spec(rows.catalog, path, table, spec))
            except (TableNotFoundError, InvalidPartitionError):
                current = None
            if current is None and not ignore_if_not_exists:
                raise no_partition(rows.catalog, path, spec)
            yield details, current
