"""Shares of time in which tables were within freshness."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.late_tables import LatePeriod, SqlLateTables

DAY, WEEK = timedelta(days=1), timedelta(days=7)


class FreshShares(NamedTuple):
    """Shares of the time in which a table was watched and checked, from 0 to 1; ``None`` if there is no such time."""

    of_day: float | None = None
    of_week: float | None = None


def shares_within_freshness(
    ledger: SqlLateTables, tables: Collection[TableIdentifier], now: datetime
) -> dict[TableIdentifier, FreshShares]:
    """Return the shares of the last day and the last seven days, with two queries; tables that are not watched are omitted."""
    watched = ledger.watched()
    late = ledger.late_periods()
    shares = {}
    for name in watched.keys() & set(tables):
        watch = watched[name]
        unchecked = LatePeriod(watch.checked_at or watch.since, now, is_certain=False)
        periods = [*late.get(name, ()), unchecked]
        shares[name] = FreshShares(*(share_within_freshness(periods, watch.since, now, window) for window in (DAY, WEEK)))
    return shares


def share_within_freshness(periods: Sequence[LatePeriod], since: datetime, now: datetime, window: timedelta) -> float | None:
    """Return the share of time in which a table was not late, from 0 to 1; ``None`` if it was not checked in that time.

    :param periods: ordered by their start; they may overlap.
    :param since: since when it is watched.
    :param window: the time up to now.
    """
    start = max(since, now - window)
    late = {certain: timedelta() for certain in (True, False)}
    end = start
    for period in periods:
        late[period.is_certain] += max(min(period.until, now) - max(period.since, end), timedelta())
        end = max(end, period.until)
    checked = now - start - late[False]
    return 1 - late[True] / checked if checked > timedelta() else None
