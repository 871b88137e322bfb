"""Wall-clock arithmetic with DST, freshness, refresh modes, and settings of continuous refreshes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

APART = timedelta(hours=1)
"""Maximum tolerated clock skew between two machines."""


def is_ahead(time: datetime, now: datetime) -> bool:
    """Return whether a time is in the future by more than the tolerated clock skew."""
    return time > now + APART


def parse_schedule_time(text: str) -> datetime:
    """Parse ``YYYY-MM-DD HH:MM:SS`` or ISO 8601; without an offset the result is a naive wall-clock time.

    :raises ValueError: when the text is not a time.
    """
    return datetime.fromisoformat(text.strip())


def on_the_wall(time: datetime) -> datetime:
    """The wall-clock time of a time: the same without its zone."""
    return time.replace(tzinfo=None, fold=0)


def is_shown(wall: datetime, zone: tzinfo | None) -> bool:
    """Return whether a wall-clock time exists in a time zone; an hour is skipped in spring."""
    aware = wall.replace(tzinfo=zone, fold=1)
    return on_the_wall(aware.astimezone(UTC).astimezone(zone)) == wall


def elapsed(time: datetime, period: timedelta) -> datetime:
    """The time after an elapsed period, in the same zone; Python's own addition is wall-clock arithmetic."""
    return (time.astimezone(UTC) + period).astimezone(time.tzinfo)


_UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
"""Seconds of each unit."""
_ALIASES = {
    **{name: name for name in _UNITS},
    **{f"{name}s": name for name in _UNITS},
    "min": "minute",
    "mins": "minute",
    "sec": "second",
    "secs": "second",
    "hr": "hour",
    "hrs": "hour",
    "w": "week",
    "d": "day",
    "h": "hour",
    "m": "minute",
    "s": "second",
}
_WORDS = re.compile(r"([+-]?\d[\d.,]{0,20})\s*([a-z]+)", re.IGNORECASE)
_SQL = re.compile(r"interval\s+(?:'\s*([^'\s]{1,20})\s*'|([^'\s]{1,20}))\s*([a-z]+)", re.IGNORECASE)
_ISO = re.compile(
    r"P(?=\w)(?:(\d{1,20})W)?(?:(\d{1,20})D)?(?:T(?=\d)(?:(\d{1,20})H)?(?:(\d{1,20})M)?(?:(\d{1,20})S)?)?", re.IGNORECASE
)
_LONGEST = 100 * 365 * 86_400
"""Seconds in a century: Python's dates can represent such a period before and after every realistic schedule time."""


@dataclass(frozen=True, slots=True, order=True)
class Freshness:
    """A positive whole number of seconds; ``text`` is in the largest unit that divides it, e.g. ``1 day``."""

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError("freshness must be longer than zero")
        if self.seconds > _LONGEST:
            raise ValueError("freshness must be at most 100 years of 365 days")

    @classmethod
    def parse(cls, text: str) -> Freshness:
        """Parse ``1 day``, ``90 minutes``, ``P1D``, ``PT30M`` or ``INTERVAL '1' DAY``.

        :raises ValueError: with the legal forms.
        """
        stripped = text.strip()
        if stripped.upper() == "DOWNSTREAM":
            raise ValueError(
                "freshness is a length of time such as '1 day', not DOWNSTREAM; to read tables that are older, use 'max_lag'"
            )
        if iso := _ISO.fullmatch(stripped):
            amounts = zip(_UNITS.values(), (int(group or 0) for group in iso.groups()), strict=True)
            return cls(sum(unit * amount for unit, amount in amounts))

        match = _SQL.fullmatch(stripped) or _WORDS.fullmatch(stripped)
        if match is None:
            raise ValueError(f"{text!r} is no freshness; write for example '1 day', 'PT30M' or \"INTERVAL '1' DAY\"")

        *numbers, word = match.groups()
        number = "".join(filter(None, numbers))
        unit = _ALIASES.get(word.lower())
        if unit is None:
            raise ValueError(f"{word!r} is no unit of freshness; use seconds, minutes, hours, days or weeks")
        if not number.isdecimal() or int(number) == 0:
            raise ValueError(f"freshness must be a positive whole number of {unit}s, not {number!r}")
        return cls(int(number) * _UNITS[unit])

    @property
    def unit(self) -> str:
        """The largest unit that divides it: week, day, hour, minute or second."""
        return next(name for name, seconds in _UNITS.items() if self.seconds % seconds == 0)

    @property
    def amount(self) -> int:
        """The number of :attr:`unit`."""
        return self.seconds // _UNITS[self.unit]

    @property
    def period(self) -> timedelta:
        """The freshness as a timedelta."""
        return timedelta(seconds=self.seconds)

    @property
    def text(self) -> str:
        """Normalised text, e.g. ``1 day`` or ``90 minutes``."""
        return f"{self.amount} {self.unit}{'' if self.amount == 1 else 's'}"

    def __str__(self) -> str:
        return self.text


