"""Watermark options of a source: parsing and validation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.partition_dates import check_formatters
from airflow_dynamic_tables.core.partitions import parse_spec
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.streaming.partition_commits import is_class_path
from airflow_dynamic_tables.core.streaming.source_watermarks import (
    CompleteWhen,
    PartitionOrder,
    PartitionWatermark,
    TimeExtractor,
    start_time,
)

KIND = "partition.time-extractor.kind"
CLASS = "partition.time-extractor.class"
PATTERN = "partition.time-extractor.timestamp-pattern"
FORMATTER = "partition.time-extractor.timestamp-formatter"
INTERVAL = "partition.time-interval"
ORDER = "streaming-source.partition-order"
START = "streaming-source.consume-start-offset"
MONITOR = "streaming-source.monitor-interval"

OPTIONS = (KIND, CLASS, PATTERN, FORMATTER, INTERVAL, ORDER, START, MONITOR)
"""Options of this package, which are not passed to Spark's reader."""

_MONTHS = re.compile(r"(?:interval\s+)?'?\d{1,4}'?\s*(?:month|year)s?", re.IGNORECASE)
_ISO_MONTHS = re.compile(r"P(?=\w)(?:\d{1,4}Y)?(?:\d{1,4}M)?", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+)'?\s*([my])", re.IGNORECASE)
_UNITS = {"m": 1, "y": 12}
_MOST_MONTHS = 1_200
"""A century, the limit of all lengths of time."""

_PREFIXES = ("partition.time", "streaming-source.")
_KINDS = ("default", "custom")


def is_ours(option: str) -> bool:
    """Return whether an option of a source belongs, or was meant to belong, to this package."""
    return option.lower().startswith(_PREFIXES)


def read_watermark(options: Mapping[str, str], complete: CompleteWhen) -> PartitionWatermark:
    """Parse the watermark of a source from valid options."""
    custom = options.get(KIND, "default").lower() == "custom"
    length, months = _interval(options[INTERVAL])
    return PartitionWatermark(
        interval=length,
        extractor=TimeExtractor(options.get(PATTERN), options.get(FORMATTER), options.get(CLASS) if custom else None),
        complete=complete,
        order=PartitionOrder(options.get(ORDER, PartitionOrder.NAME).lower()),
        start=options.get(START),
        monitor_interval=_length(options[MONITOR]) if MONITOR in options else None,
        months=months,
    )


def option_problems(options: Mapping[str, str], keys: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Validate the watermark options of a source; yields an option and the correction of its mistake.

    :param keys: the partition keys of the source; ``None`` when only its catalog knows them.
    """
    for option, value in options.items():
        if is_ours(option):
            if option not in OPTIONS:
                yield option, f"a source has no option {option!r}{did_you_mean(option, OPTIONS)}"
            elif problem := _problem(_CHECKS[option], value):
                yield option, problem
    yield from _extractor_problems(options, keys)
    if START in options:
        by_name = options.get(ORDER, PartitionOrder.NAME).lower() == PartitionOrder.NAME
        if problem := _problem(parse_spec if by_name else start_time, options[START]):
            yield START, problem if by_name else f"{options[START]!r} is no time; write for example 2021-03-19 10:00:00"


def _extractor_problems(options: Mapping[str, str], keys: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    custom = options.get(KIND, "default").lower() == "custom"
    if custom and CLASS not in options:
        yield KIND, f"kind 'custom' needs option '{CLASS}': module:Class"
    for option in (PATTERN, FORMATTER) if custom else ():
        if option in options:
            yield option, "a custom extractor gives times itself; remove it"
    if CLASS in options and not custom:
        yield CLASS, f"it is used with '{KIND}: custom' only; add that, or remove the class"
    if keys and PATTERN in options and (problem := _problem(TimeExtractor(options[PATTERN]).check, keys)):
        yield PATTERN, problem


def _problem(check: Callable[..., object], value: object) -> str | None:
    try:
        check(value)
    except ValueError as error:
        return str(error)
    return None


def _length(text: str) -> timedelta:
    try:
        return Freshness.parse(text).period
    except ValueError:
        raise ValueError(f"{text!r} is no length of time; write for example '1 hour'") from None


def _interval(text: str) -> tuple[timedelta, int]:
    """A length of time or a number of months, whose length varies."""
    stripped = text.strip()
    if match := _MONTHS.fullmatch(stripped) or _ISO_MONTHS.fullmatch(stripped):
        months = sum(int(number) * _UNITS[unit.lower()] for number, unit in _AMOUNT.findall(match[0]))
        if 0 < months <= _MOST_MONTHS:
            return timedelta(), months
    try:
        return Freshness.parse(text).period, 0
    except ValueError:
        raise ValueError(f"{text!r} is no length of time; write for example '1 hour' or '1 month'") from None


def _one_of(named: str, legal: Sequence[str]) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value.lower() not in legal:
            raise ValueError(f"{value!r} is no {named}; use {' | '.join(legal)}{did_you_mean(value, legal)}")

    return check


def _check_class(text: str) -> None:
    if not is_class_path(text):
        raise ValueError(f"{text!r} is no class; write module:Class")


_CHECKS: Mapping[str, Callable[[str], object]] = {
    KIND: _one_of("kind of extractor", _KINDS),
    CLASS: _check_class,
    PATTERN: str,
    FORMATTER: lambda pattern: check_formatters({"": pattern}),
    INTERVAL: _interval,
    ORDER: _one_of("order of partitions", tuple(PartitionOrder)),
    START: str,
    MONITOR: _length,
}
