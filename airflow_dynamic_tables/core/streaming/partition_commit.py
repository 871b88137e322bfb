"""Partition commit: when a time partition of a table is complete, and who is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.streaming.watermarks import SUCCESS_FILE
from airflow_dynamic_tables.core.tables.formats import FORMATS

PREFIX = "sink.partition-commit."
"""How the names of these options begin."""

_TRIGGER = f"{PREFIX}trigger"
_DELAY = f"{PREFIX}delay"
_ZONE = f"{PREFIX}watermark-time-zone"
_POLICIES = f"{PREFIX}policy.kind"
_CLASS = f"{PREFIX}policy.class"
_FILE = f"{PREFIX}success-file.name"
_METASTORE = "metastore"
"""A policy of Flink's, which makes partitions visible that were written before."""

OPTIONS = (_TRIGGER, _DELAY, _ZONE, _POLICIES, _CLASS, _FILE)
"""Options of a table that say when its partitions are complete."""


class CommitTrigger(StrEnum):
    """What says that a partition is complete."""

    PROCESS_TIME = "process-time"
    PARTITION_TIME = "partition-time"


class CommitPolicy(StrEnum):
    """Who is told that a partition is complete."""

    SUCCESS_FILE = "success-file"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """When the time partitions of a table are complete, and who is told besides Airflow.

    ``zone`` is where the start of a partition is on the wall; ``None``: as the watermark, in the time zone of the table.
    """

    trigger: CommitTrigger = CommitTrigger.PROCESS_TIME
    delay: timedelta = timedelta()
    zone: str | None = None
    policies: tuple[CommitPolicy, ...] = ()
    policy_class: str | None = None
    success_file: str = SUCCESS_FILE

    def is_due(self, created_at: datetime, now: datetime) -> bool:
        """Whether a partition that was published first at some time is complete, by the clock of whoever asks.

        For :attr:`CommitTrigger.PROCESS_TIME`. Both are timezone-aware.
        """
        return not self.delay or now > created_at + self.delay

    def is_passed(self, start: datetime, watermark: datetime | None, timezone: str) -> bool:
        """Whether the watermark is past the start of a partition by more than the delay.

        For :attr:`CommitTrigger.PARTITION_TIME`. Both are naive.

        :param timezone: that of the table, in which the watermark is.
        """
        if watermark is None:
            return False
        if self.zone is None:
            return watermark > start + self.delay
        instant = start.replace(tzinfo=ZoneInfo(self.zone)) + self.delay
        return watermark.replace(tzinfo=ZoneInfo(timezone), fold=1).timestamp() > instant.timestamp()


def read_partition_commit(options: Mapping[str, str]) -> PartitionCommit | None:
    """What the options of a table say of its partition commit, ``None`` when nothing; of options without a mistake."""
    if not any(option.startswith(PREFIX) for option in options):
        return None
    policies = [CommitPolicy(name) for name in _names(options.get(_POLICIES, ""))]
    delay = options.get(_DELAY, "0")
    return PartitionCommit(
        trigger=CommitTrigger(options.get(_TRIGGER, CommitTrigger.PROCESS_TIME)),
        delay=timedelta() if _is_zero(delay) else Freshness.parse(delay).period,
        zone=options.get(_ZONE),
        policies=tuple(dict.fromkeys(policies)),
        policy_class=options.get(_CLASS),
        success_file=options.get(_FILE, SUCCESS_FILE),
    )


def commit_problems(
    options: Mapping[str, str], is_continuous: bool, has_times: bool, has_watermark: bool, table_format: str
) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a table that concern its partition commit: option, and what to write instead.

    :param is_continuous: whether the table is refreshed all the time.
    :param has_times: whether date formatters name its partitions.
    :param has_watermark: whether a source that it reads may tell by its partitions how far it is.
    """
    for option, value in options.items():
        if option.startswith(PREFIX) and (problem := _problem(option, value)):
            yield option, problem
    policies = _names(options.get(_POLICIES, ""))
    custom = CommitPolicy.CUSTOM in policies
    if custom and _CLASS not in options:
        yield _POLICIES, f"policy 'custom' needs option '{_CLASS}': module:Class"
    if _CLASS in options and not custom:
        yield _CLASS, f"it is used by policy 'custom' only; add that to option '{_POLICIES}'"
    if CommitPolicy.SUCCESS_FILE in policies and FORMATS[table_format].keys_in_files:
        nothing = f"so policy {CommitPolicy.SUCCESS_FILE.value!r} has nothing to do"
        yield _POLICIES, f"{table_format} tables have no folder for each partition, {nothing}"
    if options.get(_TRIGGER) == CommitTrigger.PARTITION_TIME and not has_watermark:
        message = "nothing that this table reads has a watermark, so no partition would ever be complete; "
        yield _TRIGGER, f"{message}write 'watermark: source' at a source, or 'process-time' here"
    used = next(filter(OPTIONS.__contains__, options), None)
    if used is not None and not has_times:
        yield used, "it needs time partitions: give a partition key option 'partition.fields.<key>.date-formatter'"
    if used is not None and not is_continuous:
        yield used, "it is for tables that are refreshed all the time; write 'refresh_mode: continuous', or remove it"


def _problem(option: str, value: str) -> str | None:
    if option not in OPTIONS:
        return f"a table has no option {option!r}{did_you_mean(option, OPTIONS)}"
    legal: tuple[str, ...] = tuple(CommitPolicy)
    if option == _POLICIES and _METASTORE in _names(value):
        done = "a commit adds its partitions to the metastore together with their rows"
        return f"policy {_METASTORE!r} has nothing to do: {done}; remove it"
    if option == _POLICIES:
        unknown = next((name for name in _names(value) if name not in legal), None)
        named = "policy"
    else:
        legal = tuple(CommitTrigger)
        unknown = value if option == _TRIGGER and value not in legal else None
        named = "trigger"
    if unknown is not None:
        return f"{unknown!r} is no {named}; use {' | '.join(legal)}{did_you_mean(unknown, legal)}"
    return _value_problem(option, value)


def _value_problem(option: str, value: str) -> str | None:
    if option == _DELAY and not _is_zero(value):
        try:
            Freshness.parse(value)
        except ValueError:
            return f"{value!r} is no length of time; write for example '1 hour'"
    if option == _ZONE:
        try:
            ZoneInfo(value)
        except (ValueError, KeyError, OSError):
            return f"there is no time zone {value!r}; use a name such as 'Europe/Berlin'"
    if option == _FILE and (not value.strip() or "/" in value or not value.startswith(("_", "."))):
        return f"{value!r} is no name of a marker: it begins with '_' or '.', so that no reader takes it for data"
    if option == _CLASS and not is_class_path(value):
        return f"{value!r} is no class; write module:Class"
    return None


def is_class_path(text: str) -> bool:
    """Whether a text is ``module:Class``."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _names(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def _is_zero(text: str) -> bool:
    number, _, unit = text.strip().partition(" ")
    return text.strip() in ("0", "0s") or (number == "0" and unit.isalpha())
