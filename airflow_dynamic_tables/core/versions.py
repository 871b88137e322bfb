"""Versions of a table, stream positions, and retention."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.schedule import Freshness

LONGEST_PARTITIONS = 4_000
"""Maximum JSON characters of a version's partitions, because every access to a table reads the metadata of all versions."""


@dataclass(frozen=True, slots=True)
class Version:
    """The result of a commit.

    ``number`` counts 1, 2, 3 … within the table (0: unknown), ``snapshot`` is the format's own id, ``data_timestamp`` the
    schedule time up to which the table is fresh (``None`` while only manually named partitions were refreshed), ``sources`` the
    version of every table the query read. ``partitions`` is the set that the commit replaced; ``None`` when unknown: an earlier
    release made the commit, or the set was too large for the metadata of a table (see :func:`recorded`) and is only in the
    ledger.
    """

    number: int
    token: str
    snapshot: str
    data_timestamp: datetime | None
    committed_at: datetime
    sources: Mapping[str, str] = field(default_factory=dict)
    partitions: PartitionSet | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """The version that a refresh was planned on, by its ``token``, and the time up to which the table was fresh."""

    token: str
    data_timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last batch of a stream that a version of a table includes.

    ``stream`` is a new id whenever a stream starts from scratch, ``batch`` counts up from 0 within it. ``offsets`` is a digest of
    the batch's input, which distinguishes it from another batch of the same number.
    """

    stream: str
    batch: int
    offsets: str


def recorded(partitions: PartitionSet) -> PartitionSet | None:
    """The replaced partitions as recorded in the metadata of a table; ``None`` when they would be too long."""
    return partitions if len(json.dumps(partitions.to_plain())) <= LONGEST_PARTITIONS else None


VERSIONS_TO_KEEP = "versions_to_keep"
"""Option of a table: the number of newest versions that are kept regardless of age."""

VERSION_MAX_AGE = "version_max_age"
"""Option of a table: how long any version is kept, written as a freshness."""

KEEP_DROPPED = "keep_dropped"
"""Option of a table: how long the rows that its expectations drop are kept, written as a freshness."""

SHORTEST_AGE = timedelta(hours=1)
"""Minimum time that a refresh or reader can use a version after it is replaced."""

MINUTE = timedelta(minutes=1)
"""The interval of which one version is kept, for versions younger than an hour."""

HOURLY_UP_TO = timedelta(days=1)
"""The age after which one version per day is kept instead of one per hour."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A version may expire when it is neither among the newest ``versions_to_keep`` nor younger than ``version_max_age``.

    Its age counts from the time it was replaced. ``thinned``: beyond the newest versions, only the last one of each minute is
    kept, after an hour the last one of each hour, and after a day that of each day, so that the default does not accumulate
    thousands. A reader of an expired version loses no files: files younger than a day are not deleted, and older ones also belong
    to the version kept of the previous minute.
    """

    versions_to_keep: int = 10
    version_max_age: timedelta = timedelta(days=7)
    thinned: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Retention:
        """Parse the options of a table; missing options have their defaults.

        :raises ValueError: when an option is not a number or not a length of time.
        """
        if not {VERSIONS_TO_KEEP, VERSION_MAX_AGE} & set(options):
            return DEFAULT_RETENTION
        merged = {**cls().options, **options}
        return cls(int(merged[VERSIONS_TO_KEEP]), Freshness.parse(merged[VERSION_MAX_AGE]).period)

    @property
    def options(self) -> dict[str, str]:
        """The options of a table for this retention, the inverse of :meth:`parse`. The default has none."""
        if self.thinned:
            return {}
        return {
            VERSIONS_TO_KEEP: str(self.versions_to_keep),
            VERSION_MAX_AGE: Freshness(int(self.version_max_age.total_seconds())).text,
        }

    def keeps(self, newer: int, replaced_at: datetime | None, now: datetime) -> bool:
        """Return whether a version, and all newer ones, are kept.

        :param replaced_at: when the next version replaced it; ``None`` for the current one.
        """
        if replaced_at is None or newer < self.versions_to_keep:
            return True
        return not self.thinned and now - replaced_at < max(self.version_max_age, SHORTEST_AGE)

    def versions_kept(self, period: timedelta) -> int:
        """The approximate number of versions kept of a table with one commit per ``period``."""
        if not self.thinned:
            return max(self.versions_to_keep, self.version_max_age // period)
        sampled = SHORTEST_AGE // max(period, MINUTE) + HOURLY_UP_TO // SHORTEST_AGE + self.version_max_age // HOURLY_UP_TO
        return max(self.versions_to_keep, sampled + (self.versions_to_keep if period < MINUTE else 0))

    def span(self, committed_at: datetime, replaced_at: datetime, now: datetime) -> datetime | None:
        """The minute, hour or day of which the newest version is kept when versions are thinned; by its start, in UTC.

        :return: ``None`` when no version of that time is kept.
        """
        age = now - replaced_at
        if not self.thinned or age >= self.version_max_age:
            return None
        minute = committed_at.astimezone(UTC).replace(second=0, microsecond=0)
        if age < SHORTEST_AGE:
            return minute
        return minute.replace(minute=0) if age < HOURLY_UP_TO else minute.replace(hour=0, minute=0)


DEFAULT_RETENTION = Retention(thinned=True)
"""The default retention: the last ten versions, and one per minute for an hour, per hour for a day, per day for a week."""
