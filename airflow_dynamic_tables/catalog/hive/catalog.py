"""A catalog in a Hive metastore: dynamic tables are ordinary Hive tables to every other engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from hive_metastore import ttypes
from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.catalog.hive.entries import KEEP_STATISTICS, HiveEntries
from airflow_dynamic_tables.catalog.hive.partitions import (
    from_hive_partition,
    new_partition,
    set_statistics,
    statistics_of,
    update_partition,
    values_of,
)
from airflow_dynamic_tables.catalog.hive.scan import Folder, HiveScan, reading
from airflow_dynamic_tables.catalog.hive.statistics import from_hive_statistics, to_hive_statistics
from airflow_dynamic_tables.catalog.hive.tables import from_hive, location_of
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogPartition, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.metastore.tables import (
    PREFIX,
    columns_of,
    file_uri,
    joined_parameter,
    partition_keys_of,
    partition_name,
    split_parameter,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    InvalidPartitionError,
    NotFoundError,
    PartitionNotFoundError,
)

BATCH = 1_000
"""Partitions asked for in one call."""

_COLUMN_STATISTICS = f"{PREFIX}column-statistics"


class HiveCatalog(HiveEntries):
    """Databases, tables, views, functions, partitions and statistics of a Hive metastore (2.3 and later).

    :param metastore: connections to it.
    :param warehouse: URI of the folder that new databases are placed in; by default the metastore's own.
    """

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """See :meth:`ReadableCatalog.list_partitions`."""
        found = self.load(path)
        keys = self._partition_keys(path, from_hive(self.name, found), spec or {})
        specs = (dict(zip(keys, values_of(name), strict=True)) for name in self._partition_names(found, keys, spec))
        # The metastore compares by pattern, and takes for the same what is only alike.
        return sorted((one for one in specs if (spec or {}).items() <= one.items()), key=lambda one: tuple(one.values()))

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`; a call for every thousand."""
        found = self.load(path)
        keys = self._partition_keys(path, from_hive(self.name, found), spec or {})
        made = (from_hive_partition(found, partition, keys) for partition in self.load_partitions(found, spec))
        return sorted(made, key=lambda partition: tuple(partition.spec.values()))

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """See :meth:`ReadableCatalog.get_partition`."""
        table, partition, keys = self._partition(path, spec)
        return from_hive_partition(table, partition, keys)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """See :meth:`ReadableWritableCatalog.create_partitions`.

        :raises InvalidPartitionError: also for an empty value, which Hive cannot tell from null.
        """
        found = self.load(path)
        value = from_hive(self.name, found)
        made: dict[tuple[str, ...], Partition] = {}
        for partition in partitions:
            spec = self._full_spec(path, value, partition.spec)
            if not all(spec.values()):
                raise InvalidPartitionError(
                    f"Table {path} in catalog {self.name}: a partition value of a Hive table is never empty."
                )
            key = tuple(spec.values())
            if key not in made:
                made[key] = new_partition(found, partition, key)
            elif not ignore_if_exists:
                raise self._partition_exists_already(path, spec)
        if not made:
            return
        request = ttypes.AddPartitionsRequest(path.database, path.name, list(made.values()), ignore_if_exists, needResult=False)
        try:
            self._call("add_partitions_req", request)
        except AlreadyExistsError as error:
            raise self._partition_exists_already(path, self._existing(path, value, made)) from error

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_partition`."""
        try:
            _, found, _ = self._partition(path, partition.spec)
            update_partition(found, partition)
            self._call("alter_partition_with_environment_context", path.database, path.name, found, KEEP_STATISTICS)
        except PartitionNotFoundError:
            if not ignore_if_not_exists:
                raise

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_partition`."""
        try:
            _, found, _ = self._partition(path, spec)
            self._call("drop_partition", path.database, path.name, found.values, False)
        except NotFoundError as error:
            if not ignore_if_not_exists:
                raise self._no_partition(path, spec) from error

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """See :meth:`ReadableCatalog.get_table_statistics`."""
        found = self.load(path)
        return statistics_of(found.parameters or {}) if spec is None else self.get_partition(path, spec).statistics

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table_statistics`."""
        if spec is not None:
            self.load(path)
            self.alter_partition(path, replace(self.get_partition(path, spec), statistics=statistics))
            return
        self._change(path, lambda found: set_statistics(found.parameters, statistics))

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """See :meth:`ReadableCatalog.get_column_statistics`; what Hive has no place for is kept beside, until Hive differs."""
        found = self.load(path)
        stored = json.loads(joined_parameter(found.parameters or {}, _COLUMN_STATISTICS) or "{}")
        names = {column.name.lower(): column.name for column in from_hive(self.name, found).columns}
        request = ttypes.TableStatsRequest(path.database, path.name, list(names), engine="hive")
        answer = self._call("get_table_statistics_req", request).tableStats if names else ()
        known = {names[one.colName]: from_hive_statistics(one.statsData) for one in answer}
        for name, value in stored.items():
            ours = ColumnStatistics(**value)
            if known.get(name) in (None, _as_hive_says(found, name, ours)):
                known[name] = ours
        return known

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """See :meth:`ReadableWritableCatalog.alter_column_statistics`."""
        before = self.get_column_statistics(path)
        text = json.dumps({name: asdict(value) for name, value in statistics.items()})

        def change(found: Table) -> None:
            others = {key: value for key, value in found.parameters.items() if not key.startswith(_COLUMN_STATISTICS)}
            found.parameters = {**others, **split_parameter(_COLUMN_STATISTICS, text)}

        self._change(path, change)
        types = _types(self.load(path))
        native = {name: to_hive_statistics(types.get(name.lower(), ""), value) for name, value in statistics.items()}
        for name in before:  # what a column had stays where the new value says nothing
            if name.lower() in types:
                self._forget_column(path, name.lower())
        objects = [
            ttypes.ColumnStatisticsObj(name.lower(), types[name.lower()], data)
            for name, data in native.items()
            if data is not None
        ]
        if objects:
            about = ttypes.ColumnStatisticsDesc(isTblLevel=True, dbName=path.database, tableName=path.name)
            self._call("update_table_column_statistics", ttypes.ColumnStatistics(about, objects, engine="hive"))

    def scan(self, path: ObjectPath) -> HiveScan:
        """How to read a table as files; a call for every thousand partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises UnsupportedError: when Spark cannot read it without Hive.
        """
        found = self.load(path)
        columns, keys = columns_of(found), partition_keys_of(found)
        file_format, options = reading(path, found, columns)
        if not keys:
            return HiveScan(file_format, options, columns, keys, (Folder(location_of(found) or "", {}),))
        folders = (
            Folder(file_uri(one.sd.location), dict(zip(keys, one.values, strict=True)), partition_name(keys, one.values))
            for one in self.load_partitions(found)
        )
        return HiveScan(file_format, options, columns, keys, tuple(sorted(folders, key=lambda folder: folder.name)))

    def load_partitions(self, found: Table, spec: PartitionSpec | None = None) -> list[Partition]:
        """The partitions of a table that agree with ``spec``, as the metastore has them."""
        keys = [field.name for field in found.partitionKeys]
        wanted = {key.lower(): value for key, value in (spec or {}).items()}
        names = self._partition_names(found, keys, wanted)
        place, partitions = (found.dbName, found.tableName), []
        for start in range(0, len(names), BATCH):
            partitions += self._call("get_partitions_by_names", *place, names[start : start + BATCH])
        return [one for one in partitions if wanted.items() <= dict(zip(keys, one.values, strict=True)).items()]

    def _partition_names(self, found: Table, keys: Sequence[str], spec: PartitionSpec | None) -> list[str]:
        values = [(spec or {}).get(key, "") for key in keys]
        if not any(values):
            return list(self._call("get_partition_names", found.dbName, found.tableName, -1))
        return list(self._call("get_partition_names_ps", found.dbName, found.tableName, values, -1))

    def _partition(self, path: ObjectPath, spec: PartitionSpec) -> tuple[Table, Partition, tuple[str, ...]]:
        """A table, one of its partitions and the keys of both.

        :raises PartitionNotFoundError: for every problem.
        """
        try:
            found = self.load(path)
            values = self._full_spec(path, from_hive(self.name, found), spec)
            partition = self._call("get_partition", path.database, path.name, list(values.values()))
        except (NotFoundError, InvalidPartitionError) as error:
            raise self._no_partition(path, spec) from error
        return found, partition, tuple(values)

    def _existing(self, path: ObjectPath, table: AnyTable, made: Mapping[tuple[str, ...], Partition]) -> dict[str, str]:
        """The first of some new partitions that is there already."""
        keys = self._partition_keys(path, table, {})
        names = {partition_name(keys, values): values for values in made}
        found = self._call("get_partitions_by_names", path.database, path.name, list(names))
        values = next((tuple(one.values) for one in found), next(iter(made)))
        return dict(zip(keys, values, strict=True))

    def _forget_column(self, path: ObjectPath, column: str) -> None:
        try:
            self._call("delete_table_column_statistics", path.database, path.name, column, "hive")
        except NotFoundError:
            return  # Hive had none


def _types(found: Table) -> dict[str, str]:
    return {field.name: field.type for field in found.sd.cols or ()}


def _as_hive_says(found: Table, name: str, statistics: ColumnStatistics) -> ColumnStatistics | None:
    """What Hive gives back of these statistics."""
    data = to_hive_statistics(_types(found).get(name.lower(), ""), statistics)
    return from_hive_statistics(data) if data is not None else None
