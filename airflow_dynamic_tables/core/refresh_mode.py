"""Which way a table is refreshed."""

from __future__ import annotations

from enum import StrEnum


class RefreshMode(StrEnum):
    """How a table is brought up to date; AUTO is only ever declared, never actual."""

    AUTO = "AUTO"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"
    CONTINUOUS = "CONTINUOUS"
