"""A table as registered in its catalog, with its entry, handle and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_dynamic_tables.catalog.values import Asked, CatalogDynamicTable, CatalogTable, RefreshHandler, is_own, is_refused
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


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


def look_up(workspace: Workspace, identifier: TableIdentifier) -> RegisteredTable:
    """Look up a table whose versions are managed by this package.

    :raises TableNotFoundError: if the catalog has no such table.
    """
    entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    own = entry if is_own(entry) else as_dynamic(identifier, entry)
    return RegisteredTable(identifier, own, workspace.table(identifier, own.format))


def find_entry(workspace: Workspace, identifier: TableIdentifier) -> CatalogDynamicTable | None:
    """Return the catalog entry of a dynamic table; ``None`` if there is none with that name."""
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None
    return entry if isinstance(entry, CatalogDynamicTable) else None


def why_suspended(identifier: TableIdentifier, entry: CatalogDynamicTable | None) -> str | None:
    """Return why the refreshes of a table are suspended, as a sentence without a full stop; ``None`` if they are not."""
    if entry is None or not is_refused(Asked.REFRESH, entry.refresh_handler.job_state):
        return None
    reason = entry.refresh_handler.suspended_because
    return f"{identifier} is suspended{f' ({reason})' if reason else ''}; resume it to refresh again"
