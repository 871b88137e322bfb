"""Sources of refreshes, and the data that a refresh waits for."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from airflow_dynamic_tables.core.formats import FORMATS, VIEW, Endless, endless_format
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.partition_dates import check_formatters, scheduled_partitions
from airflow_dynamic_tables.core.partitions import parse_spec
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionWatermark
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.redaction import has_password, is_secret_name

_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class AwaitedRows:
    """The minimum number of rows of a source, with its format and its location if it has files."""

    least: int
    format: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitedData:
    """A file or folder that must exist before a refresh, or with ``source`` a partition of that table.

    ``text`` is its path or URI, or the name of the partition; braces enclose Java date patterns. With ``rows``, that partition
    must have at least as many rows; the entire source when the text is empty.
    """

    text: str
    source: TableIdentifier | None = None
    rows: AwaitedRows | None = None

    @property
    def partition(self) -> dict[str, str]:
        """The awaited values of partition keys or columns; empty for an entire source."""
        return parse_spec(self.text) if self.text else {}

    @property
    def place(self) -> str:
        """The awaited file or partition as text."""
        if self.source is None:
            return self.text
        return f"partition {self.text} of {self.source}" if self.text else str(self.source)

    def check(self) -> None:
        """Check that the text is valid.

        :raises ValueError: with the mistake and the correction.
        """
        patterns = _BRACES.findall(self.text)
        if any(brace in _BRACES.sub("", self.text) for brace in "{}"):
            raise ValueError(f"{self.text!r} has a brace without its other half; braces hold a date pattern: {{yyyy-MM-dd}}")
        check_formatters({pattern: pattern for pattern in patterns})
        if self.source is not None and (self.text or self.rows is None):
            parse_spec(self.text)

    def due(self, schedule_time: datetime, freshness: Freshness, timezone: str) -> list[AwaitedData]:
        """The awaited data of a refresh at that time, with patterns filled in.

        There is one for each partition that the refresh would replace if the table were partitioned by these patterns.

        :param schedule_time: timezone-aware.
        """
        patterns = {pattern: pattern for pattern in _BRACES.findall(self.text)}
        times = scheduled_partitions(schedule_time, freshness, patterns, timezone)
        return [replace(self, text=_filled(self.text, values)) for values in times]

    def __str__(self) -> str:
        """The awaited data as text."""
        return f"{self.rows.least} rows in {self.place}" if self.rows is not None else self.place


def _filled(text: str, values: Mapping[str, str | None]) -> str:
    # A function, because a replacement string would have its backslashes interpreted.
    return _BRACES.sub(lambda match: str(values[match[1]]), text)


def option_problem(source_format: str, option: str) -> str | None:
    """Return why an option is not allowed, and the alternative; ``None`` when it is allowed."""
    instead = FORMATS[source_format].options_of_others.get(option.lower())
    if instead is None and (endless := FORMATS[source_format].endless) is not None and option not in endless.options:
        login = "; a login belongs in the Airflow connection of 'conn_id'" if endless.address else ""
        instead = f"it may have {', '.join(endless.options)}{did_you_mean(option, endless.options)}{login}"
    if instead is None and not FORMATS[source_format].takes_options:
        instead = "a refresh reads the version that the table has when it begins, as its log tells it; remove the option"
    if instead is None and is_secret_name(option):
        instead = "options are written into the plan of every refresh; give secrets to Spark, see docs/security.md"
    return f"a {source_format} source has no option {option!r}: {instead}" if instead else None


def path_problem(path: str | None) -> str | None:
    """Return why a path is not allowed; ``None`` when it is allowed."""
    if path is None or not has_password(path):
        return None
    return "a path may not hold a password, which would stand in plans and logs; give it to Spark, see docs/security.md"


@dataclass(frozen=True, slots=True)
class MaxAge:
    """How long ago a source may have changed last when a refresh begins.

    After ``warn``, the refresh says so; after ``fail``, it fails.
    """

    warn: timedelta | None = None
    fail: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """An existing table that is not refreshed by this package.

    ``path`` is its location, ``schema`` Spark DDL; ``file`` and ``line`` are the position of its declaration. With format
    ``view`` it is a view of its catalog, resolved at refresh time. With a ``watermark``, only complete partitions are read.
    ``event_time`` defines the event time of its rows for a stream; ``conn_id`` is the Airflow connection by which they are read.
    ``version_column`` is a column of a table in a server whose value each write of a row changes. ``max_age`` is how long ago its
    rows may have changed last.
    """

    identifier: TableIdentifier
    format: str
    path: str | None = None
    partition_keys: tuple[str, ...] = ()
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    watermark: PartitionWatermark | None = None
    event_time: EventTime | None = None
    conn_id: str | None = None
    version_column: str | None = None
    max_age: MaxAge | None = None
    file: Path = Path()
    line: int = 0

    @property
    def endless(self) -> Endless | None:
        """The properties of its format when only a stream can read it."""
        return endless_format(self.format)

    @property
    def is_view(self) -> bool:
        """Return whether the name is defined by a query of the catalog."""
        return self.format == VIEW

    @property
    def asset_uri(self) -> str | None:
        """The URI, by Airflow's rules, of the asset of DAGs that write its files; ``None`` when only those DAGs know it."""
        # A fragment or query is not part of an asset URI.
        if self.path is None or "#" in self.path or "?" in self.path:
            return None
        scheme, separator, rest = self.path.partition(":")
        if not separator or "/" in scheme:
            return f"file://{posixpath.normpath(self.path)}"
        if scheme == "file":
            return f"file:///{posixpath.normpath(rest).lstrip('/')}"
        return f"s3:{rest}" if scheme == "s3a" else self.path
