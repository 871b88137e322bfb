"""The state of all tables at a glance, for metrics and notices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from airflow_dynamic_tables.core.cron import late_from, previous_tick
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError
from airflow_dynamic_tables.ledger.late_tables import LatePeriod, Watch
from airflow_dynamic_tables.services.status import LOST, TableStatus, overview
from airflow_dynamic_tables.services.tables.time_within_freshness import WEEK, shares_within_freshness
from airflow_dynamic_tables.services.workspace import Workspace

_LONGEST_PAUSE = timedelta(minutes=5)
"""The longest time between two checks in which a table that was within freshness at both counts as such between them."""


def watch(workspace: Workspace, tables: Mapping[TableIdentifier, DynamicTable]) -> dict[TableIdentifier, TableStatus]:
    """Check tables by their history, and record the check; return their status.

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
    watches = workspace.ledger.watches(tables, now)
    limits = {name: _late_from(found[name], table, watches[name].since) for name, table in tables.items()}
    new = {name: list(late_periods(watches[name], limit, now)) for name, limit in limits.items()}
    workspace.ledger.record_checks(limits, new, now, now - WEEK)
    shares = shares_within_freshness(workspace.ledger, tables, now)
    return {
        name: replace(
            status,
            late=status.late if status.fresh_until is not None else limits[name] < now,
            share_of_day=shares[name].of_day,
            share_of_week=shares[name].of_week,
        )
        for name, status in found.items()
    }


def _late_from(status: TableStatus, table: DynamicTable, since: datetime) -> datetime:
    """Return the time from which a table is late without another refresh.

    :param since: since when it is watched; a table that was never refreshed counts as fresh up to its last tick before.
    """
    fresh = status.fresh_until
    if fresh is None:
        fresh = previous_tick(table.cron, table.timezone, since) if table.cron else since
    return late_from(table.freshness, table.cron, table.timezone, fresh)


def late_periods(last: Watch, limit: datetime, now: datetime) -> Iterator[LatePeriod]:
    """Yield the periods since its last check in which a table was late, or may have been.

    :param limit: the time from which it is late without another refresh.
    """
    if last.checked_at is None or last.late_from is None:
        return
    start = max(last.checked_at, last.late_from)
    if start >= now:
        return
    if now - last.checked_at <= _LONGEST_PAUSE:
        # A table that was refreshed between two checks was refreshed in time, unless it was late before.
        if limit < now or last.late_from <= last.checked_at:
            yield LatePeriod(start, now, is_certain=True)
        return
    # Refreshes in a longer pause are not known one by one.
    certain = max(start, min(limit, now))
    if start < certain:
        yield LatePeriod(start, certain, is_certain=False)
    if certain < now:
        yield LatePeriod(certain, now, is_certain=True)
