"""PostgreSQL as a catalog to read: its databases, and their tables and views with columns in Spark's types.

The tables of schema ``public`` go by their own names, those of another schema by ``schema.table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_dynamic_tables.catalog.base import CatalogEntry, Defaults, ReadableCatalog
from airflow_dynamic_tables.catalog.errors import no_database, no_table
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogTable
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresServer, quote
from airflow_dynamic_tables.clients.postgres.types import spark_type
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import ConfigurationError

_DATABASES = "SELECT datname AS name FROM pg_database WHERE datallowconn AND NOT datistemplate"
_DATABASE = "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = %(name)s"
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
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
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
        self._server = PostgresServer(url, f"catalog {name}")
        super().__init__(name, default_database or self._server.database or "postgres")

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:  # noqa: ARG003 - it needs none
        """See :meth:`ReadableCatalog.from_entry`."""
        return cls(entry.name, entry.required("url"), entry.default_database)

    @property
    def password(self) -> str | None:
        """The password of its user."""
        return self._server.password

    def open(self) -> None:
        """Connect once, so that a server that is down is noticed here."""
        self.list_databases()

    def close(self) -> None:
        """Let go of the snapshots that scans were bound to."""
        self._server.close()

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        with self._server.connected(self.default_database) as database:
            return sorted(row.name for row in database.rows(_DATABASES))

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        with self._server.connected(self.default_database) as opened:
            rows = opened.rows(_DATABASE, {"name": database})
        if not rows:
            raise no_database(self.name, database)
        return CatalogDatabase(comment=rows[0].comment)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`; views are tables here, as Spark reads both."""
        self.get_database(database)
        with self._server.connected(database) as opened:
            return sorted(map(_listed, opened.rows(_TABLES)))

    def get_table(self, path: ObjectPath, version: str | None = None) -> CatalogTable:
        """See :meth:`ReadableCatalog.get_table`; PostgreSQL keeps no versions."""
        if version is not None or not self.database_exists(path.database):
            raise no_table(self.name, path)
        with self._server.connected(path.database) as database:
            table = self._table(database, path)
            columns = database.rows(_COLUMNS, {"oid": table.oid})
        return CatalogTable(
            tuple(Column(column.name, spark_type(column.type), not column.required, column.comment) for column in columns),
            comment=table.comment,
            format="jdbc",
            location=self._server.jdbc_url(path.database),
            options={"dbtable": quote(table.schema, table.name)},
        )

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        if not self.database_exists(path.database):
            return False
        with self._server.connected(path.database) as database:
            return _find(database, path.name) is not None

    def scan(self, path: ObjectPath, options: Mapping[str, str]) -> JdbcScan:
        """Bind a table to the snapshot of its database that this catalog holds until it is closed.

        Every connection of Spark's reads that same snapshot, however many partitions it reads at once. Bounds that
        ``options`` leave out for their ``partitionColumn`` are looked up.

        :param options: options of Spark's JDBC reader.
        :raises TableNotFoundError: when the table is missing.
        :raises ConfigurationError: when the partition column is.
        """
        if not self.database_exists(path.database):
            raise no_table(self.name, path)
        snapshot = self._server.export_snapshot(path.database)
        with self._server.connected(path.database) as database:
            table = self._table(database, path)
            bounds = _bounds(database, table, options)
        pin = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"
        return JdbcScan(
            f"snapshot:{snapshot}",
            {
                "fetchsize": "10000",  # rows; without it, the driver fetches all at once, and outside of a transaction
                **bounds,
                **options,
                "url": self._server.jdbc_url(path.database),
                "driver": "org.postgresql.Driver",
                "dbtable": quote(table.schema, table.name),
                "sessionInitStatement": pin,
                **({"user": self._server.user} if self._server.user else {}),
            },
        )

    def _table(self, database: OpenDatabase, path: ObjectPath) -> Any:
        table = _find(database, path.name)
        if table is None:
            raise no_table(self.name, path)
        return table


def _find(database: OpenDatabase, name: str) -> Any:
    """The row of the table of that name, as it is listed, or with its schema though that is ``public``; ``None`` without one."""
    return next((row for row in database.rows(_TABLES) if name in (_listed(row), f"{row.schema}.{row.name}")), None)


def _listed(table: Any) -> str:
    return str(table.name) if table.schema == _PUBLIC else f"{table.schema}.{table.name}"


def _bounds(database: OpenDatabase, table: Any, options: Mapping[str, str]) -> dict[str, str]:
    """Spark's options for reading a table by strides of its partition column; none when the options name no such column."""
    column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
    if column is None:
        return {}
    types = {row.name: row.type for row in database.rows(_COLUMNS, {"oid": table.oid})}
    if column not in types:
        raise ConfigurationError(f"{_listed(table)} has no column {column!r} to read partitions by; it has {', '.join(types)}.")

    # Only strides are made of them, no filters: they need not be of the same snapshot.
    name = quote(column)
    query = f"SELECT min({name})::text AS low, max({name})::text AS high FROM {quote(table.schema, table.name)}"
    (bounds,) = database.rows(query)
    low = bounds.low
    high = bounds.high
    if low is None:  # an empty table; Spark wants bounds all the same
        low = high = "1970-01-01" if spark_type(types[column]) in ("date", "timestamp") else "0"
    return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}
