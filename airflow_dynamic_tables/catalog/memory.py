"""A catalog in process memory: for tests and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Self

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults
from airflow_dynamic_tables.catalog.errors import (
    database_taken,
    function_taken,
    no_database,
    no_function,
    no_table,
    not_empty,
    other_kind,
    partition_taken,
    table_taken,
)
from airflow_dynamic_tables.catalog.specs import full_spec, partition_keys
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


@dataclass(slots=True)
class _Table:
    """A table and what hangs on it: partitions by their values, statistics."""

    value: AnyTable
    partitions: dict[tuple[str, ...], CatalogPartition] = field(default_factory=dict)
    statistics: TableStatistics = field(default_factory=TableStatistics)
    columns: dict[str, ColumnStatistics] = field(default_factory=dict)


@dataclass(slots=True)
class _Database:
    value: CatalogDatabase
    tables: dict[str, _Table] = field(default_factory=dict)
    functions: dict[str, CatalogFunction] = field(default_factory=dict)


class MemoryCatalog(ReadableWritableCatalog):
    """Everything lives as long as this object; values are copied in and out."""

    def __init__(self, name: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._databases = {default_database: _Database(CatalogDatabase())}

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:  # noqa: ARG003 - it needs none
        """See :meth:`ReadableCatalog.from_entry`."""
        return cls(entry.name, entry.default_database or DEFAULT_DATABASE)

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return sorted(self._databases)

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        return deepcopy(self._database(database).value)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        if database not in self._databases:
            self._databases[database] = _Database(deepcopy(value))
        elif not ignore_if_exists:
            raise database_taken(self.name, database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        if database in self._databases or not ignore_if_not_exists:
            self._database(database).value = deepcopy(value)

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`."""
        if database not in self._databases and ignore_if_not_exists:
            return
        content = self._database(database)
        if new_name in self._databases:
            raise database_taken(self.name, new_name)
        self._databases[new_name] = content
        del self._databases[database]

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        if database not in self._databases and ignore_if_not_exists:
            return
        content = self._database(database)
        if (content.tables or content.functions) and not cascade:
            raise not_empty(self.name, database)
        del self._databases[database]

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        return self._names(database, object)

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return self._names(database, CatalogDynamicTable)

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._names(database, CatalogView)

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`; there are no versions here."""
        if version is not None:
            raise no_table(self.name, path)
        return deepcopy(self._table(path).value)

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        return path.database in self._databases and path.name in self._databases[path.database].tables

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        tables = self._database(path.database).tables
        if path.name not in tables:
            tables[path.name] = _Table(deepcopy(table))
        elif not ignore_if_exists:
            raise table_taken(self.name, path)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """See :meth:`ReadableWritableCatalog.change_table`."""
        current = self._table(path)
        before = current.value
        after = change(deepcopy(before))
        if type(before) is not type(after):
            raise other_kind(self.name, path, before, after)
        current.value = deepcopy(after)
        return before

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        if ignore_if_not_exists and not self.table_exists(path):
            return
        table = self._table(path)
        renamed = ObjectPath(path.database, new_name)
        if self.table_exists(renamed):
            raise table_taken(self.name, renamed)
        tables = self._databases[path.database].tables
        tables[new_name] = table
        del tables[path.name]

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        if self.table_exists(path):
            del self._databases[path.database].tables[path.name]
        elif not ignore_if_not_exists:
            raise no_table(self.name, path)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`."""
        table = self._table(path)
        wanted = (spec or {}).items()
        partition_keys(self.name, path, table.value, spec or {})
        in_order = (partition for _, partition in sorted(table.partitions.items()))
        return [deepcopy(partition) for partition in in_order if wanted <= partition.spec.items()]

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """See :meth:`ReadableWritableCatalog.create_partitions`."""
        table = self._table(path)
        created: dict[tuple[str, ...], CatalogPartition] = {}
        for partition in partitions:
            spec = full_spec(self.name, path, table.value, partition.spec)
            key = tuple(spec.values())
            if key not in table.partitions and key not in created:
                created[key] = replace(deepcopy(partition), spec=spec)
            elif not ignore_if_exists:
                raise partition_taken(self.name, path, spec)
        table.partitions.update(created)

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_partition`."""
        if key := self._partition_key(path, partition.spec, ignore_if_not_exists):
            table = self._table(path)
            table.partitions[key] = replace(deepcopy(partition), spec=table.partitions[key].spec)

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_partition`."""
        if key := self._partition_key(path, spec, ignore_if_not_exists):
            del self._table(path).partitions[key]

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """See :meth:`ReadableCatalog.get_table_statistics`."""
        table = self._table(path)
        return table.statistics if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """See :meth:`ReadableCatalog.get_column_statistics`."""
        return dict(self._table(path).columns)

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table_statistics`."""
        table = self._table(path)
        if spec is None:
            table.statistics = statistics
        else:
            self.alter_partition(path, replace(self.get_partition(path, spec), statistics=statistics))

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """See :meth:`ReadableWritableCatalog.alter_column_statistics`."""
        self._table(path).columns = dict(statistics)

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_functions`."""
        return sorted(self._database(database).functions)

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """See :meth:`ReadableCatalog.get_function`."""
        if not self.function_exists(path):
            raise no_function(self.name, path)
        return deepcopy(self._databases[path.database].functions[path.name.lower()])

    def function_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.function_exists`."""
        return path.database in self._databases and path.name.lower() in self._databases[path.database].functions

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_function`."""
        functions = self._database(path.database).functions
        if path.name.lower() not in functions:
            functions[path.name.lower()] = deepcopy(function)
        elif not ignore_if_exists:
            raise function_taken(self.name, path)

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_function`."""
        if self.function_exists(path):
            self._databases[path.database].functions[path.name.lower()] = deepcopy(function)
        elif not ignore_if_not_exists:
            raise no_function(self.name, path)

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_function`."""
        if ignore_if_not_exists and not self.function_exists(path):
            return
        function = self.get_function(path)
        renamed = ObjectPath(path.database, new_name)
        if self.function_exists(renamed):
            raise function_taken(self.name, renamed)
        self.create_function(renamed, function)
        self.drop_function(path)

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_function`."""
        if self.function_exists(path):
            del self._databases[path.database].functions[path.name.lower()]
        elif not ignore_if_not_exists:
            raise no_function(self.name, path)

    def _database(self, database: str) -> _Database:
        if database not in self._databases:
            raise no_database(self.name, database)
        return self._databases[database]

    def _table(self, path: ObjectPath) -> _Table:
        if not self.table_exists(path):
            raise no_table(self.name, path)
        return self._databases[path.database].tables[path.name]

    def _names(self, database: str, kind: type) -> list[str]:
        return sorted(name for name, table in self._database(database).tables.items() if isinstance(table.value, kind))

    def _partition_key(self, path: ObjectPath, spec: PartitionSpec, ignore: bool) -> tuple[str, ...] | None:
        """The key of a partition; ``None`` when it is missing and that is to be ignored."""
        if ignore and not self.partition_exists(path, spec):
            return None
        return tuple(self.get_partition(path, spec).spec.values())
