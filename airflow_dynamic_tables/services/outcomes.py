"""What a write of a table ended in, and who is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import Reason
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version

log = logging.getLogger(__name__)


class Operation(StrEnum):
    """What writes a table."""

    REFRESH = "refresh"
    CREATE = "create"
    ROLLBACK = "rollback"
    COMPACTION = "compaction"
    PUBLISH = "publish"
    HOLD = "hold"


class Ending(StrEnum):
    """How a write ended. ``RELEASED`` is a hold, or a compaction that had nothing to do."""

    COMMITTED = "committed"
    SKIPPED = "skipped"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    UNKNOWN = "unknown"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The end of one write of one table.

    ``version`` is the one that was committed; a compaction makes none. ``reason`` is why it was skipped, ``error`` why it was
    not committed, or why that is not known. ``rows``, ``bytes`` and ``files`` are those of the stage, ``seconds`` is the duration
    of each step. ``has_record`` is False when the ledger does not know of the commit yet.
    """

    operation: Operation
    ending: Ending
    token: str
    table: TableIdentifier
    partitions: PartitionSet = WHOLE_TABLE
    version: Version | None = None
    reason: Reason | None = None
    error: BaseException | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    has_record: bool = True


Listener = Callable[[WriteOutcome], None]
"""Receives the outcome of every write of a workspace."""


def collecting(commits: list[Version]) -> Listener:
    """A listener that adds each version that is committed to a list."""

    def listen(outcome: WriteOutcome) -> None:
        if outcome.version is not None and outcome.ending is Ending.COMMITTED:
            commits.append(outcome.version)

    return listen


def log_outcome(outcome: WriteOutcome) -> None:
    """Log a commit, with how long each step took; errors reach the caller, and are logged there."""
    if outcome.version is None or outcome.ending is not Ending.COMMITTED:
        return
    fresh = f", fresh up to {time.isoformat()}" if (time := outcome.version.data_timestamp) is not None else ""
    steps = ", ".join(f"{name} {value:.1f} s" for name, value in outcome.seconds.items() if not name.startswith("spark."))
    log.info("Committed version %s of %s%s%s.", outcome.version.number, outcome.table, fresh, f"; {steps}" if steps else "")
