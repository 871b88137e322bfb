"""A catalog in process memory: for tests and dry runs."""

from __future__ import annotations

from copy import deepcopy

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath


class MemoryCatalog(ReadableWritableCatalog):
    """Databases, tables, dynamic tables and views that live as long as this object; values are copied in and out."""

    def __init__(self, name: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._databases: dict[str, CatalogDatabase] = {default_database: CatalogDatabase()}
        self._tables: dict[str, dict[str, AnyTable]] = {default_database: {}}

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return sorted(self._databases)

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        if database not in self._databases:
            raise self._no_database(database)
        return deepcopy(self._databases[database])

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        if database not in self._databases:
            self._databases[database], self._tables[database] = deepcopy(value), {}
        elif not ignore_if_exists:
            raise self._database_exists_already(database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        if database in self._databases:
            self._databases[database] = deepcopy(value)
        elif not ignore_if_not_exists:
            raise self._no_database(database)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        if database not in self._databases:
            if ignore_if_not_exists:
                return
            raise self._no_database(database)
        if self._tables[database] and not cascade:
            raise self._not_empty(database)
        del self._databases[database], self._tables[database]

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
        if version is not None or not self.table_exists(path):
            raise self._no_table(path)
        return deepcopy(self._tables[path.database][path.name])

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        return path.name in self._tables.get(path.database, {})

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        self.get_database(path.database)
        if not self.table_exists(path):
            self._tables[path.database][path.name] = deepcopy(table)
        elif not ignore_if_exists:
            raise self._table_exists_already(path)

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`."""
        if self._missing(path, ignore_if_not_exists):
            return
        found = self._tables[path.database][path.name]
        if type(found) is not type(table):
            raise self._other_kind(path, found, table)
        self._tables[path.database][path.name] = deepcopy(table)

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        if self._missing(path, ignore_if_not_exists):
            return
        renamed = ObjectPath(path.database, new_name)
        if self.table_exists(renamed):
            raise self._table_exists_already(renamed)
        tables = self._tables[path.database]
        tables[new_name] = tables.pop(path.name)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        if not self._missing(path, ignore_if_not_exists):
            del self._tables[path.database][path.name]

    def _missing(self, path: ObjectPath, ignore: bool) -> bool:
        if self.table_exists(path):
            return False
        if ignore:
            return True
        raise self._no_table(path)

    def _names(self, database: str, kind: type) -> list[str]:
        self.get_database(database)
        return sorted(name for name, table in self._tables[database].items() if isinstance(table, kind))
