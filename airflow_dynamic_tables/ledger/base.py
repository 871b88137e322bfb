"""Stages and their owners, and the history of refreshes, as the ledger records them.

States of a stage; every transition is a compare-and-swap::

    OPEN ──▶ COMMITTING ───▶ COMMITTED
     │           │               ▲
     │           ▼ (taken over)  │
     │        FENCING ───────────┤ (its commit turned out to have landed)
     │           │ (it can no longer land)
     └──────▶ ABORTING ──▶ ABORTED

    OPEN ──▶ QUARANTINED ──▶ COMMITTING, ABORTING   (manual decision)
                  ▲────────── COMMITTING            (that commit was rejected)
                  ▲────────── FENCING               (the publishing process died)

Only the owner of an OPEN stage may start to commit. A process that takes over a COMMITTING stage first moves it to FENCING, so
that its owner can no longer publish if it resumes. It then fences the table, reads from the table's own metadata whether the
commit landed, and only then deletes files and closes the stage. Until it is fenced the commit may still land, so the stage
blocks others.

A QUARANTINED stage keeps its files, has no lease and blocks no other stage; its refresh stays QUARANTINED until its commit
landed or the stage was rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction


class StageState(StrEnum):
    """State of a stage."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    QUARANTINED = "QUARANTINED"
    FENCING = "FENCING"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


HOLDING = (StageState.OPEN, StageState.COMMITTING, StageState.FENCING)
"""A stage in one of these states may be committed without a manual decision, so it blocks overlapping stages."""

UNFINISHED = (*HOLDING, StageState.QUARANTINED, StageState.ABORTING)
"""A stage in one of these states still has files."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Unpublished files of one refresh, and the process that may commit them.

    ``owner`` is the same for every attempt of one unit of work (Airflow: DAG, run and task), so that a new attempt may
    supersede an older one at once. ``process`` names machine, process id and start time, so that a dead process is detected on
    its own machine before the lease ends. ``ordinal`` numbers the stages of a table in the order in which the ledger opened
    them, because clocks of several machines define no order. ``search`` is the number of the last search for dirty partitions
    before the sources were read; ``None`` if it is unknown. ``creates`` is the name of the table while such a stage creates
    it; it is its own name if the commit creates it atomically.
    """

    token: str
    table: TableIdentifier
    location: str
    owner: str
    process: str
    opened_at: datetime
    lease_until: datetime
    partitions: PartitionSet = WHOLE_TABLE
    format: str = DEFAULT_FORMAT
    state: StageState = StageState.OPEN
    ordinal: int = field(default=0, compare=False)
    creates: str | None = None
    search: int | None = None

    def overlaps(self, other: Stage) -> bool:
        """Return whether both stages would replace some of the same rows."""
        return self.table == other.table and self.partitions.overlaps(other.partitions)


class RefreshState(StrEnum):
    """State of a refresh.

    UNDONE when it succeeded but its version was removed from the table without being replaced, REJECTED when a user aborted it in
    quarantine.
    """

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    UNDONE = "UNDONE"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    QUARANTINED = "QUARANTINED"
    REJECTED = "REJECTED"


WITHOUT_VERSION = (RefreshState.FAILED, RefreshState.ABORTED, RefreshState.REJECTED, RefreshState.SKIPPED)
"""States of refreshes that ended without a version."""


class ReportState(StrEnum):
    """Whether the version of a refresh was reported to the scheduler."""

    DUE = "DUE"
    MADE = "MADE"


@dataclass(frozen=True, slots=True)
class Refresh:
    """One entry of the refresh history. ``seconds`` is the duration of each step, ``sources`` the version of each table read.

    ``reason_code`` is the reason of the action, ``reason`` the same as text; earlier releases recorded no code. ``report`` is
    ``None`` when no report is due: the refresh was not scheduled, or an earlier release made it. ``recipe`` is a digest of
    everything that determines the rows except the content of the sources. ``unbroken`` is whether no tick is missing before
    its data timestamp; earlier releases did not check for missing ticks. ``complete_until`` is the time until which its
    sources were complete, if that is before its schedule time because it did not wait for lagging parents. ``watermark`` is
    that of its sources, if they have one. ``referenced`` is the version of each table that its expectations refer to.
    ``restores`` is the version that a rollback restores. ``source_bytes`` is the size of all files of its sources, if it is
    known, also of those that it did not read. ``occurrences`` is the number of refreshes of different schedule times that share
    the entry.
    """

    token: str
    table: TableIdentifier
    action: RefreshAction
    reason: str
    state: RefreshState
    schedule_time: datetime
    started_at: datetime
    finished_at: datetime | None = None
    data_timestamp: datetime | None = None
    version: int | None = None
    snapshot: str | None = None
    partitions: PartitionSet = WHOLE_TABLE
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    application_id: str | None = None
    error: str | None = None
    expectations: tuple[ExpectationResult, ...] = ()
    reason_code: ReasonCode | None = None
    report: ReportState | None = None
    recipe: str | None = None
    unbroken: bool | None = None
    complete_until: datetime | None = None
    watermark: datetime | None = None
    restores: int | None = None
    source_bytes: int | None = None
    occurrences: int = 1
    referenced: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_made_of_sources(self) -> bool:
        """Whether it made a version from its sources that was not undone."""
        return self.state is RefreshState.SUCCEEDED and self.action is not RefreshAction.ROLLBACK

    @property
    def made_for(self) -> datetime:
        """The last tick that its partitions cover."""
        return self.complete_until or self.schedule_time


class RefreshChanges(TypedDict, total=False):
    """Fields of a refresh that may change."""

    action: RefreshAction
    reason: str
    reason_code: ReasonCode
    state: RefreshState
    finished_at: datetime
    data_timestamp: datetime | None
    version: int | None
    snapshot: str
    partitions: PartitionSet
    rows: int
    bytes: int
    files: int
    seconds: Mapping[str, float]
    sources: Mapping[str, str]
    referenced: Mapping[str, str]
    application_id: str
    error: str | None
    expectations: tuple[ExpectationResult, ...]
    recipe: str
    unbroken: bool
    source_bytes: int | None
