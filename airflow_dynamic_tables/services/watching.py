"""The state of all tables at a glance, for metrics and notices."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from airflow_dynamic_tables.core.cron import allowed_lag, previous_tick
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError
from airflow_dynamic_tables.services.status import LOST, TableStatus, overview
from airflow_dynamic_tables.services.workspace import Workspace


def watch(workspace: Workspace, tables: Mapping[TableIdentifier, DynamicTable]) -> dict[TableIdentifier, TableStatus]:
    """Return the status of tables by their history.

    The catalogs are read only for tables that are late or whose last refresh failed, because missing partitions and suspensions
    are known to them. If a catalog is unavailable, its tables have the status that the history has. A table that no refresh has
    made fresh up to any time is late if its first tick since it is watched was not refreshed in time.
    """
    found = dict(zip(tables, overview(workspace, dict.fromkeys(tables), tables), strict=True))
    entries = {}
    for name, status in found.items():
        if status.late or status.version is None or status.last_refresh in LOST:
            with suppress(CatalogError, ConfigurationError):
                entries[name] = workspace.find_entry(name)
    found |= zip(entries, overview(workspace, entries, tables), strict=True)
    now = workspace.now()
    since = workspace.ledger.watched_since(tables, now)
    return {name: _never_fresh(status, tables[name], since[name], now) for name, status in found.items()}


def _never_fresh(status: TableStatus, table: DynamicTable, since: datetime, now: datetime) -> TableStatus:
    """Return the status, late if the table was never fresh and should be.

    :param since: since when it is watched; it counts as fresh up to its last tick before.
    """
    if status.fresh_until is not None:
        return status
    start = previous_tick(table.cron, table.timezone, since) if table.cron else since
    allowed = allowed_lag(table.freshness, table.cron, table.timezone, now)
    return replace(status, late=now - start > allowed)
