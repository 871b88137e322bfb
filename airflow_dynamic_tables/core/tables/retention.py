"""Retention: which versions of a table are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_dynamic_tables.core.schedule.freshness import Freshness

VERSIONS_TO_KEEP = "versions_to_keep"
"""Option of a table: how many of its newest versions are kept, however old they are."""

VERSION_MAX_AGE = "version_max_age"
"""Option of a table: how long any version is kept, written as a freshness."""

SHORTEST_AGE = timedelta(hours=1)
"""A refresh or a reader that began when a version was the current one has at least that long."""

MINUTE = timedelta(minutes=1)
"""Of how long a time one version is kept of those that are younger than an hour."""

HOURLY_UP_TO = timedelta(days=1)
"""How old a version gets before one a day is kept instead of one an hour."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A version may go when it is neither among the newest ``versions_to_keep`` nor younger than ``version_max_age``.

    Its age counts from the moment another version took its place. ``thinned``: beyond the newest only the last one of each minute
    is kept, after an hour the last one of each hour, and after a day that of each day, so that nobody who says nothing keeps
    thousands. Whoever reads one that goes so loses no file: what is younger than a day is not deleted, and what is older is also
    of the version that is kept of the minute before.
    """

    versions_to_keep: int = 10
    version_max_age: timedelta = timedelta(days=7)
    thinned: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Retention:
        """Read it from the options of a table; what is missing there is the default.

        :raises ValueError: when an option is no number or no length of time.
        """
        if not {VERSIONS_TO_KEEP, VERSION_MAX_AGE} & set(options):
            return DEFAULT_RETENTION
        merged = {**cls().options, **options}
        return cls(int(merged[VERSIONS_TO_KEEP]), Freshness.parse(merged[VERSION_MAX_AGE]).period)

    @property
    def options(self) -> dict[str, str]:
        """Itself as options of a table; :meth:`parse` gives the same value back. The default needs none."""
        if self.thinned:
            return {}
        return {
            VERSIONS_TO_KEEP: str(self.versions_to_keep),
            VERSION_MAX_AGE: Freshness(int(self.version_max_age.total_seconds())).text,
        }

    def keeps(self, newer: int, replaced_at: datetime | None, now: datetime) -> bool:
        """Whether a version is to be kept, and all newer ones with it.

        :param newer: how many newer versions there are.
        :param replaced_at: when the next version took its place; ``None`` for the current one.
        """
        if replaced_at is None or newer < self.versions_to_keep:
            return True
        return not self.thinned and now - replaced_at < max(self.version_max_age, SHORTEST_AGE)

    def versions_kept(self, period: timedelta) -> int:
        """About how many versions are kept of a table that gets one in every ``period``."""
        if not self.thinned:
            return max(self.versions_to_keep, self.version_max_age // period)
        sampled = SHORTEST_AGE // max(period, MINUTE) + HOURLY_UP_TO // SHORTEST_AGE + self.version_max_age // HOURLY_UP_TO
        return max(self.versions_to_keep, sampled + (self.versions_to_keep if period < MINUTE else 0))

    def span(self, committed_at: datetime, replaced_at: datetime, now: datetime) -> datetime | None:
        """The minute, hour or day of which the newest version is kept, when versions are thinned; by its beginning, in UTC.

        :return: ``None`` when none is kept of that time.
        """
        age = now - replaced_at
        if not self.thinned or age >= self.version_max_age:
            return None
        minute = committed_at.astimezone(UTC).replace(second=0, microsecond=0)
        if age < SHORTEST_AGE:
            return minute
        return minute.replace(minute=0) if age < HOURLY_UP_TO else minute.replace(hour=0, minute=0)


DEFAULT_RETENTION = Retention(thinned=True)
"""What holds for a table that says nothing: the last ten, and one a minute for an hour, an hour for a day, a day for a week."""
