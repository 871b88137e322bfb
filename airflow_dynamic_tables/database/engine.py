"""Connections to the SQL database, and bringing its schema up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, NoSuchModuleError, OperationalError

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError

VERSION_TABLE = "dt_alembic_version"
_UPGRADE_LOCK = 0x64_745F_7570  # any constant: two processes that upgrade wait for one another


class Database:
    """One SQL database: SQLite, which upgrades itself, or PostgreSQL.

    :param url: SQLAlchemy URL; a PostgreSQL URL without a driver gets psycopg.
    :raises ConfigurationError: when the URL is malformed or of another database.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise ConfigurationError(f"{url!r} is no database URL; write for example postgresql://user@host/database") from error
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigurationError(f"{parsed.get_backend_name()} is not supported; the state lives in SQLite or PostgreSQL.")
        self._url = parsed
        self.url = parsed.render_as_string(hide_password=False)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self._engine: Engine | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that commits at the end of the body; on SQLite it holds the write lock from the start.

        :raises CatalogUnavailableError: when the database cannot be reached or breaks off.
        """
        try:
            with self._checked_engine().begin() as connection:
                yield connection
        except (OperationalError, InterfaceError) as error:
            raise self.unavailable(error) from error

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can be told what to do when the key is taken."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def unavailable(self, error: Exception) -> CatalogUnavailableError:
        """The error of a database that cannot be reached, without its password."""
        first_line = str(getattr(error, "orig", error)).strip().splitlines() or [type(error).__name__]
        return CatalogUnavailableError(f"Cannot reach {self}: {first_line[0]}; check that it runs and accepts connections.")

    def upgrade(self) -> None:
        """Bring the schema to the newest version; idempotent, and safe when several processes do it at once."""
        try:
            with self._raw_engine().connect() as connection:
                if not self.is_sqlite:
                    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _UPGRADE_LOCK})
                    connection.commit()
                config = _config()
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.commit()
                if not self.is_sqlite:
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _UPGRADE_LOCK})
        except (OperationalError, InterfaceError) as error:
            raise self.unavailable(error) from error

    def close(self) -> None:
        """Let go of pooled connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)

    def _checked_engine(self) -> Engine:
        if self._engine is None:
            engine = self._raw_engine()
            with engine.connect() as connection:
                current = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
            if current != _head():
                if not self.is_sqlite:
                    raise ConfigurationError(f"{self} is not at the newest schema; run: dynamic-tables db upgrade")
                self.upgrade()
            self._engine = engine
        return self._engine

    def _raw_engine(self) -> Engine:
        if self.is_sqlite and self._url.database:
            Path(self._url.database).parent.mkdir(parents=True, exist_ok=True)
        try:
            # No pool: Airflow forks its task processes, and a connection must never be shared by two.
            engine = create_engine(self._url, poolclass=NullPool, connect_args=_connect_args(self.is_sqlite))
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            raise MissingExtraError("postgres") from error
        if self.is_sqlite:
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_immediate)
        return engine


def _connect_args(is_sqlite: bool) -> dict[str, Any]:
    # SQLite: how long a writer waits for another one. PostgreSQL: how long a connection may take.
    return {"timeout": 60} if is_sqlite else {"connect_timeout": 10}


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()
