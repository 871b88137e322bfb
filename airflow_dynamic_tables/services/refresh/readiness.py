"""Whether data that others write are there."""

from __future__ import annotations

from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.core.tables.partitions import parse_spec
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError
from airflow_dynamic_tables.services.workspace import Workspace


def what_is_not_there(workspace: Workspace, awaited: AwaitedData) -> str | None:
    """Why a refresh still has to wait for what it awaits, as a sentence without its full stop; ``None`` when it is there.

    What cannot be looked at is not there: nobody knows, and a refresh without it would be silently wrong.

    :raises DynamicTableError: when looking again would not help.
    """
    try:
        return None if _is_there(workspace, awaited) else f"{awaited} is not there yet"
    except CatalogUnavailableError as error:
        return f"{awaited} cannot be looked for: {str(error).rstrip('.')}"


def _is_there(workspace: Workspace, awaited: AwaitedData) -> bool:
    if awaited.source is None:
        return exists(awaited.text)
    catalog = workspace.readable(awaited.source.catalog)
    try:
        return bool(catalog.list_partitions(awaited.source.path, parse_spec(awaited.text)))
    except TableNotFoundError:
        return False
