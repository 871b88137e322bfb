"""Partition time: which time the values of a partition stand for. By the clock on the wall, so no time zone is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.tables.dates import check_formatters, formatted, parsed
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, describe

_LENIENT = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)
_MICROSECOND_DIGITS = 6
_NAME = re.compile(r"\$(\w+)")


class PartitionTimeError(ValueError):
    """The values of a partition are no time."""


@dataclass(frozen=True, slots=True)
class TimeExtractor:
    """How the values of a partition become a time, as Flink's extractor of the same options does it.

    ``pattern`` is a text with ``$key`` in the places of values; without one the value of the first key is the time.
    ``formatter`` is the Java date pattern of the result; without one it is ``y-M-d`` or ``y-M-d H:m:s[.n]``, each field with
    or without leading zeros. ``class_path`` (``module:Class``) takes the place of both.
    """

    pattern: str | None = None
    formatter: str | None = None
    class_path: str | None = None

    def check(self, keys: Sequence[str]) -> None:
        """Check that it can be used with these partition keys.

        :raises ValueError: says what is wrong and what to write instead.
        """
        if self.pattern is not None:
            names = _NAME.findall(self.pattern)
            if not names:
                raise ValueError(f"{self.pattern!r} names no partition key; write for example ${keys[0]}")
            for name in names:
                if not any(name.startswith(key) for key in keys):
                    raise ValueError(f"${name} is no partition key of this source{did_you_mean(name, keys)}")
        if self.formatter is not None:
            check_formatters({"": self.formatter})

    def time_of(self, spec: Mapping[str, str], keys: Sequence[str]) -> datetime:
        """The time of a partition, naive.

        :raises PartitionTimeError: when its values are none; says which.
        """
        missing = [key for key in keys if spec.get(key, NULL_PARTITION) == NULL_PARTITION]
        if missing:
            raise PartitionTimeError(f"partition {describe(spec)!r} has no value of {missing[0]}, so it has no time")
        text = self._text(spec, keys)
        found = _lenient(text) if self.formatter is None else _strict(text, self.formatter)
        if found is None:
            meant = "2021-03-19 or 2021-03-19 10:00:00"
            if self.formatter is not None:
                meant = formatted(datetime(2021, 3, 19, 10), self.formatter)  # noqa: DTZ001 - wall clock
            raise PartitionTimeError(f"partition {describe(spec)!r} gives {text!r}, which is no time such as {meant}")
        return found

    def _text(self, spec: Mapping[str, str], keys: Sequence[str]) -> str:
        if self.pattern is None:
            return spec[keys[0]]
        # All at once, so that no value is taken for a key; and the longest key first, as $dt is a part of $dt1.
        longest_first = sorted(keys, key=len, reverse=True)
        names = re.compile(r"\$(" + "|".join(map(re.escape, longest_first)) + ")")
        return names.sub(lambda match: spec[match[1]], self.pattern)


def _lenient(text: str) -> datetime | None:
    match = _LENIENT.fullmatch(text)
    if match is None:
        return None
    *fields, fraction = (group or "0" for group in match.groups())
    year, month, day, hour, minute, second = map(int, fields)
    microseconds = int(fraction.ljust(_MICROSECOND_DIGITS, "0")[:_MICROSECOND_DIGITS])
    try:
        return datetime.combine(date(year, month, day), time(hour, minute, second, microseconds))
    except ValueError:
        return None


def _strict(text: str, formatter: str) -> datetime | None:
    try:
        return parsed(text, formatter)
    except ValueError:
        return None
