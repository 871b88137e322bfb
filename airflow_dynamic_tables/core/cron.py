"""Cron expressions: derivation from a freshness, validation, and ticks in wall-clock time. Encapsulates croniter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from airflow_dynamic_tables.core.schedule import Freshness, elapsed, is_shown, on_the_wall

_MINUTES = tuple(n for n in range(1, 60) if 60 % n == 0)
_HOURS = tuple(n for n in range(1, 24) if 24 % n == 0)

_LEGAL = tuple(Freshness(seconds) for seconds in (*(n * 60 for n in _MINUTES), *(n * 3_600 for n in _HOURS), 86_400, 7 * 86_400))
"""Every freshness for which a cron expression has evenly spaced ticks."""

_CHOSEN_BY_CRONITER = re.compile(r"\b[HR]\b", re.IGNORECASE)


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
    """Check that croniter accepts an expression with five fields (or an alias such as ``@daily``) and that it ever ticks.

    :raises ValueError: with the mistake.
    """
    fields = expression.split()
    if len(fields) != 5 and not (len(fields) == 1 and expression.startswith("@")):
        raise ValueError(f"{expression!r} has {len(fields)} fields; a schedule has five: minute hour day month weekday")
    if _CHOSEN_BY_CRONITER.search(expression):
        raise ValueError(f"{expression!r} leaves a number to chance (H or R); write the number")
    try:
        croniter(expression, start_time=datetime(2000, 1, 1)).get_next()  # noqa: DTZ001 - croniter uses wall-clock times
    except CroniterBadDateError as error:
        raise ValueError(f"{expression!r} never ticks: there is no such day") from error
    except (CroniterError, ValueError, KeyError) as error:
        raise ValueError(f"{expression!r} is no cron expression: {error}") from error


def ticks(expression: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Every tick t with start <= t < end, in a time zone.

    :param start: timezone-aware, as ``end``.
    """
    start = _instant(start)
    end = _instant(end)
    cron = croniter(expression, start_time=on_the_wall(start))
    tick = _latest(cron, ZoneInfo(timezone), start)
    if tick < start:
        tick = _following(cron, tick)
    while tick < end:
        yield tick
        tick = _following(cron, tick)


def next_tick(expression: str, timezone: str, after: datetime) -> datetime:
    """The first tick after a time.

    Across DST changes it is the one that Airflow's CronTriggerTimetable schedules after the previous tick: a tick in the hour
    skipped in spring is delayed by the gap, a tick in the hour repeated in autumn occurs the second time; only a schedule of
    every hour ticks both times.
    """
    after = _instant(after)
    cron = croniter(expression, start_time=on_the_wall(after))
    return _following(cron, _latest(cron, ZoneInfo(timezone), after))


def previous_tick(expression: str, timezone: str, at: datetime) -> datetime:
    """The latest tick at or before a time, see :func:`next_tick`."""
    at = _instant(at)
    return _latest(croniter(expression, start_time=on_the_wall(at)), ZoneInfo(timezone), at)


def allowed_lag(freshness: Freshness, cron: str | None, timezone: str, now: datetime) -> timedelta:
    """The maximum lag of a table's data timestamp.

    A table is fresh up to a tick of its schedule, and the refresh for that tick has one freshness period to finish: until then
    the previous tick suffices, whatever lies between the two (a weekend). Without a schedule, ticks are one freshness apart.

    :param now: timezone-aware.
    """
    if cron is None:
        return 2 * freshness.period
    return now - previous_tick(cron, timezone, now - freshness.period)


def late_from(freshness: Freshness, cron: str | None, timezone: str, fresh_until: datetime) -> datetime:
    """The time at which a table exceeds its :func:`allowed_lag` unless it is refreshed."""
    start = fresh_until + freshness.period if cron is None else next_tick(cron, timezone, fresh_until)
    return start + freshness.period


def _latest(cron: croniter, zone: ZoneInfo, at: datetime) -> datetime:
    tick = _tick_before(cron, zone, at)
    while (following := _following(cron, tick)) <= at:
        tick = following
    return tick


def _tick_before(cron: croniter, zone: ZoneInfo, at: datetime) -> datetime:
    """A tick at or before a time: the latest one, unless the clock changed within a day."""
    day_before = at - timedelta(days=1)
    if day_before.astimezone(zone).utcoffset() != at.astimezone(zone).utcoffset():
        # The ticks around the change can only be determined by iterating from an earlier tick.
        at = day_before
    backwards = cron.all_prev(datetime, start_time=on_the_wall(at.astimezone(zone)) + timedelta(seconds=1))
    return next(tick for wall in backwards if (tick := _aware(wall, zone)) <= at)


def _following(cron: croniter, tick: datetime) -> datetime:
    """The next tick, by the rule of Airflow's CronMixin."""
    wall = on_the_wall(tick)
    following: datetime = cron.get_next(datetime, start_time=wall)
    if cron.expanded[1] == ["*"]:
        # Hourly ticks keep their distance: the repeated hour in autumn has its own.
        return elapsed(tick, following - wall)
    return _aware(following, tick.tzinfo)


def _instant(time: datetime) -> datetime:
    """Convert to UTC, because Python compares two times of one zone by the wall clock."""
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone")
    return time.astimezone(UTC)


def _aware(wall: datetime, zone: tzinfo | None) -> datetime:
    """Localize a wall-clock time: an ambiguous one is the later one, a skipped one is moved by the gap."""
    if is_shown(wall, zone):
        return wall.replace(tzinfo=zone, fold=1)
    return wall.replace(tzinfo=zone, fold=0).astimezone(UTC).astimezone(zone)


_EVERY = ["*"]


def quartz_expression(expression: str) -> str:
    """The same schedule in Quartz syntax: seven fields, from seconds to years, with weekdays from Sunday = 1.

    Hours that DST skips or repeats depend on the scheduler.

    :param expression: accepted by :func:`check_cron`.
    :raises ValueError: when Quartz cannot express it.
    """
    (minutes, hours, days, months, weekdays), nth = croniter.expand(expression)
    if days != _EVERY and weekdays != _EVERY:
        raise ValueError(f"{expression!r} ticks on days of the month and on weekdays; Quartz knows one of the two in a schedule")
    if sum(map(len, nth.values())) > 1 or ("l" in days and len(days) > 1):
        raise ValueError(f"{expression!r} has a last day, or a weekday such as 5#2, among others; Quartz knows one in a schedule")
    day = "?" if weekdays != _EVERY else _quartz_field(days)
    weekday = "?" if weekdays == _EVERY else _quartz_field([number + 1 for number in weekdays if isinstance(number, int)])
    for which in (one for several in nth.values() for one in several):
        weekday += "L" if str(which) == "l" else f"#{which}"
    return " ".join(("0", _quartz_field(minutes), _quartz_field(hours), day, _quartz_field(months), weekday, "*"))


def _quartz_field(values: Sequence[int | str]) -> str:
    first, last = values[0], values[-1]
    if isinstance(first, int) and isinstance(last, int) and len(values) > 2 and last - first == len(values) - 1:
        return f"{first}-{last}"
    return ",".join(map(str, values)).upper()
