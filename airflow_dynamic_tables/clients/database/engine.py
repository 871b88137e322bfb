"""Connections to the SQL database, and schema upgrades."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, TableClause, column, event, inspect, select, table, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from airflow_dynamic_tables.clients.sql_servers import advice, make_engine, parse_url, reason, shown
from airflow_dynamic_tables.exceptions import CatalogError, CatalogUnavailableError, ConfigurationError

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.dialects import postgresql

VERSION_TABLE = "dt_alembic_version"
_MIGRATIONS = Path(__file__).parent / "migrations"
# It logs every check of the schema version, which would appear in the log of every refresh.
logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)

_PATIENCE = 60
"""Seconds that an SQLite writer waits for another one; a commit takes much less."""

_SCHEMA_LOCK = 0x64_745F_7570  # any constant: serializes processes that change the schema


_DAMAGED = "; restore the file from a backup, or name another one"
_FILE_ADVICE = {
    sqlite3.SQLITE_BUSY: "; another process writes to it; try again",
    sqlite3.SQLITE_CANTOPEN: "; its folder must exist and be writable",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: "; make room on its disk",
    sqlite3.SQLITE_IOERR: "; check its disk",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: "; file and folder must be writable",
}
"""Advice for errors of an SQLite file, by the primary error code."""


class Database:
    """One SQL database: SQLite, which upgrades itself, or PostgreSQL.

    :param url: SQLAlchemy URL; psycopg is always used for PostgreSQL, whatever driver the URL names.
    :param private_files: a new SQLite file, and its folder if new, are accessible by their owner only, whatever the umask.
    :raises ConfigurationError: when the URL is malformed or of another database.
    """

    def __init__(self, url: str, *, private_files: bool = True) -> None:
        parsed = parse_url(url, "The database URL")
        backend = parsed.get_backend_name()
        if backend not in ("postgresql", "sqlite"):
            raise ConfigurationError(f"{backend} is not supported; the state lives in SQLite or PostgreSQL.")
        if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise ConfigurationError("SQLite in memory is gone with its connection; write sqlite:///path/to/state.db.")
        self._url = parsed
        self.url = parsed.render_as_string(hide_password=False)
        self.is_sqlite = backend == "sqlite"
        self._private_files = private_files
        self._engine: Engine | None = None
        self._kept: Connection | None = None

    @classmethod
    def in_memory(cls) -> Database:
        """An SQLite database in the memory of this process; it exists as long as this object."""
        return cls(f"sqlite:///file:/{uuid4()}?vfs=memdb&uri=true", private_files=False)

    @property
    def is_begun(self) -> bool:
        """Return whether the SQLite file exists; always True for a server, which is not queried."""
        return not self.is_sqlite or Path(self._url.database or "").exists()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that commits at the end of the body; on SQLite it holds the write lock from the start.

        :raises CatalogUnavailableError: when the database cannot be reached or the connection breaks.
        :raises CatalogError: when it refuses a statement.
        """
        with self.errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def changing_schema(self) -> Iterator[Connection]:
        """A :meth:`transaction` that excludes concurrent changes of the schema.

        :raises CatalogUnavailableError: when the database cannot be reached or the connection breaks.
        :raises CatalogError: when it refuses a statement.
        """
        with self.transaction() as connection:
            self._lock_schema(connection)
            yield connection

    @property
    def engine(self) -> Engine:
        """The engine, after a check that the schema is up to date.

        :raises ConfigurationError: when it is not and must be upgraded manually.
        """
        if self._engine is None:
            engine = self._raw_engine()
            if self._url.query.get("vfs") == "memdb":
                # The database exists as long as a connection is open, and the engine does not pool connections.
                self._kept = engine.connect()
            with engine.connect() as connection:
                current = self._revision(connection)
            if current != _head():
                if not self.is_sqlite:
                    raise ConfigurationError(f"{self} is not at the newest schema; run: dynamic-tables db upgrade")
                self.upgrade()
            self._engine = engine
        return self._engine

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the driver's errors to this package's exceptions."""
        try:
            yield
        except DBAPIError as error:
            todo = _file_advice(error) if self.is_sqlite else advice(self._url, error)
            if not isinstance(error, OperationalError | InterfaceError):
                raise CatalogError(f"{self} refused: {reason(error)}{todo}.") from error
            raise CatalogUnavailableError(f"Cannot reach {self}: {reason(error)}{todo}.") from error

    def insert(self, table: TableClause) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that supports a clause for conflicting keys."""
        if self.is_sqlite:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # its drivers take a tenth of a second to import, and SQLite needs none

        return postgresql.insert(table)

    def upgrade(self) -> None:
        """Upgrade the schema to the latest version; idempotent, and safe when several processes run it concurrently.

        :raises ConfigurationError: when a newer release of this package upgraded it already.
        """
        # Imported here because it accounts for a tenth of a command's import time and is rarely needed.
        from alembic import command

        config = _config()
        with self.errors(), self._raw_engine().begin() as connection:
            self._lock_schema(connection)
            self._revision(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def close(self) -> None:
        """Close pooled connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def __str__(self) -> str:
        return shown(self._url)

    def _lock_schema(self, connection: Connection) -> None:
        if not self.is_sqlite:  # SQLite's transaction already holds the write lock
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})

    def _revision(self, connection: Connection) -> str | None:
        """The current migration of this database; ``None`` before the first one."""
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        current: str | None = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
        if current is not None and current not in _revisions():
            raise ConfigurationError(f"{self} belongs to a newer release of airflow-dynamic-tables; install that one.")
        return current

    def _make_file(self, file: Path) -> None:
        """Create the folder and the empty file of a new database; existing ones stay unchanged."""
        try:
            file.parent.mkdir(mode=0o700 if self._private_files else 0o777, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{file.parent}: cannot be made ({error.strerror}); {self} is to live there.") from error
        if self._private_files and not str(file).startswith("file:"):
            with suppress(OSError):  # it exists, or SQLite reports why it cannot be created
                os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))

    def _raw_engine(self) -> Engine:
        if self.is_sqlite:
            self._make_file(Path(str(self._url.database)))
        engine = make_engine(self._url, _connect_args(self._url))
        if self.is_sqlite:
            event.listen(engine, "first_connect", _use_wal)
            event.listen(engine, "begin", _begin_immediate)
        return engine


def _connect_args(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"timeout": _PATIENCE, "isolation_level": None}  # the driver must not begin transactions itself
    # A process that is suspended or disconnected within a transaction must not block all others.
    return {"options": url.query.get("options", "-c idle_in_transaction_session_timeout=60s")}


def _file_advice(error: DBAPIError) -> str:
    """Advice for an SQLite file that cannot be used, as the end of a message; empty for other errors."""
    extended = getattr(error.orig, "sqlite_errorcode", None)  # an error of a closed connection has no code
    return "" if extended is None else _FILE_ADVICE.get(extended & 0xFF, "")


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


# SQLite does not wait for a writer of a new file when the journal mode is changed, whatever the timeout.
@retry(retry=retry_if_exception(_is_locked), stop=stop_after_delay(_PATIENCE), wait=wait_random(0.01, 0.1), reraise=True)
def _use_wal(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _head() -> str:
    return max(_revisions())


@cache
def _revisions() -> frozenset[str]:
    """All migrations by their file names, so that a migration's module is only imported to run it."""
    return frozenset(file.name[1:5] for file in (_MIGRATIONS / "versions").glob("r[0-9][0-9][0-9][0-9]_*.py"))
