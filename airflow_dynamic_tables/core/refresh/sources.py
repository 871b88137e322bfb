"""Tables that exist already and that nobody here refreshes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.streaming.streams import EventTime
from airflow_dynamic_tables.core.streaming.watermarks import PartitionWatermark
from airflow_dynamic_tables.core.tables.formats import FORMATS, VIEW, Endless, endless_format
from airflow_dynamic_tables.redaction import has_password, is_secret_name


def option_problem(source_format: str, option: str) -> str | None:
    """Why a source may not have an option, and what to write instead; ``None`` when it may."""
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
    """Why data may not lie at a path; ``None`` when it may."""
    if path is None or not has_password(path):
        return None
    return "a path may not hold a password, which would stand in plans and logs; give it to Spark, see docs/security.md"


@dataclass(frozen=True, slots=True)
class Source:
    """A table that exists already and that nobody here refreshes.

    ``path`` is where its data is, ``schema`` Spark DDL; ``file`` and ``line`` are where it was declared. Of format ``view``
    it is a view of its catalog, which only a refresh looks up. With a ``watermark`` only its whole partitions are read.
    ``event_time`` says to a stream when its rows happened, ``conn_id`` by which Airflow connection it comes to them.
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
    file: Path = Path()
    line: int = 0

    @property
    def endless(self) -> Endless | None:
        """What there is to know of it when only a stream can read it."""
        return endless_format(self.format)

    @property
    def is_view(self) -> bool:
        """Whether a query of the catalog stands behind the name."""
        return self.format == VIEW

    @property
    def asset_uri(self) -> str | None:
        """The URI of the asset that DAGs which write its files have, by Airflow's rules; ``None`` when only they know."""
        # What follows one of these two is no part of an asset.
        if self.path is None or "#" in self.path or "?" in self.path:
            return None
        scheme, separator, rest = self.path.partition(":")
        if not separator or "/" in scheme:
            return f"file://{posixpath.normpath(self.path)}"
        if scheme == "file":
            return f"file:///{posixpath.normpath(rest).lstrip('/')}"
        return f"s3:{rest}" if scheme == "s3a" else self.path
