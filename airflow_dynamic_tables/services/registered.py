"""A table as its catalog has it: entry, handle and content, each looked up once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_dynamic_tables.catalog.states import Asked, is_refused
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, RefreshHandler, is_own
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


@dataclass(slots=True)
class RegisteredTable:
    """A table whose versions are ours: a dynamic one, or one of CREATE TABLE AS.

    ``entry`` is of the moment at which it was looked up, ``loaded`` of the first question or the last :meth:`reload`.
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
        """The content of the table as it is now, for all questions from here on."""
        self._loaded = self.lake_table.load()
        return self._loaded

    def current(self) -> Version | None:
        """The current version; ``None`` before the first commit."""
        return self.loaded.current()

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that the catalog has of it; none before the first commit."""
        return self.entry.columns

    @property
    def handler(self) -> RefreshHandler:
        """How it is refreshed, and in which state it is.

        :raises TableNotFoundError: when it is no dynamic table.
        """
        return as_dynamic(self.identifier, self.entry).refresh_handler

    @property
    def why_suspended(self) -> str | None:
        """See :func:`why_suspended`."""
        return why_suspended(self.identifier, self.entry if isinstance(self.entry, CatalogDynamicTable) else None)


def look_up(workspace: Workspace, identifier: TableIdentifier) -> RegisteredTable:
    """A table whose versions are ours.

    :raises TableNotFoundError: when the catalog has none of that name.
    """
    entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    own = entry if is_own(entry) else as_dynamic(identifier, entry)
    return RegisteredTable(identifier, own, workspace.table(identifier, own.format))


def find_entry(workspace: Workspace, identifier: TableIdentifier) -> CatalogDynamicTable | None:
    """The catalog's entry of a dynamic table; ``None`` when it has none of that name."""
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None
    return entry if isinstance(entry, CatalogDynamicTable) else None


def why_suspended(identifier: TableIdentifier, entry: CatalogDynamicTable | None) -> str | None:
    """A sentence without its full stop when the refreshes of a table are suspended; ``None`` when they are not."""
    if entry is None or not is_refused(Asked.REFRESH, entry.refresh_handler.job_state):
        return None
    reason = entry.refresh_handler.suspended_because
    return f"{identifier} is suspended{f' ({reason})' if reason else ''}; resume it to refresh again"
