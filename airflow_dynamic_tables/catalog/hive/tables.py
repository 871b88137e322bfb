"""Tables, dynamic tables and views of a Hive metastore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from hive_metastore.ttypes import Table, TableStatsRequest

from airflow_dynamic_tables.catalog import delta_entries as delta
from airflow_dynamic_tables.catalog.base import no_database, no_table, no_version, other_kind, table_taken
from airflow_dynamic_tables.catalog.hive.encoding import adopted, column_statistics_of, from_hive, statistics_of, to_hive, update
from airflow_dynamic_tables.catalog.hive.session import KEEP_STATISTICS, MAX_NAME, HiveDatabases, HiveSession, is_legal
from airflow_dynamic_tables.catalog.values import (
    ONE_OFF,
    AnyTable,
    CatalogDynamicTable,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.metastore.tables import KIND, REVISION, format_of, location_of
from airflow_dynamic_tables.clients.retrying import after_conflicts
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, ConflictError, NotFoundError, TableNotFoundError

_TOGETHER = 300
"""Tables per call: a table with its parameters takes some ten kilobytes."""


class _OvertakenError(ConflictError):
    """A concurrent write came first; unlike a conflict that a change itself reports, it is worth another attempt."""


@dataclass(frozen=True, slots=True)
class HiveTables:
    """Tables, dynamic tables and views; every change is a compare-and-swap."""

    session: HiveSession
    databases: HiveDatabases

    def names(self, database: str) -> list[str]:
        """Return the names of tables, dynamic tables and views, sorted."""
        return self._names(database, "get_all_tables", database)

    def dynamic_names(self, database: str) -> list[str]:
        """Return the names of the dynamic tables, sorted."""
        kind = f'hive_filter_field_params__{KIND} = "dynamic_table"'
        return self._names(database, "get_table_names_by_filter", database, kind, -1)

    def dynamic(self, database: str) -> dict[str, CatalogDynamicTable]:
        """Return the dynamic tables, hundreds per call."""
        names = self.dynamic_names(database)
        asked = (names[start : start + _TOGETHER] for start in range(0, len(names), _TOGETHER))
        stored = [table for some in asked for table in self.session.call("get_table_objects_by_name", database, some)]
        tables = {one.tableName: self.value(one) for one in sorted(stored, key=lambda one: str(one.tableName))}
        return {name: table for name, table in tables.items() if isinstance(table, CatalogDynamicTable)}

    def view_names(self, database: str) -> list[str]:
        """Return the names of the views, sorted."""
        return self._names(database, "get_tables_by_type", database, "*", "VIRTUAL_VIEW")

    def get(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """Return a table; the metastore has only the current version."""
        return self.as_stored(path, self.load(path), version)

    def as_stored(self, path: ObjectPath, stored: Table, version: str | None = None) -> AnyTable:
        """Return the result of :meth:`get` for a table that :meth:`load` returned."""
        table = self.value(stored)
        if delta.is_delta(table):
            known = delta.as_stored(replace(table, location=location_of(stored)), version)
            if known is None:
                raise no_version(self.session.catalog, path, str(version))
            return known
        if version is not None and not (isinstance(table, CatalogDynamicTable) and table.snapshot == version):
            raise no_version(self.session.catalog, path, version)
        return table

    def value(self, stored: Table) -> AnyTable:
        """Return the value of a metastore table."""
        return from_hive(self.session.catalog, stored)

    def location(self, path: ObjectPath, table_format: str) -> str | None:
        """Return the location of a table of this package; ``None`` when there is none of that name and format."""
        try:
            stored = self.load(path)
        except TableNotFoundError:
            return None
        parameters = stored.parameters or {}
        if (parameters.get(KIND) != "dynamic_table" and ONE_OFF not in parameters) or format_of(stored) != table_format:
            return None
        location = location_of(stored)
        return location.rstrip("/") if location is not None else None

    def statistics(self, path: ObjectPath) -> TableStatistics:
        """Return the size of a table, as far as Hive or Spark computed it."""
        return statistics_of(self.load(path).parameters or {})

    def column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Return statistics by column name, as far as Hive or Spark computed them."""
        names = {column.name.lower(): column.name for column in self.value(self.load(path)).columns}
        request = TableStatsRequest(path.database, path.name, list(names), engine="hive")
        answer = self.session.call("get_table_statistics_req", request).tableStats if names else ()
        return {names[one.colName]: column_statistics_of(one.statsData) for one in answer}

    def exists(self, path: ObjectPath) -> bool:
        """Return whether a table, dynamic table or view exists."""
        try:
            self.load(path)
        except TableNotFoundError:
            return False
        return True

    def create(self, path: ObjectPath, table: AnyTable) -> None:
        """Create a table, dynamic table or view.

        The folder of a dynamic table has a unique name: a renamed table keeps its folder, which must not be shared by the next
        table of the old name, nor by a table of that name in another metastore.

        :raises UnsupportedError: when a Hive table cannot have that name, those types or those properties.
        """
        database = self.databases.load(path.database)
        self.session.check_name("table", path.name, MAX_NAME)
        folder = f"{path.name}-{uuid4().hex}" if isinstance(table, CatalogDynamicTable) else path.name
        created = to_hive(self.session.catalog, path, table, f"{database.locationUri}/{folder}")
        if not isinstance(table, CatalogView) and not table.partition_keys:
            created.parameters["DO_NOT_UPDATE_STATS"] = "true"
        try:
            self.session.call("create_table", created)
        except AlreadyExistsError as error:
            raise table_taken(self.session.catalog, path) from error

    def change(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the metadata.

        Columns and location of a dynamic table that has a version are owned by its commits and are not changed.
        """
        seen: list[AnyTable] = []

        def replace_value(stored: Table) -> None:
            before = self.value(stored)
            after = change(before)
            if type(before) is not type(after):
                raise other_kind(self.session.catalog, path, before, after)
            update(self.session.catalog, stored, after)
            seen.append(before)

        self._change_stored(path, replace_value)
        return seen[-1]

    def adopt(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """Convert a table to a dynamic table; return whether it was not one before."""
        if isinstance(self.get(path), CatalogDynamicTable):
            return False
        self._change_stored(path, lambda stored: adopted(self.session.catalog, path, stored, table))
        return True

    def rename(self, path: ObjectPath, new_name: str) -> None:
        """Rename a table."""
        stored = self.load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("table", new_name, MAX_NAME)
        if self.exists(renamed):
            raise table_taken(self.session.catalog, renamed)
        stored.tableName = new_name
        try:
            self.session.call("alter_table_with_environment_context", path.database, path.name, stored, KEEP_STATISTICS)
        except AlreadyExistsError as error:
            raise table_taken(self.session.catalog, renamed) from error

    def drop(self, path: ObjectPath) -> None:
        """Drop a table, dynamic table or view; the data files are kept."""
        if not is_legal(path.database, path.name):
            raise no_table(self.session.catalog, path)
        try:
            self.session.call("drop_table", path.database, path.name, False)
        except NotFoundError as error:
            raise no_table(self.session.catalog, path) from error

    def load(self, path: ObjectPath) -> Table:
        """Return a table as stored in the metastore.

        :raises TableNotFoundError: when it or its database is missing.
        """
        if not is_legal(path.database, path.name):
            raise no_table(self.session.catalog, path)
        try:
            return self.session.call("get_table", path.database, path.name)
        except NotFoundError as error:
            raise no_table(self.session.catalog, path) from error

    def _change_stored(self, path: ObjectPath, change: Callable[[Table], None]) -> None:
        """Read, change and write a table; retry after a concurrent write of this package.

        :raises ConflictError: when every attempt conflicts.
        """

        def attempt() -> None:
            stored = self.load(path)
            revision = (stored.parameters or {}).get(REVISION)
            change(stored)
            if revision is not None:
                stored.parameters[REVISION] = uuid4().hex
                try:
                    with self.session.errors():
                        self.session.metastore.alter_table(stored, REVISION, revision)
                except ConflictError as error:
                    raise _OvertakenError(str(error)) from error
            else:  # not written by this package before
                self.session.call("alter_table_with_environment_context", path.database, path.name, stored, KEEP_STATISTICS)

        after_conflicts(_OvertakenError)(attempt)

    def _names(self, database: str, method: str, *arguments: object) -> list[str]:
        if not is_legal(database):
            raise no_database(self.session.catalog, database)
        names = sorted(self.session.call(method, *arguments))
        if not names:
            self.databases.load(database)  # the metastore returns no tables for a missing database
        return names
