"""A version: what one commit made of a table; and how far a table is of a stream whose batches make versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_dynamic_tables.core.tables.partitions import PartitionSet

LONGEST_PARTITIONS = 4_000
"""Characters of JSON up to which a version names its partitions: metadata of all versions are read with every look at a table."""


@dataclass(frozen=True, slots=True)
class Version:
    """What a commit produced.

    ``number`` counts 1, 2, 3 … within the table (0: nobody knows it any more), ``snapshot`` is the format's own id of it,
    ``data_timestamp`` the schedule time up to which the table is fresh (``None`` while only partitions named by hand were
    refreshed), ``sources`` the version of every table the query read. ``partitions`` is what the commit replaced; ``None`` when
    nobody knows: an earlier release made it, or the set was too large for the metadata of a table (see :func:`recorded`), and
    the ledger alone has it.
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
    """The version that a refresh was planned on, by its ``token``, and the time up to which the table was fresh with it."""

    token: str
    data_timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last batch of a stream that made a version of a table, which holds what the stream returned up to it.

    ``stream`` is new whenever a stream begins from nothing, ``batch`` counts up in it from 0. ``offsets`` is a digest of what the
    batch read, by which it is told from another of the same number.
    """

    stream: str
    batch: int
    offsets: str


def recorded(partitions: PartitionSet) -> PartitionSet | None:
    """What the metadata of a table says of the partitions that a commit replaces; ``None`` when that would be too long."""
    return partitions if len(json.dumps(partitions.to_plain())) <= LONGEST_PARTITIONS else None
