"""A PostgreSQL server: databases, queries, transactions, and snapshots shared with Spark's connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.clients.sql_servers import advice, make_engine, parse_url, reason
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitUnknownError, ConfigurationError
from airflow_dynamic_tables.redaction import is_secret_name

_PASSWORD_FILE = "passfile"
"""A parameter that only libpq supports: the path of the local password file."""


_REFUSED = ("22", "23", "25", "40", "42", "53", "54", "55", "P0")
"""SQLSTATE classes of errors after which a commit certainly did not happen."""

_UNKNOWN_COMPLETION = "40003"

_ABANDONED = "120s"
"""Timeout after which the server ends a transaction whose client died silently, so that no lock remains."""


_SETTINGS = f"""
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
  set_config('idle_in_transaction_session_timeout', '{_ABANDONED}', true),
  set_config('row_security', 'off', true),
  set_config('DateStyle', 'ISO', true),
  set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)
"""
"""Settings of every transaction.

Rows hidden by row security are an error, texts have dates as Spark writes them, and commits survive a crash of the server.
"""

_CONNECT = {
    "client_encoding": "utf8",  # independent of the database's encoding; with SQL_ASCII the driver would return bytes
    "prepare_threshold": None,  # a pooler may give the connection, with its prepared statements, to other clients
}


class PostgresError(CatalogUnavailableError):
    """A PostgreSQL server refused a statement or lost the connection.

    ``sqlstate`` is the server's error code, ``None`` without one; ``said`` is its message, ``detail`` the message's detail.
    """

    def __init__(self, message: str, sqlstate: str | None, said: str, detail: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.said = said
        self.detail = detail


def literal(text: str) -> str:
    """Text as a PostgreSQL literal, independent of the server's backslash settings."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else " E'" + escaped.replace("\\", "\\\\") + "'"


def quote(*parts: str) -> str:
    """A qualified PostgreSQL name of these parts, each quoted."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


class OpenDatabase:
    """One connection to one database. Every method may raise :class:`PostgresError`."""

    def __init__(self, connection: Connection, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._connection = connection
        self._errors = errors

    @property
    def user(self) -> str:
        """The user who is logged in."""
        return str(self._connection.engine.url.username)

    def rows(self, query: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        """Rows of a query, with an attribute for each column.

        :param parameters: values for ``%(name)s`` in the query; without parameters, a percent sign is literal.
        """
        with self._errors():
            return list(self._execute(query, parameters))

    def run(self, statement: str, parameters: Mapping[str, object] | None = None) -> int:
        """Execute a statement.

        :return: the number of rows written.
        """
        with self._errors():
            return self._execute(statement, parameters).rowcount

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the body's writes and release its locks when it raises; the transaction continues."""
        self.run("SAVEPOINT body")
        try:
            yield
        except BaseException:
            if not self._connection.invalidated:  # a lost connection has no savepoint
                self.run("ROLLBACK TO SAVEPOINT body")
            raise
        self.run("RELEASE SAVEPOINT body")

    def _execute(self, query: str, parameters: Mapping[str, object] | None) -> CursorResult[Any]:
        # Without the option, the driver would look for parameters in a query that has none.
        return self._connection.exec_driver_sql(query, parameters, execution_options={"no_parameters": True})


