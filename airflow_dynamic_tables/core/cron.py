"""Cron expressions: derived from a freshness, checked, and walked in wall-clock time. The only module that knows croniter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from airflow_dynamic_tables.core.freshness import Freshness

_MINUTES = tuple(n for n in range(1, 60) if 60 % n == 0)
_HOURS = tuple(n for n in range(1, 24) if 24 % n == 0)
_LEGAL = tuple(Freshness(seconds) for seconds in (*(n * 60 for n in _MINUTES), *(n * 3_600 for n in _HOURS), 86_400, 7 * 86_400))


def cron_for(freshness: Freshness) -> str:
    """The cron expression whose ticks are one freshness apart.

    :raises ValueError: when there is none; names the nearest legal freshness on either side.
    """
    if freshness not in _LEGAL:
        raise ValueError(f"no cron schedule ticks every {freshness}; use {_nearest(freshness)}, or set 'schedule'")
    amount = freshness.amount
    if freshness.unit == "minute":
        return "* * * * *" if amount == 1 else f"*/{amount} * * * *"
    if freshness.unit == "hour":
        return "0 * * * *" if amount == 1 else f"0 */{amount} * * *"
    return "0 0 * * *" if freshness.unit == "day" else "0 0 * * 0"


def _nearest(freshness: Freshness) -> str:
    shorter = max((legal for legal in _LEGAL if legal < freshness), default=None)
    longer = min((legal for legal in _LEGAL if legal > freshness), default=None)
    return " or ".join(f"'{legal}'" for legal in (shorter, longer) if legal is not None)


def check_cron(expression: str) -> None:
    """Accept what croniter accepts, with five fields (or an alias such as ``@daily``).

    :raises ValueError: says what is wrong.
    """
    fields = expression.split()
    if len(fields) != 5 and not (len(fields) == 1 and expression.startswith("@")):
        raise ValueError(f"{expression!r} has {len(fields)} fields; a schedule has five: minute hour day month weekday")
    try:
        croniter(expression)
    except (CroniterError, ValueError, KeyError) as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error


def ticks(expression: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Every tick t with start <= t < end, in that time zone.

    :param start: timezone-aware, as ``end``.
    """
    tick = previous_tick(expression, timezone, start)
    if tick < start:
        tick = next_tick(expression, timezone, start)
    while tick < end:
        yield tick
        tick = next_tick(expression, timezone, tick)


def next_tick(expression: str, timezone: str, after: datetime) -> datetime:
    """The first tick later than that time. Across DST it is the one Airflow's CronTriggerTimetable schedules."""
    local = _local(after, timezone)
    cron = croniter(expression, start_time=local.replace(tzinfo=None))
    found: datetime = cron.get_next(datetime)
    if _covers_every_hour(cron):
        # The repeated hour of an autumn night has ticks of its own.
        return (local.astimezone(UTC) + (found - local.replace(tzinfo=None))).astimezone(local.tzinfo)
    return _aware(found, timezone)


def previous_tick(expression: str, timezone: str, at: datetime) -> datetime:
    """The latest tick at or before that time."""
    naive = _local(at, timezone).replace(tzinfo=None)
    tick = _aware(naive, timezone)
    while tick > at or naive == _local(at, timezone).replace(tzinfo=None):
        naive = croniter(expression, start_time=naive).get_prev(datetime)
        tick = _aware(naive, timezone)
    while (following := next_tick(expression, timezone, tick)) <= at:
        tick = following
    return tick


def _covers_every_hour(cron: croniter) -> bool:
    return bool(cron.expanded[1] == ["*"])


def _local(time: datetime, timezone: str) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone")
    return time.astimezone(ZoneInfo(timezone))


def _aware(naive: datetime, timezone: str) -> datetime:
    """A wall-clock time that exists twice is the later one; one that is skipped moves on by the gap."""
    zone = ZoneInfo(timezone)
    later = naive.replace(tzinfo=zone, fold=1)
    exists = later.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) == naive
    return later if exists else naive.replace(tzinfo=zone, fold=0).astimezone(UTC).astimezone(zone)
