"""What stands where: tables, their freshness, their history and their first rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One dynamic table at a glance.

    ``defined`` says whether the definitions have it; ``None``: that is not known. ``lag_seconds`` is how far its data timestamp
    lies behind now.
    """

    identifier: str
    defined: bool | None
    format: str
    refresh_mode: str
    freshness: str
    job_state: str | None
    version: int | None
    data_timestamp: datetime | None
    lag_seconds: int | None
    last_refresh: str | None
    last_error: str | None
    workflow_id: str


@dataclass(frozen=True, slots=True)
class TableDetails:
    """One dynamic table in full; ``versions`` are the kept ones, newest first."""

    status: TableStatus
    table: CatalogTable | CatalogDynamicTable
    versions: tuple[Version, ...]
    refreshes: tuple[Refresh, ...]


def list_tables(
    workspace: Workspace, definitions: Mapping[TableIdentifier, DynamicTable], *, complete: bool = True
) -> list[TableStatus]:
    """Every defined dynamic table, and every one of their catalogs that is no longer defined; sorted.

    :param complete: whether these are all definitions; when some have mistakes, nobody knows which tables those would define.
    """
    others = False if complete else None
    names = set(definitions)
    for catalog_name in {identifier.catalog for identifier in definitions} | set(workspace.catalogs.names()):
        catalog = workspace.readable(catalog_name)
        for database in catalog.list_databases():
            names |= {TableIdentifier(catalog_name, database, name) for name in catalog.list_dynamic_tables(database)}
    return [
        _status(_Seen(name, _entry(workspace, name), definitions.get(name)), workspace, defined=name in definitions or others)
        for name in sorted(names)
    ]


def show_table(
    workspace: Workspace, identifier: TableIdentifier, limit: int = 10, *, defined: bool | None = None
) -> TableDetails:
    """One table of a catalog in full.

    :param limit: how many of the latest refreshes and versions.
    :param defined: whether the definitions have it, see :class:`TableStatus`.
    :raises TableNotFoundError: when the catalog does not have it.
    """
    entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    if isinstance(entry, CatalogView):
        raise TableNotFoundError(f"{identifier} is a view, not a dynamic table.")
    versions = workspace.table(identifier, entry.format).versions()
    return TableDetails(
        status=_status(_Seen(identifier, entry), workspace, defined=defined),
        table=entry,
        versions=tuple(reversed(versions[-limit:])),
        refreshes=tuple(workspace.ledger.list_refreshes(identifier, limit)),
    )


def sample(workspace: Workspace, identifier: TableIdentifier, rows: int, version: int | None = None) -> list[dict[str, Any]]:
    """The first rows of a table as a version has them, the current one when none is named.

    :raises TableNotFoundError: when it has no version yet.
    :raises VersionNotFoundError: when that version is not kept; names those that are.
    """
    return workspace.table(identifier).sample(rows, version)


def _entry(workspace: Workspace, identifier: TableIdentifier) -> AnyTable | None:
    try:
        return workspace.readable(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None


class _Seen(NamedTuple):
    """A table as its catalog and as its definition have it."""

    identifier: TableIdentifier
    entry: AnyTable | None
    definition: DynamicTable | None = None


def _status(seen: _Seen, workspace: Workspace, *, defined: bool | None) -> TableStatus:
    identifier = seen.identifier
    registered = seen.entry if isinstance(seen.entry, CatalogDynamicTable) else None
    said = _said(seen.definition, registered)
    version = workspace.table(identifier, said.format).current()
    last = next(iter(workspace.ledger.list_refreshes(identifier, limit=1)), None)
    fresh = version.data_timestamp if version else None
    return TableStatus(
        identifier=str(identifier),
        defined=defined,
        format=said.format,
        refresh_mode=said.refresh_mode,
        freshness=said.freshness,
        job_state=registered.refresh_handler.job_state.value if registered else None,
        version=version.number if version else None,
        data_timestamp=fresh,
        lag_seconds=int((workspace.now() - fresh).total_seconds()) if fresh else None,
        last_refresh=last.state.value if last else None,
        last_error=last.error if last else None,
        workflow_id=said.workflow_id or identifier.workflow_id,
    )


class _Said(NamedTuple):
    format: str = DEFAULT_FORMAT
    refresh_mode: str = ""
    freshness: str = ""
    workflow_id: str = ""


def _said(definition: DynamicTable | None, registered: CatalogDynamicTable | None) -> _Said:
    """What the definition says of a table, or the catalog when nobody defines it any more."""
    if definition is not None:
        return _Said(definition.format, definition.mode.value, definition.freshness.text, definition.workflow_id)
    if registered is not None:
        handler = registered.refresh_handler
        workflow_id = handler.job_detail.get("workflowId", "")
        return _Said(registered.format, handler.actual_refresh_mode.value, registered.freshness, workflow_id)
    return _Said()
