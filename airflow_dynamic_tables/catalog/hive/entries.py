"""The tables, dynamic tables and views of a Hive metastore."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from hive_metastore.ttypes import EnvironmentContext, Table

from airflow_dynamic_tables.catalog.hive.databases import MAX_NAME, HiveDatabases
from airflow_dynamic_tables.catalog.hive.tables import KIND, adopted, from_hive, to_hive, update
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogView
from airflow_dynamic_tables.clients.metastore.tables import REVISION
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, ConflictError, NotFoundError, TableNotFoundError

KEEP_STATISTICS = EnvironmentContext({"DO_NOT_UPDATE_STATS": "true"})
"""Or the metastore would list every folder that an alteration names."""

_ATTEMPTS = 20


class HiveEntries(HiveDatabases):
    """Tables, dynamic tables and views; every change of one is a compare-and-swap."""

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        return self._names(database, "get_all_tables", database)

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        kind = f'hive_filter_field_params__{KIND} = "dynamic_table"'
        return self._names(database, "get_table_names_by_filter", database, kind, -1)

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._names(database, "get_tables_by_type", database, "*", "VIRTUAL_VIEW")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`; the metastore has the current version only."""
        found = from_hive(self.name, self.load(path))
        if version is not None and not (isinstance(found, CatalogDynamicTable) and found.snapshot == version):
            raise TableNotFoundError(f"Table {path} in catalog {self.name} has no version {version}.")
        return found

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        try:
            self.load(path)
        except TableNotFoundError:
            return False
        return True

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`.

        :raises UnsupportedError: when a Hive table cannot have that name, those types or those properties.
        """
        database = self._database(path.database)
        self._check_name("table", path.name, MAX_NAME)
        made = to_hive(self.name, path, table, f"{database.locationUri}/{path.name}")
        if not isinstance(table, CatalogView) and not table.partition_keys:
            made.parameters["DO_NOT_UPDATE_STATS"] = "true"
        try:
            self._call("create_table", made)
        except AlreadyExistsError as error:
            if not ignore_if_exists:
                raise self._table_exists_already(path) from error

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`.

        Columns and location of a dynamic table that has a version are its commits' affair and stay as they are.
        """

        def change(found: Table) -> None:
            value = from_hive(self.name, found)
            if type(value) is not type(table):
                raise self._other_kind(path, value, table)
            update(self.name, found, table)

        try:
            self._change(path, change)
        except TableNotFoundError:
            if not ignore_if_not_exists:
                raise

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """See :meth:`ReadableWritableCatalog.adopt_table`."""
        if isinstance(self.get_table(path), CatalogDynamicTable):
            return False
        self._change(path, lambda found: adopted(self.name, path, found, table))
        return True

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        if ignore_if_not_exists and not self.table_exists(path):
            return
        found, renamed = self.load(path), ObjectPath(path.database, new_name)
        self._check_name("table", new_name, MAX_NAME)
        if self.table_exists(renamed):
            raise self._table_exists_already(renamed)
        found.tableName = new_name
        try:
            self._call("alter_table_with_environment_context", path.database, path.name, found, KEEP_STATISTICS)
        except AlreadyExistsError as error:
            raise self._table_exists_already(renamed) from error

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        try:
            if not self._is_legal(path.database, path.name):
                raise self._no_table(path)
            self._call("drop_table", path.database, path.name, False)
        except NotFoundError as error:
            if not ignore_if_not_exists:
                raise self._no_table(path) from error

    def load(self, path: ObjectPath) -> Table:
        """A table as the metastore has it.

        :raises TableNotFoundError: when it or its database is missing.
        """
        if not self._is_legal(path.database, path.name):
            raise self._no_table(path)
        try:
            return self._call("get_table", path.database, path.name)
        except NotFoundError as error:
            raise self._no_table(path) from error

    def _change(self, path: ObjectPath, change: Callable[[Table], None]) -> None:
        """Read a table, change it and write it, again if somebody else of us wrote meanwhile.

        :raises ConflictError: when that goes on for ever.
        """
        for attempt in range(_ATTEMPTS):
            found = self.load(path)
            revision = (found.parameters or {}).get(REVISION)
            change(found)
            try:
                if revision is not None:
                    found.parameters[REVISION] = uuid4().hex
                    with self._errors():
                        self.metastore.alter_table(found, REVISION, revision)
                else:  # nobody of us has written this one yet
                    self._call("alter_table_with_environment_context", path.database, path.name, found, KEEP_STATISTICS)
                return
            except ConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise

    def _names(self, database: str, method: str, *arguments: object) -> list[str]:
        if not self._is_legal(database):
            raise self._no_database(database)
        names = sorted(self._call(method, *arguments))
        if not names:
            self._database(database)  # a missing one has no tables, says the metastore
        return names
