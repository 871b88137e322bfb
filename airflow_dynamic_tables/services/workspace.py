"""Everything a use case works on: ledger, catalogs and the clock; and how that is put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_dynamic_tables.catalog.base import Defaults, ReadableCatalog
from airflow_dynamic_tables.catalog.file import embedded_catalogs, load_catalogs
from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogView
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.registry import default_format, open_table
from airflow_dynamic_tables.ledger.base import Ledger
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.schedulers.base import WorkflowScheduler
from airflow_dynamic_tables.schedulers.registry import open_scheduler
from airflow_dynamic_tables.services.settings import Settings

if TYPE_CHECKING:
    from airflow_dynamic_tables.services.outcomes import Listener


def utc_now() -> datetime:
    """The time now, timezone-aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Ledger, catalogs and clock of one installation, made by :func:`open_workspace`; a context manager that closes them.

    ``listeners`` receive the outcome of every write.
    """

    settings: Settings
    ledger: Ledger
    catalogs: CatalogManager
    clock: Callable[[], datetime] = utc_now
    schedulers: Callable[[str, Connections], WorkflowScheduler] = open_scheduler
    listeners: tuple[Listener, ...] = ()

    def now(self) -> datetime:
        """The time by the workspace's clock, timezone-aware."""
        return self.clock()

    def with_listener(self, listener: Listener) -> Workspace:
        """The same workspace with one more listener."""
        return replace(self, listeners=(*self.listeners, listener))

    def scheduler(self, name: str) -> WorkflowScheduler:
        """A scheduler of workflows, to be used as a context manager; connects to nothing yet.

        :raises ConfigurationError: when there is none of that name, or its connection is missing or wrong.
        """
        return self.schedulers(name, self.settings.connections)

    def catalog(self, name: str) -> ReadableWritableCatalog:
        """A catalog that dynamic tables can live in, opened; before it writes into the embedded warehouse, that is made private.

        :raises CatalogNotFoundError: when the catalogs file does not name it.
        :raises UnsupportedError: when it is read-only.
        """
        catalog = self.catalogs.get(name)
        if (home := self.settings.private_home) is not None:
            with suppress(OSError):  # what writes there says what is wrong
                home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not isinstance(catalog, ReadableWritableCatalog):
            raise UnsupportedError(f"Catalog {name} is read-only; dynamic tables cannot live in it.")
        return catalog

    def readable(self, name: str) -> ReadableCatalog:
        """A catalog of any type, opened.

        :raises CatalogNotFoundError: when the catalogs file does not name it.
        """
        return self.catalogs.get(name)

    def table(
        self,
        identifier: TableIdentifier,
        format: str | None = None,  # noqa: A002 - the field's word
        atomicity: str = "none",
    ) -> LakeTable:
        """A table that is refreshed here.

        :param format: left out, the one that its catalog has it in, or the default one of the catalog when that does not know it.
        :param atomicity: ``staged`` refuses a format that this catalog cannot commit in one step.
        :raises UnsupportedError: when the catalog cannot hold that format, or not as atomically as asked for.
        """
        catalog = self.catalog(identifier.catalog)
        return open_table(identifier, format or _format_of(catalog, identifier), catalog.stores(), atomicity)

    def dynamic_table(self, identifier: TableIdentifier) -> CatalogDynamicTable:
        """A dynamic table as its catalog has it.

        :raises TableNotFoundError: when there is none.
        """
        return as_dynamic(identifier, self.catalog(identifier.catalog).get_table(identifier.path))

    def close(self) -> None:
        """Let go of every connection."""
        self.catalogs.close()
        self.ledger.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _format_of(catalog: ReadableCatalog, identifier: TableIdentifier) -> str:
    try:
        entry = catalog.get_table(identifier.path)
    except TableNotFoundError:
        return default_format(catalog.stores())
    return default_format(catalog.stores()) if isinstance(entry, CatalogView) else entry.format


def as_dynamic(identifier: TableIdentifier, table: AnyTable) -> CatalogDynamicTable:
    """What a catalog has by a name, as a dynamic table.

    :raises TableNotFoundError: when it is something else.
    """
    if not isinstance(table, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    return table


def has_state(settings: Settings) -> bool:
    """Whether there is a database of the ledger: the file of one, or a server, which is not asked.

    :raises ConfigurationError: when its URL is malformed.
    """
    return Database(settings.database_url).is_begun


def open_workspace(settings: Settings, clock: Callable[[], datetime] = utc_now) -> Workspace:
    """Put a workspace together. Connects to nothing yet: ledger and catalogs do so when they are first asked.

    Without a catalogs file every catalog name is an embedded ``sql`` catalog in the ledger's database.

    :raises ConfigurationError: when the database URL is malformed.
    :raises DefinitionError: when the catalogs file is wrong.
    """
    private = settings.private_files
    defaults = Defaults(settings.database_url, settings.warehouse, settings.connections, private)
    catalogs = load_catalogs(settings.catalogs_file, defaults) if settings.catalogs_file else embedded_catalogs(defaults)
    return Workspace(settings, SqlLedger(Database(settings.database_url, private_files=private)), catalogs, clock)
