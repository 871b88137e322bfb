"""Time partitions that a batch publishes, and the conditions under which they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.partition_dates import partitions_within
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.streaming.source_watermarks import (
    EMPTY,
    SUCCESS_FILE,
    PartitionBatch,
    SeenPartition,
    is_class_path,
)

MOST_SKIPPED = 10_000
"""Maximum number of empty partitions that a watermark closes at once: more than a year of hours is a mistyped date."""


def partitions_of(one: SeenPartition, formatters: Mapping[str, str]) -> PartitionSet:
    """The partitions of a table with the rows of a source partition; the entire table when its partitions have no times."""
    if not formatters:
        return WHOLE_TABLE
    return PartitionSet.of(partition.spec for partition in partitions_within(one.start, one.end, formatters))


def to_publish(
    taken: Iterable[SeenPartition], reached: datetime | None, watermark: datetime | None, formatters: Mapping[str, str]
) -> PartitionSet:
    """The partitions of a table that a batch publishes, oldest first.

    These are the partitions of taken source partitions that end at or before the watermark, and the empty ones that the watermark
    passes for the first time.

    :param reached: the watermark before this batch; all times are naive wall-clock times.
    :return: the entire table when its partitions have no times; empty when all partitions have to wait.
    """
    partitions = list(taken)
    if watermark is None or (not partitions and (reached is None or reached >= watermark)):
        return NO_PARTITIONS
    if not formatters:
        return WHOLE_TABLE if partitions else NO_PARTITIONS
    stretches = [(one.start, one.end) for one in partitions]
    if reached is not None and reached < watermark:
        stretches.append((reached, watermark))
    closed = {
        partition.start: partition.spec
        for first, end in stretches
        for partition in islice(partitions_within(first, end, formatters), MOST_SKIPPED)
        if partition.end <= watermark
    }
    return PartitionSet.of(closed[start] for start in sorted(closed))


def is_closed(one: SeenPartition, watermark: datetime, formatters: Mapping[str, str]) -> bool:
    """Return whether all partitions of a table with rows of a source partition end at or before the watermark."""
    return not formatters or all(own.end <= watermark for own in partitions_within(one.start, one.end, formatters))


def read_after(
    batch: PartitionBatch, read: Mapping[str, str], published: PartitionSet, formatters: Mapping[str, str]
) -> dict[str, str]:
    """Fingerprints of the source partitions that the table contains after these partitions of it are published.

    A source partition that also has rows in unpublished partitions keeps its former fingerprint, or none, so that a later batch
    finds it. A deleted one keeps its fingerprint unless the entire table is rebuilt without it.

    :param read: the fingerprints before.
    """
    after = {} if published.is_whole else dict(read)
    known = PartitionSet.of(map(_plain, published))
    for one in batch.readable:
        if published.is_whole or all(known.covers(_plain(spec)) for spec in partitions_of(one, formatters)):
            after[one.name] = one.fingerprint or EMPTY
    return after


def _plain(spec: Mapping[str, str | None]) -> dict[str, str | None]:
    """The same spec without leading zeros, because numeric keys have none, whatever the formatter writes."""
    return {key: str(int(value)) if value is not None and value.isdecimal() else value for key, value in spec.items()}


PREFIX = "sink.partition-commit."
"""Prefix of these options."""

_TRIGGER = f"{PREFIX}trigger"
_DELAY = f"{PREFIX}delay"
_ZONE = f"{PREFIX}watermark-time-zone"
_POLICIES = f"{PREFIX}policy.kind"
_CLASS = f"{PREFIX}policy.class"
_FILE = f"{PREFIX}success-file.name"
_METASTORE = "metastore"
"""A policy of Flink that makes already written partitions visible."""

OPTIONS = (_TRIGGER, _DELAY, _ZONE, _POLICIES, _CLASS, _FILE)
"""Options of a table that define when its partitions are complete."""


class CommitTrigger(StrEnum):
    """The condition under which a partition is complete."""

    PROCESS_TIME = "process-time"
    PARTITION_TIME = "partition-time"


class CommitPolicy(StrEnum):
    """How a complete partition is announced."""

    SUCCESS_FILE = "success-file"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """When the time partitions of a table are complete, and how that is announced besides Airflow.

    ``zone`` is the time zone of a partition's start; ``None``: the time zone of the watermark, which is the table's.
    """

    trigger: CommitTrigger = CommitTrigger.PROCESS_TIME
    delay: timedelta = timedelta()
    zone: str | None = None
    policies: tuple[CommitPolicy, ...] = ()
    policy_class: str | None = None
    success_file: str = SUCCESS_FILE

    def is_due(self, created_at: datetime, now: datetime) -> bool:
        """Return whether a partition is complete by its first publication and the caller's clock.

        For :attr:`CommitTrigger.PROCESS_TIME`. Both times are timezone-aware.
        """
        return not self.delay or now > created_at + self.delay

    def is_passed(self, start: datetime, watermark: datetime | None, timezone: str) -> bool:
        """Return whether the watermark is past the start of a partition by more than the delay.

        For :attr:`CommitTrigger.PARTITION_TIME`. Both times are naive.

        :param timezone: the table's, which is that of the watermark.
        """
        if watermark is None:
            return False
        if self.zone is None:
            return watermark > start + self.delay
        instant = start.replace(tzinfo=ZoneInfo(self.zone)) + self.delay
        return watermark.replace(tzinfo=ZoneInfo(timezone), fold=1).timestamp() > instant.timestamp()


def read_partition_commit(options: Mapping[str, str]) -> PartitionCommit | None:
    """Parse the partition commit of a table from valid options; ``None`` when they have none."""
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
    """Validate the options of a table's partition commit; yields an option and the correction of its mistake.

    :param is_continuous: whether the table is refreshed continuously.
    :param has_times: whether date formatters define its partitions.
    :param has_watermark: whether a source may have a watermark by partitions.
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


def _names(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def _is_zero(text: str) -> bool:
    number, _, unit = text.strip().partition(" ")
    return text.strip() in ("0", "0s") or (number == "0" and unit.isalpha())
