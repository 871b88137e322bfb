"""What whoever writes the data of a source leaves when they are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.tables.dates import check_formatters, scheduled_partitions
from airflow_dynamic_tables.core.tables.partitions import parse_spec

_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class AwaitedRows:
    """How many rows a source must have at least, and how they are counted: its format, and where its files lie if it has some."""

    least: int
    format: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitedData:
    """A file or folder that has to be there before a refresh, or with ``source`` a partition of that table.

    ``text`` is its path or URI, or the name of the partition; in braces it has Java date patterns. With ``rows``, so many have
    to be in that partition; in the whole source when the text is empty.
    """

    text: str
    source: TableIdentifier | None = None
    rows: AwaitedRows | None = None

    @property
    def partition(self) -> dict[str, str]:
        """The values of partition keys, or columns, that are awaited; none for a whole source."""
        return parse_spec(self.text) if self.text else {}

    @property
    def place(self) -> str:
        """What is looked at, as it is shown."""
        if self.source is None:
            return self.text
        return f"partition {self.text} of {self.source}" if self.text else str(self.source)

    def check(self) -> None:
        """Check that it can be looked for.

        :raises ValueError: says what is wrong and what to write instead.
        """
        patterns = _BRACES.findall(self.text)
        if any(brace in _BRACES.sub("", self.text) for brace in "{}"):
            raise ValueError(f"{self.text!r} has a brace without its other half; braces hold a date pattern: {{yyyy-MM-dd}}")
        check_formatters({pattern: pattern for pattern in patterns})
        if self.source is not None and (self.text or self.rows is None):
            parse_spec(self.text)

    def due(self, schedule_time: datetime, freshness: Freshness, timezone: str) -> list[AwaitedData]:
        """What has to be there for a refresh at that time, without braces: for each time of which the refresh would replace
        the partition, were the table partitioned by these patterns.

        :param schedule_time: timezone-aware.
        """
        patterns = {pattern: pattern for pattern in _BRACES.findall(self.text)}
        times = scheduled_partitions(schedule_time, freshness, patterns, timezone)
        return [replace(self, text=_filled(self.text, values)) for values in times]

    def __str__(self) -> str:
        """As it is shown."""
        return f"{self.rows.least} rows in {self.place}" if self.rows is not None else self.place


def _filled(text: str, values: Mapping[str, str | None]) -> str:
    # A function, as a text that takes the place of another may have no backslashes.
    return _BRACES.sub(lambda match: str(values[match[1]]), text)
