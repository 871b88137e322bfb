"""The workspace of the use cases: ledger, catalogs, clock, schedulers and listeners; and tables as registered in its catalogs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_dynamic_tables.catalog.base import CatalogDefaults, ReadableCatalog, ReadableWritableCatalog
from airflow_dynamic_tables.catalog.file import embedded_catalogs, load_catalogs
from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    Asked,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
    RefreshHandler,
    is_own,
    is_refused,
)
from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable
from airflow_dynamic_tables.formats.registry import default_format, open_table
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.schedulers.base import WorkflowScheduler, open_scheduler
from airflow_dynamic_tables.services.settings import WorkspaceSettings

if TYPE_CHECKING:
    from airflow_dynamic_tables.services.outcomes import Listener


def utc_now() -> datetime:
    """Return the current time, timezone-aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Ledger, catalogs and clock of one installation, created by :func:`open_workspace`; a context manager that closes them.

    ``listeners`` receive the outcome of every write.
    """

    settings: WorkspaceSettings
    ledger: SqlLedger
    catalogs: CatalogManager
    clock: Callable[[], datetime] = utc_now
    schedulers: Callable[[str, Connections], WorkflowScheduler] = open_scheduler
    listeners: tuple[Listener, ...] = ()

    def now(self) -> datetime:
        """Return the time by the workspace's clock, timezone-aware."""
        return self.clock()

    def with_listener(self, listener: Listener) -> Workspace:
        """Return the same workspace with one more listener."""
        return replace(self, listeners=(*self.listeners, listener))

    def scheduler(self, name: str) -> WorkflowScheduler:
        """Return a scheduler of workflows, to be used as a context manager. It does not connect yet.

        :raises ConfigurationError: if there is none with that name, or its connection is missing or invalid.
        """
        return self.schedulers(name, self.settings.connections)

    def catalog(self, name: str) -> ReadableWritableCatalog:
        """Open a writable catalog. The private home folder of an embedded warehouse is created if it is missing.

        :raises CatalogNotFoundError: if the catalogs file does not name it.
        :raises UnsupportedError: if it is read-only.
        """
        catalog = self.catalogs.get(name)
        if (home := self.settings.private_home) is not None:
            with suppress(OSError):  # the writer reports the error
                home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not isinstance(catalog, ReadableWritableCatalog):
            raise UnsupportedError(f"Catalog {name} is read-only; dynamic tables cannot live in it.")
        return catalog

    def readable(self, name: str) -> ReadableCatalog:
        """Open a catalog of any type.

        :raises CatalogNotFoundError: if the catalogs file does not name it.
        """
        return self.catalogs.get(name)

    def table(
        self,
        identifier: TableIdentifier,
        format: str,  # noqa: A002 - the field's word
        atomicity: str = "none",
    ) -> LakeTable:
        """Return a table that this installation refreshes.

        :param atomicity: ``staged`` refuses a format that this catalog cannot commit atomically.
        :raises UnsupportedError: if the catalog does not support the format, or not with that atomicity.
        """
        stores = self.catalog(identifier.catalog).stores()
        return open_table(identifier, format, stores, atomicity)

    def existing_table(self, identifier: TableIdentifier) -> LakeTable:
        """Return a table in the format of its catalog entry, or in the default format of the catalog if there is no entry.

        :raises UnsupportedError: if the catalog does not support the format.
        """
        catalog = self.catalog(identifier.catalog)
        try:
            entry = catalog.get_table(identifier.path)
        except TableNotFoundError:
            return self.table(identifier, default_format(catalog.stores()))
        return self.table(identifier, default_format(catalog.stores()) if isinstance(entry, CatalogView) else entry.format)

    def dynamic_table(self, identifier: TableIdentifier) -> CatalogDynamicTable:
        """Return the catalog entry of a dynamic table.

        :raises TableNotFoundError: if there is none.
        """
        return as_dynamic(identifier, self.catalog(identifier.catalog).get_table(identifier.path))

    def find_entry(self, identifier: TableIdentifier) -> CatalogDynamicTable | None:
        """Return the catalog entry of a dynamic table; ``None`` if there is none with that name."""
        try:
            entry = self.catalog(identifier.catalog).get_table(identifier.path)
        except TableNotFoundError:
            return None
        return entry if isinstance(entry, CatalogDynamicTable) else None

    def change(
        self, identifier: TableIdentifier, changed: Callable[[CatalogDynamicTable], CatalogDynamicTable]
    ) -> CatalogDynamicTable:
        """Change the catalog entry of a dynamic table atomically.

        :return: the entry as it was before.
        :raises TableNotFoundError: if there is none.
        """
        catalog = self.catalog(identifier.catalog)
        return as_dynamic(identifier, catalog.change_table(identifier.path, lambda now: changed(as_dynamic(identifier, now))))

    def look_up(self, identifier: TableIdentifier) -> RegisteredTable:
        """Look up a table whose versions are managed by this package.

        :raises TableNotFoundError: if the catalog has no such table.
        """
        entry = self.catalog(identifier.catalog).get_table(identifier.path)
        own = entry if is_own(entry) else as_dynamic(identifier, entry)
        return RegisteredTable(identifier, own, self.table(identifier, own.format))

    def close(self) -> None:
        """Close all connections."""
        self.catalogs.close()
        self.ledger.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def has_state(settings: WorkspaceSettings) -> bool:
    """Return whether the ledger's database file exists. A database server counts as existing without connecting to it.

    :raises ConfigurationError: if its URL is malformed.
    """
    return Database(settings.database_url).is_begun


