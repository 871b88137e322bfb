"""Wall-clock arithmetic: times as a clock on the wall of some time zone shows them, which DST skips or repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

APART = timedelta(hours=1)
"""How far the clocks of two machines may be apart before one of them is taken for wrong, or a time for mistyped."""


def is_ahead(time: datetime, now: datetime) -> bool:
    """Whether a time is in the future by more than clocks are apart: no data can be as fresh as that."""
    return time > now + APART


def parse_schedule_time(text: str) -> datetime:
    """Parse ``YYYY-MM-DD HH:MM:SS`` or ISO 8601; without an offset the result is naive: a time on the wall, of a zone to be told.

    :raises ValueError: when it is no time.
    """
    return datetime.fromisoformat(text.strip())


def on_the_wall(time: datetime) -> datetime:
    """What the clock shows at that time: the same without its zone."""
    return time.replace(tzinfo=None, fold=0)


def is_shown(wall: datetime, zone: tzinfo | None) -> bool:
    """Whether the clock ever shows that time; spring skips an hour."""
    aware = wall.replace(tzinfo=zone, fold=1)
    return on_the_wall(aware.astimezone(UTC).astimezone(zone)) == wall


def elapsed(time: datetime, period: timedelta) -> datetime:
    """The time that is so much later, in the same zone; Python's own addition moves the clock on the wall."""
    return (time.astimezone(UTC) + period).astimezone(time.tzinfo)
