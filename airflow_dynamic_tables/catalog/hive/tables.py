"""Tables, dynamic tables and views of a Hive metastore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from hive_metastore.ttypes import Table, TableStatsRequest

from airflow_dynamic_tables.catalog import delta_entries as delta
from airflow_dynamic_tables.catalog.base import is_found, no_database, no_table, no_version, other_kind, table_taken
from airflow_dynamic_tables.catalog.hive.encoding import adopted, column_statistics_of, from_hive, statistics_of, to_hive, update
from airflow_dynamic_tables.catalog.hive.session import KEEP_STATISTICS, MAX_NAME, HiveDatabases, is_legal
from airflow_dynamic_tables.catalog.values import (
    ONE_OFF,
    AnyTable,
    CatalogDynamicTable,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
    is_own,
)
from airflow_dynamic_tables.clients.metastore.tables import KIND, REVISION, format_of, location_of
from airflow_dynamic_tables.clients.retrying import after_conflicts
from airflow_dynamic_tables.core.identifiers import ObjectPath, is_draft
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import AlreadyExistsError, ConflictError, NotFoundError, TableNotFoundError

_TOGETHER = 300
"""Tables per call: a table with its parameters takes some ten kilobytes."""


class _OvertakenError(ConflictError):
    """A concurrent write came first; unlike a conflict that a change itself reports, it is worth another attempt."""


class HiveTables(HiveDatabases):
    """Tables, dynamic tables and views; every change is a compare-and-swap."""

    def list_tables(self, database: str) -> list[str]:
        return self._names(database, "get_all_tables", database)

    def list_dynamic_tables(self, database: str) -> list[str]:
        kind = f'hive_filter_field_params__{KIND} = "dynamic_table"'
        return self._names(database, "get_table_names_by_filter", database, kind, -1)

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        names = self.list_dynamic_tables(database)
        asked = (names[start : start + _TOGETHER] for start in range(0, len(names), _TOGETHER))
        stored = [table for some in asked for table in self.session.call("get_table_objects_by_name", database, some)]
        tables = {one.tableName: self.value(one) for one in sorted(stored, key=lambda one: str(one.tableName))}
        return {name: table for name, table in tables.items() if isinstance(table, CatalogDynamicTable)}

    def list_views(self, database: str) -> list[str]:
        return self._names(database, "get_tables_by_type", database, "*", "VIRTUAL_VIEW")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        return self.as_stored(path, self.load(path), version)

    def as_stored(self, path: ObjectPath, stored: Table, version: str | None = None) -> AnyTable:
        """Return the result of :meth:`get` for a table that :meth:`load` returned."""
        table = self.value(stored)
        if delta.is_delta(table):
            known = delta.as_stored(replace(table, location=location_of(stored)), version)
            if known is None:
                raise no_version(self.name, path, str(version))
            return known
        if version is not None and not (isinstance(table, CatalogDynamicTable) and table.snapshot == version):
            raise no_version(self.name, path, version)
        return table

    def value(self, stored: Table) -> AnyTable:
        """Return the value of a metastore table."""
        return from_hive(self.name, stored)

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

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        statistics = statistics_of(self.load(path).parameters or {})
        return statistics if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        names = {column.name.lower(): column.name for column in self.value(self.load(path)).columns}
        request = TableStatsRequest(path.database, path.name, list(names), engine="hive")
        answer = self.session.call("get_table_statistics_req", request).tableStats if names else ()
        return {names[one.colName]: column_statistics_of(one.statsData) for one in answer}

    def table_exists(self, path: ObjectPath) -> bool:
        return is_found(TableNotFoundError, self.load, path)

    def _create_table(self, path: ObjectPath, table: AnyTable) -> None:
        """Create a table, dynamic table or view.

        The folder of a table of this package has a unique name: a renamed table keeps its folder, which must not be shared by the
        next table of the old name, nor by a table of that name in another metastore. The name of a draft is unique already.
        """
        database = self.load_database(path.database)
        self.session.check_name("table", path.name, MAX_NAME)
        folder = f"{path.name}-{uuid4().hex}" if is_own(table) and not is_draft(path.name) else path.name
        created = to_hive(self.name, path, table, f"{database.locationUri}/{folder}")
        if not isinstance(table, CatalogView) and not table.partition_keys:
            created.parameters["DO_NOT_UPDATE_STATS"] = "true"
        try:
            self.session.call("create_table", created)
        except AlreadyExistsError as error:
            raise table_taken(self.name, path) from error

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the metadata.

        Columns and location of a dynamic table that has a version are owned by its commits and are not changed.
        """
        seen: list[AnyTable] = []

        def replace_value(stored: Table) -> None:
            before = self.value(stored)
            after = change(before)
            if type(before) is not type(after):
                raise other_kind(self.name, path, before, after)
            update(self.name, stored, after)
            seen.append(before)

        self._change_stored(path, replace_value)
        return seen[-1]

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        if isinstance(self.get_table(path), CatalogDynamicTable):
            return False
        self._change_stored(path, lambda stored: adopted(self.name, path, stored, table))
        return True

    def _rename_table(self, path: ObjectPath, new_name: str) -> None:
        stored = self.load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("table", new_name, MAX_NAME)
        if self.table_exists(renamed):
            raise table_taken(self.name, renamed)
        stored.tableName = new_name
        try:
            self.session.call("alter_table_with_environment_context", path.database, path.name, stored, KEEP_STATISTICS)
        except AlreadyExistsError as error:
            raise table_taken(self.name, renamed) from error

    def _drop_table(self, path: ObjectPath) -> None:
        if not is_legal(path.database, path.name):
            raise no_table(self.name, path)
        try:
            self.session.call("drop_table", path.database, path.name, False)
        except NotFoundError as error:
            raise no_table(self.name, path) from error

    def load(self, path: ObjectPath) -> Table:
        """Return a table as stored in the metastore.

        :raises TableNotFoundError: when it or its database is missing.
        """
        if not is_legal(path.database, path.name):
            raise no_table(self.name, path)
        try:
            return self.session.call("get_table", path.database, path.name)
        except NotFoundError as error:
            raise no_table(self.name, path) from error

    def _change_stored(self, path: ObjectPath, change: Callable[[Table], None]) -> None:
        """Read, change and write a table; retry after a concurrent write of this package."""

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
            raise no_database(self.name, database)
        names = sorted(self.session.call(method, *arguments))
        if not names:
            self.load_database(database)  # the metastore returns no tables for a missing database
        return names