FRESHNESS_THRESHOLD = Freshness(30 * 60)
"""A table with a shorter freshness is refreshed continuously (Flink's default)."""

DEFAULT_FULL_FRESHNESS = Freshness(60 * 60)
"""Default freshness of a table with batch refreshes (Flink's default)."""

DEFAULT_CONTINUOUS_FRESHNESS = Freshness(3 * 60)
"""Default freshness of any other table (Flink's default)."""


class RefreshMode(StrEnum):
    """How a table is refreshed; AUTO may be declared but is never the actual mode."""

    AUTO = "AUTO"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"
    """Only the partitions whose sources changed, or all rows if they are unknown."""

    INCREMENTAL_STRICT = "INCREMENTAL_STRICT"
    """Only the partitions whose sources changed; the refresh is refused if they are unknown."""

    CONTINUOUS = "CONTINUOUS"

    @property
    def is_incremental(self) -> bool:
        """Whether a refresh replaces only the partitions whose sources changed."""
        return self in (RefreshMode.INCREMENTAL, RefreshMode.INCREMENTAL_STRICT)


@dataclass(frozen=True, slots=True)
class ModeDecision:
    """The actual refresh mode and freshness of a table, with the reason as a sentence."""

    mode: RefreshMode
    freshness: Freshness
    reason: str


def decide(declared: RefreshMode, freshness: Freshness | None, threshold: Freshness = FRESHNESS_THRESHOLD) -> ModeDecision:
    """A declared mode wins; AUTO is CONTINUOUS when the freshness is below the threshold, else FULL (FLIP-435).

    Without a freshness, AUTO and CONTINUOUS have three minutes, which then decides as if declared, and the others one hour.
    """
    batch = declared not in (RefreshMode.AUTO, RefreshMode.CONTINUOUS)
    actual = freshness or (DEFAULT_FULL_FRESHNESS if batch else DEFAULT_CONTINUOUS_FRESHNESS)
    if declared is not RefreshMode.AUTO:
        origin = "" if freshness else f", with the default freshness of {actual} as none is declared"
        return ModeDecision(declared, actual, f"refresh mode {declared} is declared{origin}")
    origin = "" if freshness else " (the default, as none is declared)"
    continuous = actual < threshold
    return ModeDecision(
        RefreshMode.CONTINUOUS if continuous else RefreshMode.FULL,
        actual,
        f"freshness {actual}{origin} is {'below' if continuous else 'not below'} the threshold of {threshold}",
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StrategyName(StrEnum):
    """How a continuous table is refreshed; AUTO may be declared but is never chosen."""

    AUTO = "auto"
    MICRO_REFRESH = "micro-refresh"
    """An ordinary refresh per freshness period."""
    STREAM = "stream"
    """Batches of a streaming query, which keeps its state between batches."""


@dataclass(frozen=True, slots=True)
class ContinuousSettings:
    """Settings of continuous refreshes.

    A task runs for ``hold`` at most. It ends ``events`` after the first commit that was not reported to Airflow, because Airflow
    accepts asset events only from tasks that end.
    """

    strategy: StrategyName = StrategyName.AUTO
    hold: timedelta = timedelta(hours=1)
    events: timedelta = timedelta(minutes=1)


DEFAULT_CONTINUOUS = ContinuousSettings()
"""The settings of a table without its own."""


def grid_time(now: datetime, freshness: Freshness) -> datetime:
    """The schedule time of a continuous refresh: the last multiple of the freshness since 1970 up to now, in UTC."""
    return now - (now.astimezone(UTC) - _EPOCH) % freshness.period
