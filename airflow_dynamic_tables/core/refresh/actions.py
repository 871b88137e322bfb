"""What a refresh does, and why: codes for programs, a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefreshAction(StrEnum):
    """What a refresh does to its table."""

    INITIALIZE = "INITIALIZE"
    """Make its first version."""

    FULL = "FULL"
    """Replace all rows."""

    PARTITIONS = "PARTITIONS"
    """Replace some partitions."""

    ADD = "ADD"
    """Add the rows of a batch of a stream."""

    SKIP = "SKIP"
    """Nothing."""

    NO_DATA = "NO_DATA"
    """Nothing, as nothing that the table reads has moved: it is fresh up to a later time all the same."""

    ROLLBACK = "ROLLBACK"
    """Restore a version; the ``sources`` of such a refresh are the snapshot it restores, which so cannot expire."""


class Initial(StrEnum):
    """What the first scheduled refresh of a table with time partitions makes."""

    ALL = "all"
    """All that its sources have, or the ticks from its ``start_date`` on."""

    LATEST = "latest"
    """The partitions of its own tick."""


class ReasonCode(StrEnum):
    """Why a refresh does what it does."""

    SCHEDULED = "SCHEDULED"
    """Its schedule time decided."""

    UPDATED = "UPDATED"
    """An asset was updated."""

    ASKED_FOR = "ASKED_FOR"
    """Somebody named the partitions."""

    FULL_REFRESH = "FULL_REFRESH"
    """Somebody asked for the whole table."""

    STREAMED = "STREAMED"
    """A stream has a batch."""

    ALREADY_FRESH = "ALREADY_FRESH"
    """It would overwrite newer data."""

    NOTHING_TO_REFRESH = "NOTHING_TO_REFRESH"
    """No partition is to be replaced."""

    UNCHANGED = "UNCHANGED"
    """What the table reads is as it was when the table was made."""

    CREATED_AS = "CREATED_AS"
    """Somebody made a table of a query, or replaced one, by CREATE TABLE AS."""

    SUSPENDED = "SUSPENDED"
    """Somebody suspended the refreshes of the table."""

    UPSTREAM_SUSPENDED = "UPSTREAM_SUSPENDED"
    """A table that it reads is suspended."""

    ROLLBACK = "ROLLBACK"
    """Somebody asked for an earlier version."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a refresh does what it does: ``code`` stays the same in every release, ``text`` may be put better."""

    code: ReasonCode
    text: str

    def __str__(self) -> str:
        return self.text
