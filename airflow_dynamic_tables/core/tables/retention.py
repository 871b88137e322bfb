"""Retention: which versions of a table are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_dynamic_tables.core.schedule.freshness import Freshness

VERSIONS_TO_KEEP = "versions_to_keep"
"""Option of a table: how many of its newest versions are kept, however old they are."""

VERSION_MAX_AGE = "version_max_age"
"""Option of a table: how long any version is kept, written as a freshness."""

SHORTEST_AGE = timedelta(hours=1)
"""A refresh or a reader that began when a version was the current one has at least that long."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A version may go when it is neither among the newest ``versions_to_keep`` nor younger than ``version_max_age``.

    Its age counts from the moment another version took its place.
    """

    versions_to_keep: int = 10
    version_max_age: timedelta = timedelta(days=7)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Retention:
        """Read it from the options of a table; what is missing there is the default.

        :raises ValueError: when an option is no number or no length of time.
        """
        merged = {**cls().options, **options}
        return cls(int(merged[VERSIONS_TO_KEEP]), Freshness.parse(merged[VERSION_MAX_AGE]).period)

    @property
    def options(self) -> dict[str, str]:
        """Itself as options of a table; :meth:`parse` gives the same value back."""
        return {
            VERSIONS_TO_KEEP: str(self.versions_to_keep),
            VERSION_MAX_AGE: Freshness(int(self.version_max_age.total_seconds())).text,
        }

    def keeps(self, newer: int, replaced_at: datetime | None, now: datetime) -> bool:
        """Whether a version is to be kept.

        :param newer: how many newer versions there are.
        :param replaced_at: when the next version took its place; ``None`` for the current one.
        """
        if replaced_at is None or newer < self.versions_to_keep:
            return True
        return now - replaced_at < max(self.version_max_age, SHORTEST_AGE)
