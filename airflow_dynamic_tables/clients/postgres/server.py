"""A PostgreSQL server to read from: its databases, queries on them, and the snapshots that Spark's connections share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.clients.sql_servers import advice, make_engine, parse_url, reason
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.redaction import is_secret_name

_PASSWORD_FILE = "passfile"
"""A parameter that only libpq knows: where this machine has the passwords."""


def quote(*parts: str) -> str:
    """A dotted name of these parts as PostgreSQL writes it, every part quoted."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


class OpenDatabase:
    """One connection to one database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, query: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        """Rows of a query, with an attribute for each column.

        :param parameters: values for ``%(name)s`` in the query; without any, a percent sign in it is just that.
        """
        # Without the option, the driver would look for parameters in a query that has none.
        return list(self._connection.exec_driver_sql(query, parameters, execution_options={"no_parameters": True}))


class PostgresServer:
    """A PostgreSQL server, by the URL of one of its databases; connects only when it is asked something.

    :param url: as SQLAlchemy or as JDBC writes it.
    :param reader: who reads it, for messages.
    :raises ConfigurationError: when the URL is malformed or of another kind of server.
    """

    def __init__(self, url: str, reader: str) -> None:
        parsed = parse_url(url.removeprefix("jdbc:"), "the URL")
        if parsed.get_backend_name() != "postgresql":
            raise ConfigurationError(f"{parsed.drivername} is not supported; a jdbc catalog reads PostgreSQL.")
        if secret := next((name for name in parsed.query if is_secret_name(name) and name != _PASSWORD_FILE), None):
            raise ConfigurationError(
                f"The URL has the parameter {secret!r}, which would stand in every plan; use a key without a password, "
                "in a file that only the user of Spark can read."
            )
        self._url = parsed
        self._reader = reader
        self._snapshots: dict[str, Connection] = {}

    @property
    def database(self) -> str | None:
        """The database that the URL names."""
        return self._url.database

    @property
    def user(self) -> str | None:
        """The user that the URL names."""
        return self._url.username

    @property
    def password(self) -> str | None:
        """The password of its user."""
        return None if self._url.password is None else str(self._url.password)

    def jdbc_url(self, database: str) -> str:
        """The URL of a database for Spark, without user and password."""
        query = {name: value for name, value in self._url.query.items() if name != _PASSWORD_FILE}
        plain = URL.create("jdbc:postgresql", host=self._url.host, port=self._url.port, database=database, query=query)
        return plain.render_as_string()

    @contextmanager
    def connected(self, database: str) -> Iterator[OpenDatabase]:
        """A connection to a database as long as the body runs.

        :raises CatalogUnavailableError: when the database cannot be reached or refuses a query.
        """
        with self._errors(database), self._engine(database).connect() as connection:
            yield OpenDatabase(connection)

    def export_snapshot(self, database: str) -> str:
        """The id of a snapshot of a database, which other connections can read at until :meth:`close`.

        :raises CatalogUnavailableError: when the database cannot be reached. The next call connects anew.
        """
        with self._errors(database):
            if database not in self._snapshots:
                # A snapshot lives as long as the transaction that exported it.
                connection = self._engine(database).connect().execution_options(isolation_level="REPEATABLE READ")
                self._snapshots[database] = connection
            try:
                return str(self._snapshots[database].exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
            except DBAPIError:
                self._snapshots.pop(database).invalidate()
                raise

    def close(self) -> None:
        """Let go of the snapshots."""
        for connection in self._snapshots.values():
            with suppress(DBAPIError):
                connection.close()
        self._snapshots.clear()

    def _engine(self, database: str) -> Engine:
        return make_engine(self._url.set(database=database), {})

    @contextmanager
    def _errors(self, database: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            todo = advice(self._url.set(database=database), error)
            message = f"Cannot read {self.jdbc_url(database)} of {self._reader}: {reason(error)}{todo}."
            raise CatalogUnavailableError(message) from error
