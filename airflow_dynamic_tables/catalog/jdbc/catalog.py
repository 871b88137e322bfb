"""PostgreSQL as a catalog to read: its databases, and their tables and views with columns in Spark's types."""

from __future__ import annotations

import re
from typing import Self

from airflow_dynamic_tables.catalog.base import CatalogEntry, Defaults, ReadableCatalog
from airflow_dynamic_tables.catalog.errors import no_database, no_table
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogTable
from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.clients.postgres.tables import columns_of, find_table, list_databases, list_tables
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath

_DATABASE = "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = %(name)s"


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

    def stores(self) -> tuple[PostgresStore]:
        """See :meth:`ReadableCatalog.stores`."""
        variable = re.sub(r"\W", "_", f"DYNAMIC_TABLES_PASSWORD_{self.name.upper()}", flags=re.ASCII)
        password = self._server.password
        return (PostgresStore(self.name, self._server, {variable: password} if password is not None else {}),)

    def open(self) -> None:
        """Connect once, so that a server that is down is noticed here."""
        self.list_databases()

    def close(self) -> None:
        """Let go of the snapshots that sources were bound to."""
        self._server.close()

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return list_databases(self._server, self.default_database)

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
            return sorted(table.listed for table in list_tables(opened))

    def get_table(self, path: ObjectPath, version: str | None = None) -> CatalogTable:
        """See :meth:`ReadableCatalog.get_table`; PostgreSQL keeps no versions."""
        if version is not None or not self.database_exists(path.database):
            raise no_table(self.name, path)
        with self._server.connected(path.database) as database:
            table = find_table(database, path.name)
            if table is None:
                raise no_table(self.name, path)
            columns = columns_of(database, table)
        return CatalogTable(
            columns,
            comment=table.comment,
            format="jdbc",
            location=self._server.jdbc_url(path.database),
            options={"dbtable": table.quoted},
        )

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        if not self.database_exists(path.database):
            return False
        with self._server.connected(path.database) as database:
            return find_table(database, path.name) is not None
