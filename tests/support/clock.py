"""A clock that stands still, and the zones and spans of time that the tests of cron and partitions walk through."""

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import cron_for, ticks
from airflow_dynamic_tables.core.schedule import Freshness

FIVE_ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")
# Their clocks are changed at midnight, from 23:00 to midnight, four times a year, and in the southern winter.
ODD_ZONES = ("Africa/Cairo", "America/Havana", "America/Nuuk", "Africa/Casablanca", "America/Santiago")

YEAR = datetime.fromisoformat("2024-01-01"), datetime.fromisoformat("2025-01-01")


def changes(timezone: str) -> list[datetime]:
    zone = ZoneInfo(timezone)
    days = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(366)]
    return [day for day in days if day.astimezone(zone).utcoffset() != (day + timedelta(days=1)).astimezone(zone).utcoffset()]


@cache
def ticks_of(freshness: str, timezone: str, start: datetime, end: datetime) -> list[datetime]:
    zone = ZoneInfo(timezone)
    cron = cron_for(Freshness.parse(freshness))
    return list(ticks(cron, timezone, start.replace(tzinfo=zone), end.replace(tzinfo=zone)))


def wall(time: datetime) -> datetime:
    return time.replace(tzinfo=None, fold=0)


@cache
def shown(start: datetime, end: datetime, pattern: str, timezone: str) -> frozenset[str]:
    """Every name of an hour (or day, or minute) that a clock on the wall shows between two local times."""
    zone, found = ZoneInfo(timezone), set()
    step = timedelta(minutes=1 if "%M" in pattern else 30)
    instant, until = start.replace(tzinfo=zone).astimezone(UTC), end.replace(tzinfo=zone).astimezone(UTC)
    while instant < until:
        found.add(instant.astimezone(zone).strftime(pattern))
        instant += step
    return frozenset(found)


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2024, 3, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time
