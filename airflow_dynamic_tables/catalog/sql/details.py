"""Partitions and statistics that the ``sql`` catalog keeps for tables whose format does not know its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, select, update

from airflow_dynamic_tables.catalog.sql.rows import PARTITIONS, STATISTICS, insert
from airflow_dynamic_tables.catalog.values import CatalogPartition, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec, describe


@dataclass(frozen=True, slots=True)
class Details:
    """The rows that hang on one table, within one transaction. Specs are in the order of the table's keys."""

    database: Database
    connection: Connection
    catalog: str
    path: ObjectPath

    def partitions(self) -> list[CatalogPartition]:
        """All partitions, in order of their values."""
        rows = select(PARTITIONS.table.c.value).where(*PARTITIONS.within(self.catalog, self.path.database, self.path.name))
        found = map(_partition, self.connection.scalars(rows))
        return sorted(found, key=lambda partition: tuple(partition.spec.values()))

    def partition(self, spec: PartitionSpec) -> CatalogPartition | None:
        """One partition."""
        value = self.connection.scalar(select(PARTITIONS.table.c.value).where(*self._is_partition(spec)))
        return _partition(value) if value is not None else None

    def add_partitions(self, partitions: Sequence[CatalogPartition]) -> list[CatalogPartition]:
        """Insert partitions; those that were there already, or more than once among these, are left out and returned."""
        by_spec = {describe(partition.spec): partition for partition in reversed(partitions)}
        rows = [{**self._key, "spec": spec, "value": asdict(partition)} for spec, partition in by_spec.items()]
        statement = self.database.insert(PARTITIONS.table).on_conflict_do_nothing().returning(PARTITIONS.table.c.spec)
        inserted = set(self.connection.scalars(statement, rows)) if rows else set()
        new = {id(by_spec[spec]) for spec in inserted}
        return [partition for partition in partitions if id(partition) not in new]

    def replace_partition(self, partition: CatalogPartition) -> None:
        """Write the new value of a partition."""
        change = update(PARTITIONS.table).where(*self._is_partition(partition.spec)).values(value=asdict(partition))
        self.connection.execute(change)

    def remove_partition(self, spec: PartitionSpec) -> None:
        """Delete a partition."""
        self.connection.execute(delete(PARTITIONS.table).where(*self._is_partition(spec)))

    def statistics(self) -> tuple[TableStatistics, dict[str, ColumnStatistics]]:
        """What is known of the table and of its columns."""
        place = STATISTICS.within(self.catalog, self.path.database, self.path.name)
        value = self.connection.scalar(select(STATISTICS.table.c.value).where(*place))
        if value is None:
            return TableStatistics(), {}
        columns = {name: ColumnStatistics(**column) for name, column in value["columns"].items()}
        return TableStatistics(**value["table"]), columns

    def write_statistics(self, table: TableStatistics, columns: Mapping[str, ColumnStatistics]) -> None:
        """Replace what is known of the table and of its columns."""
        place = STATISTICS.within(self.catalog, self.path.database, self.path.name)
        value = {"table": asdict(table), "columns": {name: asdict(column) for name, column in columns.items()}}
        self.connection.execute(delete(STATISTICS.table).where(*place))
        insert(self.database, self.connection, STATISTICS.table, {**self._key, "value": value})

    @property
    def _key(self) -> dict[str, str]:
        return {"catalog": self.catalog, "database": self.path.database, "name": self.path.name}

    def _is_partition(self, spec: PartitionSpec) -> tuple[ColumnElement[bool], ...]:
        place = PARTITIONS.within(self.catalog, self.path.database, self.path.name)
        return (*place, PARTITIONS.table.c.spec == describe(spec))


def _partition(value: Mapping[str, Any]) -> CatalogPartition:
    return CatalogPartition(**{**value, "statistics": TableStatistics(**value["statistics"])})
