"""A version: what one commit made of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Version:
    """What a commit produced.

    ``number`` counts 1, 2, 3 … within the table, ``snapshot`` is the format's own id of it, ``data_timestamp`` the
    schedule time up to which the table is fresh (``None`` while only partitions named by hand were refreshed), ``sources``
    the version of every table the query read.
    """

    number: int
    token: str
    snapshot: str
    data_timestamp: datetime | None
    committed_at: datetime
    sources: Mapping[str, str] = field(default_factory=dict)
