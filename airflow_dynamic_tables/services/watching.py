"""The state of all tables at a glance, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.status import TableStatus, overview
from airflow_dynamic_tables.services.workspace import Workspace

_LOST = (RefreshState.FAILED, RefreshState.ABORTED, RefreshState.QUARANTINED)


def watch(workspace: Workspace, tables: Mapping[TableIdentifier, DynamicTable]) -> dict[TableIdentifier, TableStatus]:
    """Return the status of tables by their history.

    The catalogs are read only for tables that are late or whose last refresh failed, because missing partitions and suspensions
    are known to them. If a catalog is unavailable, its tables have the status that the history has.
    """
    found = dict(zip(tables, overview(workspace, dict.fromkeys(tables), tables), strict=True))
    entries = {}
    for name, status in found.items():
        if status.late or status.version is None or status.last_refresh in _LOST:
            with suppress(CatalogError, ConfigurationError):
                entries[name] = workspace.find_entry(name)
    return {**found, **dict(zip(entries, overview(workspace, entries, tables), strict=True))}
