"""The part of the ``sql`` catalog that knows no tables: its connection, databases and functions."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, delete, select, update

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.sql.rows import DETAILS, FUNCTIONS, NAMESPACES, TABLES, Register, insert
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import databases
from airflow_dynamic_tables.core.identifiers import ObjectPath


class SqlDatabases(ReadableWritableCatalog):
    """Databases and functions as rows of ``dt_`` tables."""

    def __init__(self, name: str, database: Database, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._database = database

    def open(self) -> None:
        """Connect, and make sure that the default database exists."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Let go of connections."""
        self._database.close()

    def upgrade(self) -> None:
        """See :meth:`ReadableCatalog.upgrade`."""
        self._database.upgrade()

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        with self._database.transaction() as connection:
            return sorted(connection.scalars(select(databases.c.name).where(databases.c.catalog == self.name)))

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        with self._database.transaction() as connection:
            return self._found_database(connection, database)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        row = {"catalog": self.name, "name": database, "value": asdict(value)}
        with self._database.transaction() as connection:
            if not insert(self._database, connection, databases, row) and not ignore_if_exists:
                raise self._database_exists_already(database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        change = update(databases).where(*self._is_database(database)).values(value=asdict(value))
        with self._database.transaction() as connection:
            if connection.execute(change).rowcount == 0 and not ignore_if_not_exists:
                raise self._no_database(database)

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`; the files of its tables stay where they are."""
        with self._database.transaction() as connection:
            if not self._lock_database(connection, database):
                if ignore_if_not_exists:
                    return
                raise self._no_database(database)
            value = asdict(self._found_database(connection, database))
            if not insert(self._database, connection, databases, {"catalog": self.name, "name": new_name, "value": value}):
                raise self._database_exists_already(new_name)
            for register in (*TABLES, *DETAILS, FUNCTIONS, NAMESPACES):
                content = register.within(self.name, database)
                connection.execute(update(register.table).where(*content).values({register.database: new_name}))
            connection.execute(delete(databases).where(*self._is_database(database)))

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        with self._database.transaction() as connection:
            if not self._lock_database(connection, database):
                if ignore_if_not_exists:
                    return
                raise self._no_database(database)
            dropped = sum([self._delete(connection, register, database) for register in (*TABLES, FUNCTIONS)])
            if dropped and not cascade:
                raise self._not_empty(database)  # which rolls back
            for register in (*DETAILS, NAMESPACES):
                self._delete(connection, register, database)
            connection.execute(delete(databases).where(*self._is_database(database)))

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_functions`."""
        query = select(FUNCTIONS.table.c.name).where(*FUNCTIONS.within(self.name, database))
        with self._database.transaction() as connection:
            self._found_database(connection, database)
            return sorted(connection.scalars(query))

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """See :meth:`ReadableCatalog.get_function`."""
        query = select(FUNCTIONS.table.c.value).where(*self._is_function(path))
        with self._database.transaction() as connection:
            value = connection.scalar(query)
        if value is None:
            raise self._no_function(path)
        return CatalogFunction(**value)

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_function`."""
        row = {"catalog": self.name, "database": path.database, "name": path.name.lower(), "value": asdict(function)}
        with self._database.transaction() as connection:
            if not self._lock_database(connection, path.database):
                raise self._no_database(path.database)
            if not insert(self._database, connection, FUNCTIONS.table, row) and not ignore_if_exists:
                raise self._function_exists_already(path)

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_function`."""
        change = update(FUNCTIONS.table).where(*self._is_function(path)).values(value=asdict(function))
        with self._database.transaction() as connection:
            if connection.execute(change).rowcount == 0 and not ignore_if_not_exists:
                raise self._no_function(path)

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_function`."""
        renamed = ObjectPath(path.database, new_name.lower())
        with self._database.transaction() as connection:
            self._lock_database(connection, path.database)
            if not self._exists(connection, FUNCTIONS, ObjectPath(path.database, path.name.lower())):
                if ignore_if_not_exists:
                    return
                raise self._no_function(path)
            if self._exists(connection, FUNCTIONS, renamed):
                raise self._function_exists_already(renamed)
            connection.execute(update(FUNCTIONS.table).where(*self._is_function(path)).values(name=renamed.name))

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_function`."""
        with self._database.transaction() as connection:
            if not self._delete(connection, FUNCTIONS, path.database, path.name.lower()) and not ignore_if_not_exists:
                raise self._no_function(path)

    def _delete(self, connection: Connection, register: Register, database: str, name: str | None = None) -> int:
        """Delete everything in a database, or what has that name; how many rows that were."""
        return connection.execute(delete(register.table).where(*register.within(self.name, database, name))).rowcount

    def _lock_database(self, connection: Connection, database: str) -> bool:
        """Keep other writers out of a database until the end of the transaction; whether it exists."""
        query = select(databases.c.name).where(*self._is_database(database)).with_for_update()
        return connection.scalar(query) is not None

    def _found_database(self, connection: Connection, database: str) -> CatalogDatabase:
        value = connection.scalar(select(databases.c.value).where(*self._is_database(database)))
        if value is None:
            raise self._no_database(database)
        return CatalogDatabase(**value)

    def _is_database(self, database: str) -> tuple[ColumnElement[bool], ...]:
        return databases.c.catalog == self.name, databases.c.name == database

    def _is_function(self, path: ObjectPath) -> tuple[ColumnElement[bool], ...]:
        return FUNCTIONS.within(self.name, path.database, path.name.lower())

    def _exists(self, connection: Connection, register: Register, path: ObjectPath) -> bool:
        condition = register.within(self.name, path.database, path.name)
        return connection.scalar(select(1).select_from(register.table).where(*condition)) is not None