class PostgresServer:
    """A PostgreSQL server, by the URL of one of its databases; connections are opened lazily.

    :param url: in SQLAlchemy's or JDBC's format.
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
        """The database in the URL."""
        return self._url.database

    @property
    def user(self) -> str | None:
        """The user in the URL."""
        return self._url.username

    @property
    def password(self) -> str | None:
        """The password of its user."""
        return None if self._url.password is None else str(self._url.password)

    def jdbc_url(self, database: str) -> str:
        """The JDBC URL of a database for Spark, without user and password."""
        query = {name: value for name, value in self._url.query.items() if name != _PASSWORD_FILE}
        plain = URL.create("jdbc:postgresql", host=self._url.host, port=self._url.port, database=database, query=query)
        return plain.render_as_string()

    @property
    def dataset_namespace(self) -> str:
        """The namespace of its tables in OpenLineage."""
        host = f"[{self._url.host}]" if ":" in (self._url.host or "") else self._url.host
        return f"postgres://{host}:{self._url.port or 5432}"

    @contextmanager
    def connected(self, database: str) -> Iterator[OpenDatabase]:
        """A connection to a database for the duration of the body.

        :raises CatalogUnavailableError: when the database cannot be reached or refuses a query.
        """
        with self._errors(database), self._engine(database).connect() as connection:
            yield OpenDatabase(connection, partial(self._errors, database))

    @contextmanager
    def transaction(self, database: str, lock_timeout: float) -> Iterator[OpenDatabase]:
        """A transaction that commits when the body succeeds.

        :param lock_timeout: seconds that a statement waits for a lock.
        :raises PostgresError: when the database cannot be reached or refuses a statement; nothing was committed.
        :raises CommitUnknownError: when the response to the commit was lost.
        """
        with self._errors(database), self._engine(database).connect() as connection:
            # Independent of the user's default: after waiting for a lock, a statement must see what others committed meanwhile.
            connection = connection.execution_options(isolation_level="READ COMMITTED")
            connection.exec_driver_sql(_SETTINGS, {"lock_timeout": str(int(lock_timeout * 1000))})
            yield OpenDatabase(connection, partial(self._errors, database))
            try:
                connection.commit()
            except DBAPIError as error:
                state = sqlstate(error) or ""
                if state[:2] in _REFUSED and state != _UNKNOWN_COMPLETION:
                    raise
                raise CommitUnknownError(f"{self.jdbc_url(database)} gave no answer to COMMIT: {reason(error)}.") from error

    def release(self, database: str) -> None:
        """Release the snapshot of a database, which would delay replacing a table."""
        connection = self._snapshots.pop(database, None)
        if connection is not None:
            with suppress(DBAPIError):
                connection.close()

    def export_snapshot(self, database: str) -> str:
        """The id of a snapshot of a database, which other connections can read until :meth:`close`.

        :raises CatalogUnavailableError: when the database cannot be reached. The next call reconnects.
        """
        with self._errors(database):
            if database not in self._snapshots:
                # A snapshot exists as long as the transaction that exported it.
                connection = self._engine(database).connect().execution_options(isolation_level="REPEATABLE READ")
                self._snapshots[database] = connection
            try:
                return str(self._snapshots[database].exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
            except DBAPIError:
                self._snapshots.pop(database).invalidate()
                raise

    @contextmanager
    def at_snapshot(self, database: str, snapshot: str) -> Iterator[OpenDatabase]:
        """A connection that reads an exported snapshot; dates and times as text are ISO 8601, in UTC.

        :raises CatalogUnavailableError: when the database cannot be reached or refuses a query.
        """
        with self._errors(database), self._engine(database).connect() as connection:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
            connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            for setting, value in (("datestyle", "ISO, YMD"), ("timezone", "UTC"), ("bytea_output", "hex")):
                connection.exec_driver_sql(f"SET LOCAL {setting} TO '{value}'")
            yield OpenDatabase(connection, partial(self._errors, database))

    def close(self) -> None:
        """Release all snapshots."""
        for database in list(self._snapshots):
            self.release(database)

    def _engine(self, database: str) -> Engine:
        return make_engine(self._url.set(database=database), _CONNECT)

    @contextmanager
    def _errors(self, database: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            todo = advice(self._url.set(database=database), error)
            message = f"Cannot read {self.jdbc_url(database)} of {self._reader}: {reason(error)}{todo}."
            detail = getattr(getattr(error.orig, "diag", None), "message_detail", None) or ""
            raise PostgresError(message, sqlstate(error), reason(error), detail) from error


def sqlstate(error: DBAPIError) -> str | None:
    """The server's code of an error; ``None`` without one, as for a lost connection."""
    return getattr(error.orig, "sqlstate", None)
