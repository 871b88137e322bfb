"""A PostgreSQL server: its databases, queries and transactions on them, and the snapshots that Spark's connections share."""

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
"""A parameter that only libpq knows: where this machine has the passwords."""


_REFUSED = ("22", "23", "25", "40", "42", "53", "54", "55", "P0")
"""Classes of SQLSTATE with which a server says that it has not committed."""

_UNKNOWN_COMPLETION = "40003"

_ABANDONED = "120s"
"""After which the server ends a transaction whose client has died without a word, so that nothing stays locked."""


_SETTINGS = f"""
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
  set_config('idle_in_transaction_session_timeout', '{_ABANDONED}', true),
  set_config('row_security', 'off', true),
  set_config('DateStyle', 'ISO', true),
  set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)
"""
"""Of every transaction: rather an error than rows that nobody sees, dates in texts as Spark writes them, and what is committed
outlives a crash of the server.
"""

_CONNECT = {
    "client_encoding": "utf8",  # whatever the database has; of SQL_ASCII the driver would make bytes
    "prepare_threshold": None,  # a pooler hands the connection to others, with the statements prepared on it
}


class PostgresError(CatalogUnavailableError):
    """A PostgreSQL server refused something, or broke off.

    ``sqlstate`` is its code, ``None`` when it gave none; ``said`` is what it said, ``detail`` more of that.
    """

    def __init__(self, message: str, sqlstate: str | None, said: str, detail: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.said = said
        self.detail = detail


def literal(text: str) -> str:
    """Text as a literal of PostgreSQL, whatever its settings say of backslashes."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else " E'" + escaped.replace("\\", "\\\\") + "'"


def quote(*parts: str) -> str:
    """A dotted name of these parts as PostgreSQL writes it, every part quoted."""
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

        :param parameters: values for ``%(name)s`` in the query; without any, a percent sign in it is just that.
        """
        with self._errors():
            return list(self._execute(query, parameters))

    def run(self, statement: str, parameters: Mapping[str, object] | None = None) -> int:
        """Execute a statement.

        :return: how many rows it wrote.
        """
        with self._errors():
            return self._execute(statement, parameters).rowcount

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What the body wrote is taken back, and its locks are let go of, when it raises; the transaction goes on."""
        self.run("SAVEPOINT body")
        try:
            yield
        except BaseException:
            if not self._connection.invalidated:  # with the connection everything is gone
                self.run("ROLLBACK TO SAVEPOINT body")
            raise
        self.run("RELEASE SAVEPOINT body")

    def _execute(self, query: str, parameters: Mapping[str, object] | None) -> CursorResult[Any]:
        # Without the option, the driver would look for parameters in a query that has none.
        return self._connection.exec_driver_sql(query, parameters, execution_options={"no_parameters": True})


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
            yield OpenDatabase(connection, partial(self._errors, database))

    @contextmanager
    def transaction(self, database: str, lock_timeout: float) -> Iterator[OpenDatabase]:
        """A transaction that is committed when the body ends well.

        :param lock_timeout: seconds that a statement waits for a lock.
        :raises PostgresError: when the database cannot be reached or refuses a statement; surely nothing was committed.
        :raises CommitUnknownError: when the answer to the commit was lost.
        """
        with self._errors(database), self._engine(database).connect() as connection:
            # Whatever the user has by default: who has waited for a lock has to see what the others did meanwhile.
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
        """Let go of the snapshot of a database: a table cannot be replaced at once while one is held."""
        connection = self._snapshots.pop(database, None)
        if connection is not None:
            with suppress(DBAPIError):
                connection.close()

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
    """The code that a server gave with an error; ``None`` when it gave none, as when the connection broke."""
    return getattr(error.orig, "sqlstate", None)
