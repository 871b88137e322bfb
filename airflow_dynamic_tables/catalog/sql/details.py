"""Partitions and statistics that the ``sql`` catalog keeps for tables whose format does not know its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update

from airflow_dynamic_tables.catalog.sql.rows import PARTITIONS, STATISTICS, Rows
from airflow_dynamic_tables.catalog.values import CatalogPartition, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec, describe


@dataclass(frozen=True, slots=True)
class Details:
    """The rows that hang on one table, within one transaction. Specs are in the order of the table's keys."""

    rows: Rows
    path: ObjectPath

    def partitions(self) -> list[CatalogPartition]:
        """All partitions, in order of their values."""
        query = select(PARTITIONS.table.c.value).where(*self.rows.at(PARTITIONS, self.path))
        partitions = map(_partition, self.rows.connection.scalars(query))
        return sorted(partitions, key=lambda partition: tuple(partition.spec.values()))

    def partition(self, spec: PartitionSpec) -> CatalogPartition | None:
        """One partition."""
        value = self.rows.connection.scalar(select(PARTITIONS.table.c.value).where(*self._is_partition(spec)))
        return _partition(value) if value is not None else None

    def add_partitions(self, partitions: Sequence[CatalogPartition]) -> list[CatalogPartition]:
        """Insert partitions; those that were there already, or more than once among these, are left out and returned."""
        by_spec = {describe(partition.spec): partition for partition in reversed(partitions)}
        values = [
            {"catalog": self.rows.catalog, **self._key, "spec": spec, "value": asdict(partition)}
            for spec, partition in by_spec.items()
        ]
        statement = self.rows.database.insert(PARTITIONS.table).on_conflict_do_nothing().returning(PARTITIONS.table.c.spec)
        inserted = set(self.rows.connection.scalars(statement, values)) if values else set()
        new = {id(by_spec[spec]) for spec in inserted}
        return [partition for partition in partitions if id(partition) not in new]

    def replace_partition(self, partition: CatalogPartition) -> None:
        """Write the new value of a partition."""
        change = update(PARTITIONS.table).where(*self._is_partition(partition.spec)).values(value=asdict(partition))
        self.rows.connection.execute(change)

    def remove_partition(self, spec: PartitionSpec) -> None:
        """Delete a partition."""
        self.rows.connection.execute(delete(PARTITIONS.table).where(*self._is_partition(spec)))

    def statistics(self) -> tuple[TableStatistics, dict[str, ColumnStatistics]]:
        """What is known of the table and of its columns."""
        value = self.rows.connection.scalar(select(STATISTICS.table.c.value).where(*self.rows.at(STATISTICS, self.path)))
        if value is None:
            return TableStatistics(), {}
        columns = {name: ColumnStatistics(**column) for name, column in value["columns"].items()}
        return TableStatistics(**value["table"]), columns

    def write_statistics(self, table: TableStatistics, columns: Mapping[str, ColumnStatistics]) -> None:
        """Replace what is known of the table and of its columns."""
        value = {"table": asdict(table), "columns": {name: asdict(column) for name, column in columns.items()}}
        self.rows.delete(STATISTICS, self.path.database, self.path.name)
        self.rows.insert(STATISTICS.table, {**self._key, "value": value})

    @property
    def _key(self) -> dict[str, str]:
        return {"database": self.path.database, "name": self.path.name}

    def _is_partition(self, spec: PartitionSpec) -> tuple[ColumnElement[bool], ...]:
        return (*self.rows.at(PARTITIONS, self.path), PARTITIONS.table.c.spec == describe(spec))


def _partition(value: Mapping[str, Any]) -> CatalogPartition:
    return CatalogPartition(**{**value, "statistics": TableStatistics(**value["statistics"])})
