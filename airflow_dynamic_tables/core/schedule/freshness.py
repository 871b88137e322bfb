"""Freshness: how old the content of a table may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

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
"""Seconds in a century: Python's dates have room for it before and after every time that somebody schedules."""


@dataclass(frozen=True, slots=True, order=True)
class Freshness:
    """A positive whole number of seconds; ``text`` names it in the largest unit that divides it, e.g. ``1 day``."""

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError("freshness must be longer than zero")
        if self.seconds > _LONGEST:
            raise ValueError("freshness must be at most 100 years of 365 days")

    @classmethod
    def parse(cls, text: str) -> Freshness:
        """Parse ``1 day``, ``90 minutes``, ``P1D``, ``PT30M`` or ``INTERVAL '1' DAY``.

        :raises ValueError: when it is none of these, says what is legal.
        """
        stripped = text.strip()
        if stripped.upper() == "DOWNSTREAM":
            raise ValueError("freshness DOWNSTREAM is not supported yet; give a length of time such as '1 day'")
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
        """How many of :attr:`unit`."""
        return self.seconds // _UNITS[self.unit]

    @property
    def period(self) -> timedelta:
        """The same as a timedelta."""
        return timedelta(seconds=self.seconds)

    @property
    def text(self) -> str:
        """Normalised text, e.g. ``1 day`` or ``90 minutes``."""
        return f"{self.amount} {self.unit}{'' if self.amount == 1 else 's'}"

    def __str__(self) -> str:
        return self.text