def open_workspace(settings: WorkspaceSettings, clock: Callable[[], datetime] = utc_now) -> Workspace:
    """Create a workspace. It does not connect yet: ledger and catalogs connect on first use.

    Without a catalogs file every catalog name is an embedded ``sql`` catalog in the ledger's database.

    :raises ConfigurationError: if the database URL is malformed.
    :raises DefinitionError: if the catalogs file is invalid.
    """
    private = settings.private_files
    defaults = CatalogDefaults(settings.database_url, settings.warehouse, settings.connections, private)
    catalogs = load_catalogs(settings.catalogs_file, defaults) if settings.catalogs_file else embedded_catalogs(defaults)
    ledger = SqlLedger(Database(settings.database_url, private_files=private))
    return Workspace(settings, ledger, catalogs, clock, listeners=settings.listeners)


@dataclass(slots=True)
class RegisteredTable:
    """A table whose versions are managed by this package: a dynamic table, or one created by CREATE TABLE AS.

    ``entry`` is as of the lookup; ``loaded`` is as of its first access or the last :meth:`reload`.
    """

    identifier: TableIdentifier
    entry: CatalogDynamicTable | CatalogTable
    lake_table: LakeTable
    _loaded: LoadedTable | None = field(default=None, init=False, repr=False)

    @property
    def loaded(self) -> LoadedTable:
        """The content of the table."""
        return self._loaded or self.reload()

    def reload(self) -> LoadedTable:
        """Load the current content of the table, and keep it for later accesses."""
        self._loaded = self.lake_table.load()
        return self._loaded

    def current(self) -> Version | None:
        """Return the current version; ``None`` before the first commit."""
        return self.loaded.current()

    @property
    def columns(self) -> Sequence[Column]:
        """The columns recorded in the catalog; empty before the first commit."""
        return self.entry.columns

    @property
    def handler(self) -> RefreshHandler:
        """The refresh settings and state of the table.

        :raises TableNotFoundError: if it is not a dynamic table.
        """
        return as_dynamic(self.identifier, self.entry).refresh_handler

    @property
    def why_suspended(self) -> str | None:
        """See :func:`why_suspended`."""
        return why_suspended(self.identifier, self.entry if isinstance(self.entry, CatalogDynamicTable) else None)


def why_suspended(identifier: TableIdentifier, entry: CatalogDynamicTable | None) -> str | None:
    """Return why the refreshes of a table are suspended, as a sentence without a full stop; ``None`` if they are not."""
    if entry is None or not is_refused(Asked.REFRESH, entry.refresh_handler.job_state):
        return None
    reason = entry.refresh_handler.suspended_because
    return f"{identifier} is suspended{f' ({reason})' if reason else ''}; resume it to refresh again"


def as_dynamic(identifier: TableIdentifier, table: AnyTable) -> CatalogDynamicTable:
    """Return a catalog entry as that of a dynamic table.

    :raises TableNotFoundError: if it is another object.
    """
    if not isinstance(table, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    return table
