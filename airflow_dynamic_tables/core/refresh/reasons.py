"""Actions of refreshes and their reasons: codes for programs, sentences for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefreshAction(StrEnum):
    """The effect of a refresh on its table."""

    INITIALIZE = "INITIALIZE"
    """Create the first version."""

    FULL = "FULL"
    """Replace all rows."""

    PARTITIONS = "PARTITIONS"
    """Replace some partitions."""

    MERGE = "MERGE"
    """Compute the new rows of a source only, and merge them into the rows that the table has."""

    ADD = "ADD"
    """Add the rows of a batch of a stream."""

    SKIP = "SKIP"
    """Change nothing."""

    NO_DATA = "NO_DATA"
    """Change nothing because no source changed; the table is nevertheless fresh up to a later time."""

    ROLLBACK = "ROLLBACK"
    """Restore a version. The ``sources`` of such a refresh contain the restored snapshot, so that it cannot expire."""

    VERIFY = "VERIFY"
    """Change nothing, but compare partitions with what the query returns for the versions that they were made of."""


WRITE_NOTHING = (RefreshAction.SKIP, RefreshAction.NO_DATA, RefreshAction.VERIFY)
"""Actions that leave the table as it is."""


class Initial(StrEnum):
    """The scope of the first scheduled refresh of a table with time partitions."""

    ALL = "all"
    """All data of its sources, or the ticks from its ``start_date`` on."""

    LATEST = "latest"
    """The partitions of its own tick."""


class LatePolicy(StrEnum):
    """What a scheduled refresh does about older partitions whose sources changed after they were made."""

    REPORT = "report"
    """Name them."""

    REFRESH = "refresh"
    """Replace them, too."""

    IGNORE = "ignore"
    """Do not look for them."""


class PartitionEvents(StrEnum):
    """The partitions of a commit that have an asset event each, besides the event of the commit."""

    OFF = "off"
    """None."""

    CHANGED = "changed"
    """Those that it replaced."""


class OnChange(StrEnum):
    """What a change of one source means for the partitions that were made before it."""

    REFRESH = "refresh"
    """They may be out of date."""

    IGNORE = "ignore"
    """They keep the rows of the source that they were made of."""

    AFFECTED = "affected"
    """Those may be out of date whose rows have a key of a row that changed."""


class ReasonCode(StrEnum):
    """Why a refresh takes its action."""

    SCHEDULED = "SCHEDULED"
    """The schedule time determined it."""

    LATE_DATA = "LATE_DATA"
    """Sources of older partitions changed, and no others."""

    SOURCES_CHANGED = "SOURCES_CHANGED"
    """Sources of these partitions changed."""

    MERGE_COSTS_MORE = "MERGE_COSTS_MORE"
    """Sources of these partitions only grew, but a merge of the new rows would take longer or read more than replacing them."""

    FROZEN = "FROZEN"
    """All partitions that would be replaced are frozen."""

    NOT_INCREMENTAL = "NOT_INCREMENTAL"
    """It is not certain which partitions of an incremental table are out of date, so all rows are replaced."""

    UPDATED = "UPDATED"
    """An asset was updated."""

    ASKED_FOR = "ASKED_FOR"
    """The partitions were requested explicitly."""

    FULL_REFRESH = "FULL_REFRESH"
    """A full refresh was requested."""

    STREAMED = "STREAMED"
    """A stream has a batch."""

    ALREADY_FRESH = "ALREADY_FRESH"
    """It would overwrite newer data."""

    NOTHING_TO_REFRESH = "NOTHING_TO_REFRESH"
    """There are no partitions to replace."""

    UNCHANGED = "UNCHANGED"
    """The sources are unchanged since the table was built."""

    CREATED_AS = "CREATED_AS"
    """The table was created or replaced by CREATE TABLE AS."""

    SUSPENDED = "SUSPENDED"
    """The refreshes of the table are suspended."""

    UPSTREAM_SUSPENDED = "UPSTREAM_SUSPENDED"
    """An upstream table is suspended."""

    ROLLBACK = "ROLLBACK"
    """An earlier version was requested."""

    EQUAL = "EQUAL"
    """The verified partitions are as the query returns them."""

    DRIFT = "DRIFT"
    """Some of the verified partitions are not as the query returns them."""

    UNVERIFIED = "UNVERIFIED"
    """Some of the partitions could not be verified, and no other one differs."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a refresh takes its action: ``code`` is stable across releases, ``text`` may change."""

    code: ReasonCode
    text: str

    def __str__(self) -> str:
        return self.text
