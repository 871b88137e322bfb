"""Whether data that others write are there."""

from __future__ import annotations

from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData, AwaitedRows
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError
from airflow_dynamic_tables.formats.registry import count_rows
from airflow_dynamic_tables.services.workspace import Workspace


def what_is_not_there(workspace: Workspace, awaited: AwaitedData) -> str | None:
    """Why a refresh still has to wait for what it awaits, as a sentence without its full stop; ``None`` when it is there.

    What cannot be looked at is not there: nobody knows, and a refresh without it would be silently wrong.

    :raises DynamicTableError: when looking again would not help.
    """
    try:
        if awaited.rows is not None and awaited.source is not None:
            return _missing_rows(workspace, awaited, awaited.source, awaited.rows)
        return None if _is_there(workspace, awaited) else f"{awaited} is not there yet"
    except CatalogUnavailableError as error:
        return f"{awaited} cannot be looked for: {str(error).rstrip('.')}"


def _missing_rows(workspace: Workspace, awaited: AwaitedData, identifier: TableIdentifier, rows: AwaitedRows) -> str | None:
    stores = workspace.readable(identifier.catalog).stores()
    try:
        counted = count_rows(Source(identifier, rows.format, rows.path), stores, awaited.partition, rows.least)
    except TableNotFoundError:
        return f"{identifier} is not there yet"
    return None if counted >= rows.least else f"{awaited.place} has {counted} of {rows.least} rows"


def _is_there(workspace: Workspace, awaited: AwaitedData) -> bool:
    if awaited.source is None:
        return exists(awaited.text)
    catalog = workspace.readable(awaited.source.catalog)
    try:
        return bool(catalog.list_partitions(awaited.source.path, awaited.partition))
    except TableNotFoundError:
        return False
