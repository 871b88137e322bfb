"""Saved cost: what refreshes took, beside the last complete refresh of the same definition that was measured.

The figures of the complete refresh are scaled by the size of the sources, which may have grown or shrunk since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.tables.source_reads import pace_of

_COMPARED = (
    RefreshAction.INITIALIZE,
    RefreshAction.FULL,
    RefreshAction.PARTITIONS,
    RefreshAction.MERGE,
    RefreshAction.NO_DATA,
)
"""Actions that a complete refresh could have replaced."""

MOST_COMPARED = 20_000
"""Limit of refreshes read from the history for the saved cost."""


@dataclass(frozen=True, slots=True)
class ComparedRefresh:
    """The seconds of a refresh over all steps and the bytes that it wrote, beside those of a complete one at its time.

    The latter are scaled from the last complete one before it; null: not measured. Consecutive NO_DATA refreshes of a version
    share a record: ``refreshes`` is their number, and the figures are their sums.
    """

    token: str
    table: TableIdentifier
    finished_at: datetime
    action: RefreshAction
    refreshes: int
    seconds: float
    bytes: int
    full_seconds: float | None
    full_bytes: int | None

    @property
    def month(self) -> str:
        """The month in which it ended, in UTC."""
        return f"{self.finished_at.astimezone(UTC):%Y-%m}"


@dataclass(frozen=True, slots=True)
class SavedCost:
    """The sums of the refreshes of a table in a month, and what they saved against complete ones.

    ``not_measured`` are refreshes without a measured complete one before them, which the sums leave out. Null: all of them.
    """

    table: TableIdentifier
    month: str
    refreshes: int
    no_data: int
    not_measured: int
    seconds: float | None
    full_seconds: float | None
    saved_seconds: float | None
    bytes: int | None
    full_bytes: int | None
    saved_bytes: int | None


def compared_refreshes(refreshes: Iterable[Refresh]) -> list[ComparedRefresh]:
    """Return the successful refreshes beside complete ones, newest first.

    :param refreshes: of any tables, in any order.
    """
    full: dict[tuple[TableIdentifier, str | None], Refresh] = {}
    recipes: dict[TableIdentifier, str | None] = {}
    sizes: dict[TableIdentifier, int | None] = {}
    found = []
    for refresh in sorted(refreshes, key=lambda one: (one.started_at, one.version or 0)):
        if not _is_compared(refresh):
            continue
        if refresh.action is not RefreshAction.NO_DATA:
            recipes[refresh.table] = refresh.recipe
            sizes[refresh.table] = refresh.source_bytes
        key = refresh.table, recipes.get(refresh.table)
        if refresh.action is not RefreshAction.NO_DATA and _is_complete(refresh):
            full[key] = refresh
        found.append(_compared(refresh, full.get(key) if key[1] else None, sizes.get(refresh.table)))
    return sorted(found, key=lambda one: one.finished_at, reverse=True)


def saved_costs(refreshes: Iterable[Refresh]) -> list[SavedCost]:
    """Return the saved cost by table and month, the latest month first.

    :param refreshes: as of :func:`compared_refreshes`.
    """
    groups: dict[tuple[str, TableIdentifier], list[ComparedRefresh]] = {}
    for one in compared_refreshes(refreshes):
        groups.setdefault((one.month, one.table), []).append(one)
    tables = sorted(groups, key=lambda each: str(each[1]))
    return [_sum(groups[key]) for key in sorted(tables, key=lambda each: each[0], reverse=True)]


def _is_compared(refresh: Refresh) -> bool:
    is_over = refresh.state in (RefreshState.SUCCEEDED, RefreshState.UNDONE) or refresh.action is RefreshAction.NO_DATA
    return is_over and refresh.action in _COMPARED and refresh.finished_at is not None


def _is_complete(refresh: Refresh) -> bool:
    is_whole = refresh.partitions.is_whole and refresh.action is not RefreshAction.MERGE
    return is_whole and bool(refresh.seconds) and refresh.bytes is not None


def _compared(refresh: Refresh, full: Refresh | None, source_bytes: int | None) -> ComparedRefresh:
    """Compare a refresh with the last complete one.

    :param source_bytes: the size of the sources at the time of the refresh.
    """
    number, grown = refresh.occurrences, 1.0
    if full is not None and full.source_bytes and source_bytes is not None:
        grown = source_bytes / full.source_bytes
    return ComparedRefresh(
        token=refresh.token,
        table=refresh.table,
        finished_at=refresh.finished_at or refresh.started_at,
        action=refresh.action,
        refreshes=number,
        seconds=pace_of(refresh).seconds,
        bytes=refresh.bytes or 0,
        full_seconds=round(number * _seconds_of_grown(full, grown), 3) if full is not None else None,
        full_bytes=round(number * grown * (full.bytes or 0)) if full is not None else None,
    )


def _seconds_of_grown(full: Refresh, grown: float) -> float:
    """Return the seconds of a complete refresh if its sources had another size.

    Only steps within the job depend on it, such as ``spark.write``, not the start of the job. If these were not measured, all of
    the job depends on it.
    """
    within = sum(value for step, value in full.seconds.items() if step.startswith("spark."))
    return pace_of(full).seconds + (within or full.seconds.get("spark", 0.0)) * (grown - 1)


def _sum(refreshes: Sequence[ComparedRefresh]) -> SavedCost:
    first = refreshes[0]
    measured = [one for one in refreshes if one.full_bytes is not None]
    seconds, full_seconds = _total(one.seconds for one in measured), _total(one.full_seconds or 0.0 for one in measured)
    written, full_bytes = sum(one.bytes for one in measured), sum(one.full_bytes or 0 for one in measured)
    return SavedCost(
        table=first.table,
        month=first.month,
        refreshes=sum(one.refreshes for one in refreshes),
        no_data=sum(one.refreshes for one in refreshes if one.action is RefreshAction.NO_DATA),
        not_measured=sum(one.refreshes for one in refreshes if one.full_bytes is None),
        seconds=seconds if measured else None,
        full_seconds=full_seconds if measured else None,
        saved_seconds=round(full_seconds - seconds, 3) if measured else None,
        bytes=written if measured else None,
        full_bytes=full_bytes if measured else None,
        saved_bytes=full_bytes - written if measured else None,
    )


def _total(seconds: Iterator[float]) -> float:
    return round(sum(seconds), 3)
