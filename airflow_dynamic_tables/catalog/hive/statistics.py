"""The statistics of a Hive metastore."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from hive_metastore import ttypes
from hive_metastore.ttypes import Table

from airflow_dynamic_tables.catalog.hive.column_statistics import from_hive_statistics, to_hive_statistics
from airflow_dynamic_tables.catalog.hive.encoding import set_statistics, statistics_of
from airflow_dynamic_tables.catalog.hive.partitions import HivePartitions
from airflow_dynamic_tables.catalog.hive.session import Session
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.values import ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.metastore.tables import PREFIX, joined_parameter, split_parameter
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import NotFoundError

_COLUMN_STATISTICS = f"{PREFIX}column-statistics"


@dataclass(frozen=True, slots=True)
class HiveStatistics:
    """Statistics of tables, partitions and columns; what Hive has no place for is kept beside, until Hive differs."""

    session: Session
    tables: HiveTables
    partitions: HivePartitions

    def of_table(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Size of a table or of one of its partitions."""
        table = self.tables.load(path)
        return statistics_of(table.parameters or {}) if spec is None else self.partitions.get(path, spec).statistics

    def of_columns(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Statistics by column name."""
        table = self.tables.load(path)
        ours = json.loads(joined_parameter(table.parameters or {}, _COLUMN_STATISTICS) or "{}")
        names = {column.name.lower(): column.name for column in self.tables.value(table).columns}
        request = ttypes.TableStatsRequest(path.database, path.name, list(names), engine="hive")
        answer = self.session.call("get_table_statistics_req", request).tableStats if names else ()
        known = {names[one.colName]: from_hive_statistics(one.statsData) for one in answer}
        for name, value in ours.items():
            statistics = ColumnStatistics(**value)
            if known.get(name) in (None, _as_hive_says(table, name, statistics)):
                known[name] = statistics
        return known

    def alter_table(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """Replace the size of a table or of one of its partitions."""
        if spec is None:
            self.tables.change_stored(path, lambda stored: set_statistics(stored.parameters, statistics))
        else:
            self.tables.load(path)
            self.partitions.alter(path, replace(self.partitions.get(path, spec), statistics=statistics))

    def alter_columns(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """Replace the statistics of all columns."""
        before = self.of_columns(path)
        text = json.dumps({name: asdict(value) for name, value in statistics.items()})

        def keep_ours(stored: Table) -> None:
            others = {key: value for key, value in stored.parameters.items() if not key.startswith(_COLUMN_STATISTICS)}
            stored.parameters = {**others, **split_parameter(_COLUMN_STATISTICS, text)}

        self.tables.change_stored(path, keep_ours)
        types = _types(self.tables.load(path))
        for name in before:  # what a column had stays where the new value says nothing
            if name.lower() in types:
                self._forget(path, name.lower())
        self._tell_hive(path, types, statistics)

    def _tell_hive(self, path: ObjectPath, types: Mapping[str, str], statistics: Mapping[str, ColumnStatistics]) -> None:
        """Write what Hive has a place for."""
        data = {name.lower(): to_hive_statistics(types.get(name.lower(), ""), value) for name, value in statistics.items()}
        objects = [ttypes.ColumnStatisticsObj(name, types[name], value) for name, value in data.items() if value is not None]
        if objects:
            about = ttypes.ColumnStatisticsDesc(isTblLevel=True, dbName=path.database, tableName=path.name)
            self.session.call("update_table_column_statistics", ttypes.ColumnStatistics(about, objects, engine="hive"))

    def _forget(self, path: ObjectPath, column: str) -> None:
        try:
            self.session.call("delete_table_column_statistics", path.database, path.name, column, "hive")
        except NotFoundError:
            return  # Hive had none


def _types(table: Table) -> dict[str, str]:
    return {field.name: field.type for field in table.sd.cols or ()}


def _as_hive_says(table: Table, name: str, statistics: ColumnStatistics) -> ColumnStatistics | None:
    """What Hive gives back of these statistics."""
    data = to_hive_statistics(_types(table).get(name.lower(), ""), statistics)
    return from_hive_statistics(data) if data is not None else None
