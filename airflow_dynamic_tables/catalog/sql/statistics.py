"""The statistics of the ``sql`` catalog: those of an Iceberg table's own metadata, or rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.delta import entries as delta
from airflow_dynamic_tables.catalog.iceberg.metadata import column_statistics_of, statistics_of
from airflow_dynamic_tables.catalog.sql.details import Details
from airflow_dynamic_tables.catalog.sql.partitions import SqlPartitions
from airflow_dynamic_tables.catalog.sql.tables import SqlTables, described
from airflow_dynamic_tables.catalog.values import ColumnStatistics, TableStatistics
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


@dataclass(frozen=True, slots=True)
class SqlStatistics:
    """Statistics of tables, partitions and columns; those of Iceberg tables cannot be changed here."""

    tables: SqlTables
    partitions: SqlPartitions

    def of_table(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Size of a table or of one of its partitions."""
        entry, physical = self.tables.load(path)
        if spec is not None:
            return self.partitions.get(path, spec).statistics
        if physical is not None:
            return statistics_of(physical)
        if delta.is_delta(entry):
            return delta.statistics_of(entry)
        with self.tables.store.transaction() as rows:
            table, _ = Details(rows, path).statistics()
            return table

    def of_columns(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Statistics by column name."""
        _, physical = self.tables.load(path)
        if physical is not None:
            return column_statistics_of(physical)
        with self.tables.store.transaction() as rows:
            _, columns = Details(rows, path).statistics()
            return columns

    def alter_table(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """Replace the size of a table or of one of its partitions."""
        with self.tables.store.transaction() as rows:
            _, details = described(rows, path, "statistics")
            if spec is None:
                _, columns = details.statistics()
                details.write_statistics(statistics, columns)
        if spec is not None:
            self.partitions.alter(path, replace(self.partitions.get(path, spec), statistics=statistics))

    def alter_columns(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """Replace the statistics of all columns."""
        with self.tables.store.transaction() as rows:
            _, details = described(rows, path, "statistics")
            table, _ = details.statistics()
            details.write_statistics(table, statistics)
