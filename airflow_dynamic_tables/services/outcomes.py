"""Outcomes of table writes, and their listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Reason, RefreshAction
from airflow_dynamic_tables.core.versions import Version

log = logging.getLogger(__name__)


class Operation(StrEnum):
    """An operation that writes a table."""

    REFRESH = "refresh"
    CREATE = "create"
    ROLLBACK = "rollback"
    COMPACTION = "compaction"
    PUBLISH = "publish"
    HOLD = "hold"
    RENAME = "rename"
    VERIFICATION = "verification"
    KEEP = "keep"


class Ending(StrEnum):
    """How a write ended. ``RELEASED`` is a hold, a rename, a verification, or a compaction with nothing to do."""

    COMMITTED = "committed"
    SKIPPED = "skipped"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    UNKNOWN = "unknown"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The outcome of one write of one table, or of a refresh that found nothing to write.

    ``version`` is the committed version; a compaction creates none. ``action`` is that of a refresh, ``None`` before it is known.
    ``reason`` is why the write was skipped, ``error`` why it was not committed, or why that is unknown. ``rows``, ``bytes`` and
    ``files`` are those of the stage; ``dropped`` is the number of violations for which expectations left rows out of it.
    ``seconds`` is the duration of each step. ``left`` is the number of partitions that a
    refresh found to be out of date and does not replace; ``None`` if it did not search, or if they are unknown. ``has_record``
    is False if the commit is not recorded in the ledger yet.
    """

    operation: Operation
    ending: Ending
    token: str
    table: TableIdentifier
    partitions: PartitionSet = WHOLE_TABLE
    version: Version | None = None
    action: RefreshAction | None = None
    reason: Reason | None = None
    error: BaseException | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    dropped: int | None = None
    left: int | None = None
    has_record: bool = True


Listener = Callable[[WriteOutcome], None]
"""Receives the outcome of every write of a workspace, and of every refresh that found nothing to write."""


def notify(listeners: Iterable[Listener], outcome: WriteOutcome) -> None:
    """Pass an outcome to the log and to every listener. Exceptions of listeners are logged."""
    for listener in (log_outcome, *listeners):
        try:
            listener(outcome)
        except Exception:
            log.exception("A listener of the %s of %s failed.", outcome.operation, outcome.table)


def collecting(commits: list[Version]) -> Listener:
    """Return a listener that appends each committed version to a list."""

    def listen(outcome: WriteOutcome) -> None:
        if outcome.version is not None and outcome.ending is Ending.COMMITTED:
            commits.append(outcome.version)

    return listen


def log_outcome(outcome: WriteOutcome) -> None:
    """Log a commit with the duration of each step. Errors are raised to the caller, which logs them."""
    if outcome.version is None or outcome.ending is not Ending.COMMITTED:
        return
    fresh = f", fresh up to {time.isoformat()}" if (time := outcome.version.data_timestamp) is not None else ""
    steps = ", ".join(f"{name} {value:.1f} s" for name, value in outcome.seconds.items() if not name.startswith("spark."))
    log.info("Committed version %s of %s%s%s.", outcome.version.number, outcome.table, fresh, f"; {steps}" if steps else "")
