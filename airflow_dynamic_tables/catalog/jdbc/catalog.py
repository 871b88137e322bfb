"""PostgreSQL as a catalog to read: its databases, and their tables and views with columns in Spark's types.

The tables of schema ``public`` go by their own names, those of another schema by ``schema.table``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, Row, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.errors import (
    no_database,
    no_table,
)
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogTable
from airflow_dynamic_tables.clients.postgres.types import spark_type
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError

_DATABASES = "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate"
_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.oid, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
"""
_COLUMNS = """
SELECT a.attname AS name, a.attnotnull AS required, col_description(a.attrelid, a.attnum) AS comment,
  CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END AS type
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = :oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class JdbcScan:
    """How Spark's JDBC reader reads one table at one snapshot; ``options`` are Spark's, the password is none of them."""

    version: str
    options: Mapping[str, str]


class JdbcCatalog(ReadableCatalog):
    """The databases of a PostgreSQL server.

    :param url: URL of one database of the server, which is the default one.
    :raises ConfigurationError: when the URL is malformed or of another kind of server.
    """

    def __init__(self, name: str, url: str, default_database: str | None = None) -> None:
        self._url = _parsed(url)
        super().__init__(name, default_database or self._url.database or "postgres")
        self._snapshots: dict[str, Connection] = {}

    @property
    def password(self) -> str | None:
        """The password of its user."""
        return None if self._url.password is None else str(self._url.password)

    def open(self) -> None:
        """Connect once, so that a server that is down is noticed here."""
        self.list_databases()

    def close(self) -> None:
        """Let go of the snapshots that scans were bound to."""
        for connection in self._snapshots.values():
            with suppress(DBAPIError):
                connection.close()
        self._snapshots.clear()

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        with self._connected(self.default_database) as connection:
            return sorted(connection.scalars(text(_DATABASES)))

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        query = "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = :name"
        with self._connected(self.default_database) as connection:
            found = connection.execute(text(query), {"name": database}).first()
        if found is None:
            raise no_database(self.name, database)
        return CatalogDatabase(comment=found.comment)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`; views are tables here, as Spark reads both."""
        self.get_database(database)
        with self._connected(database) as connection:
            return sorted(_listed(row) for row in connection.execute(text(_TABLES)))

    def get_table(self, path: ObjectPath, version: str | None = None) -> CatalogTable:
        """See :meth:`ReadableCatalog.get_table`; PostgreSQL keeps no versions."""
        if version is not None or not self.database_exists(path.database):
            raise no_table(self.name, path)
        with self._connected(path.database) as connection:
            found = self._found(connection, path)
            columns = connection.execute(text(_COLUMNS), {"oid": found.oid}).all()
        return CatalogTable(
            tuple(Column(column.name, spark_type(column.type), not column.required, column.comment) for column in columns),
            comment=found.comment,
            format="jdbc",
            location=self._jdbc_url(path.database),
            options={"dbtable": _quoted(found)},
        )

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        if not self.database_exists(path.database):
            return False
        with self._connected(path.database) as connection:
            return _find(connection, path.name) is not None

    def scan(self, path: ObjectPath, options: Mapping[str, str]) -> JdbcScan:
        """Bind a table to the snapshot of its database that this catalog holds until it is closed.

        Every connection of Spark's reads that same snapshot, however many partitions it reads at once. Bounds that
        ``options`` leave out for their ``partitionColumn`` are looked up.

        :param options: options of Spark's JDBC reader.
        :raises TableNotFoundError: when the table is missing.
        :raises ConfigurationError: when the partition column is.
        """
        snapshot = self._snapshot(path)
        with self._connected(path.database) as connection:
            found = self._found(connection, path)
            bounds = self._bounds(connection, found, options)
        pin = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"
        return JdbcScan(
            f"snapshot:{snapshot}",
            {
                "fetchsize": "10000",  # without one, the driver fetches all rows at once, and outside of a transaction
                **bounds,
                **options,
                "url": self._jdbc_url(path.database),
                "driver": "org.postgresql.Driver",
                "dbtable": _quoted(found),
                "sessionInitStatement": pin,
                **({"user": self._url.username} if self._url.username else {}),
            },
        )

    def _snapshot(self, path: ObjectPath) -> str:
        """The snapshot of a database that is held; it lives as long as the transaction that exported it."""
        if not self.database_exists(path.database):
            raise no_table(self.name, path)
        with self._errors(path.database):
            if path.database not in self._snapshots:
                connection = self._engine(path.database).connect().execution_options(isolation_level="REPEATABLE READ")
                self._snapshots[path.database] = connection
            try:
                return str(self._snapshots[path.database].scalar(text("SELECT pg_export_snapshot()")))
            except DBAPIError:
                self._snapshots.pop(path.database).invalidate()  # the next one connects anew
                raise

    def _bounds(self, connection: Connection, table: Row[Any], options: Mapping[str, str]) -> dict[str, str]:
        column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
        if column is None:
            return {}
        known = {found.name: found.type for found in connection.execute(text(_COLUMNS), {"oid": table.oid})}
        if column not in known:
            raise ConfigurationError(
                f"{_listed(table)} has no column {column!r} to read partitions by; it has {', '.join(known)}."
            )
        named = '"' + column.replace('"', '""') + '"'
        # Only strides are made of them, no filters: they need not be of the same snapshot.
        query = f"SELECT min({named})::text, max({named})::text FROM {_quoted(table)}"
        low, high = connection.exec_driver_sql(query).one()
        if low is None:  # an empty table; Spark wants bounds all the same
            low = high = "1970-01-01" if spark_type(known[column]) in ("date", "timestamp") else "0"
        return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}

    def _found(self, connection: Connection, path: ObjectPath) -> Row[Any]:
        found = _find(connection, path.name)
        if found is None:
            raise no_table(self.name, path)
        return found

    @contextmanager
    def _connected(self, database: str) -> Iterator[Connection]:
        with self._errors(database), self._engine(database).connect() as connection:
            yield connection

    def _engine(self, database: str) -> Engine:
        try:
            return create_engine(self._url.set(database=database), poolclass=NullPool, connect_args={"connect_timeout": 10})
        except ModuleNotFoundError as error:
            raise MissingExtraError("postgres") from error

    @contextmanager
    def _errors(self, database: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split()) or type(error.orig).__name__
            raise CatalogUnavailableError(f"Cannot read {self._jdbc_url(database)} of catalog {self.name}: {reason}") from error

    def _jdbc_url(self, database: str) -> str:
        plain = URL.create("jdbc:postgresql", host=self._url.host, port=self._url.port, database=database, query=self._url.query)
        return plain.render_as_string()


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url.removeprefix("jdbc:"))
    except (ArgumentError, ValueError):
        # Without its cause, whose text may hold the password.
        raise ConfigurationError("the URL is malformed; write for example postgresql://user@host/database.") from None
    if parsed.drivername.partition("+")[0] not in ("postgresql", "postgres"):
        raise ConfigurationError(f"{parsed.drivername} is not supported; a jdbc catalog reads PostgreSQL.")
    return parsed.set(drivername="postgresql+psycopg")


def _find(connection: Connection, name: str) -> Row[Any] | None:
    """The table of that name: as it is listed, or with its schema though that is ``public``."""
    rows: Sequence[Row[Any]] = connection.execute(text(_TABLES)).all()
    return next((row for row in rows if name in (_listed(row), f"{row.schema}.{row.name}")), None)


def _listed(row: Row[Any]) -> str:
    return str(row.name) if row.schema == _PUBLIC else f"{row.schema}.{row.name}"


def _quoted(row: Row[Any]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (row.schema, row.name))
