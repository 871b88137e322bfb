"""The interface of the ledger: stages and their owners, and the history of refreshes.

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

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypedDict, Unpack

from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.ledger.details import CountsFailures, FollowsNames, RemembersPartitions
from airflow_dynamic_tables.ledger.jobs import RemembersJobs
from airflow_dynamic_tables.ledger.latest import KnowsTheLatest


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
    them, because clocks of several machines define no order. ``creates`` is the name of the table while such a stage creates
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

    def overlaps(self, other: Stage) -> bool:
        """Return whether both stages would replace some of the same rows."""
        return self.table == other.table and self.partitions.overlaps(other.partitions)


class RefreshState(StrEnum):
    """State of a refresh; UNDONE when it succeeded but its version was removed from the table without being replaced."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    UNDONE = "UNDONE"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    QUARANTINED = "QUARANTINED"


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
    that of its sources, if they have one.
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
    application_id: str
    error: str | None
    expectations: tuple[ExpectationResult, ...]
    recipe: str
    unbroken: bool


class Ledger(RemembersPartitions, RemembersJobs, CountsFailures, KnowsTheLatest, FollowsNames):
    """Stages and refreshes. ``now`` is always an argument, timezone-aware; every method may raise CatalogUnavailableError."""

    @abstractmethod
    def open_stage(self, stage: Stage) -> tuple[Stage, ...]:
        """Insert an OPEN stage atomically, unless it overlaps stages that are ``HOLDING``.

        Idempotent: opening the same token again has the same result while the stage is OPEN.

        :return: the conflicting stages; empty when the stage is now open.
        :raises ConflictError: when the token was used before and its stage is no longer OPEN.
        """

    @abstractmethod
    def resume_stage(self, token: str, process: str, lease_until: datetime) -> tuple[Stage, ...]:
        """Move a QUARANTINED stage to COMMITTING atomically, unless it overlaps stages that are ``HOLDING``.

        :param process: the process that publishes it.
        :return: the conflicting stages; empty when the process now owns the stage.
        :raises ConflictError: when it is not (or no longer) in quarantine: it is being published, or was rejected.
        """

    @abstractmethod
    def get_stage(self, token: str) -> Stage | None:
        """Return a stage in any state."""

    @abstractmethod
    def list_stages(self, table: TableIdentifier | None = None, states: Collection[StageState] = UNFINISHED) -> list[Stage]:
        """Return the stages in one of the states, oldest first."""

    @abstractmethod
    def last_stage(self, table: TableIdentifier, but_of: str = "") -> Stage | None:
        """Return the last opened stage of a table in any state, except those of one owner; ``None`` if there is none."""

    @abstractmethod
    def renew_lease(self, token: str, until: datetime) -> StageState:
        """Extend the lease of an OPEN or COMMITTING stage.

        :return: the current state.
        :raises ConflictError: when the stage is in another state, so that its owner lost it.
        """

    @abstractmethod
    def move_stage(
        self,
        token: str,
        from_states: Collection[StageState],
        to_state: StageState,
        refresh: RefreshChanges | None = None,
        *,
        held_by: str | None = None,
    ) -> bool:
        """Compare-and-swap the state; moving a stage to its current state does nothing.

        :param refresh: fields of its refresh to change atomically with the state.
        :param held_by: the process that must own the stage, when its owner may have changed.
        :return: whether it was moved; False when it was in ``to_state`` already.
        :raises CommitRejectedError: when the stage is missing, owned by another process, or in none of these states.
        """

    @abstractmethod
    def record(self, refresh: Refresh) -> None:
        """Insert or replace the complete refresh of that token.

        :raises ConflictError: when its stage is no longer OPEN: the process that closed it would not update this refresh.
        """

    @abstractmethod
    def update_refresh(self, token: str, **changes: Unpack[RefreshChanges]) -> None:
        """Change some fields of a refresh; an unknown token is ignored (its row may have been pruned)."""

    @abstractmethod
    def extend(self, refresh: Refresh, instead_of: str = "") -> None:
        """Insert a refresh, or move the end and validity of the existing one forward; they never move backward.

        :param instead_of: token of a skipped refresh that this one replaces; it is deleted.
        """

    @abstractmethod
    def get_refresh(self, token: str) -> Refresh | None:
        """Return a refresh."""

    @abstractmethod
    def list_refreshes(self, table: TableIdentifier | None = None, limit: int = 20) -> list[Refresh]:
        """Return the latest refreshes, newest first."""

    @abstractmethod
    def list_versions(self, table: TableIdentifier, number: int) -> dict[str, int]:
        """Return the versions, by token, that refreshes of a table made with that number or a later one, without UNDONE ones.

        Only the latest thousand refreshes are searched.
        """

    @abstractmethod
    def mark_undone(self, errors: Mapping[str, str]) -> None:
        """Mark successful refreshes as UNDONE.

        :param errors: the error text of each, by token.
        """

    @abstractmethod
    def list_due_reports(self, since: datetime) -> list[Refresh]:
        """Return refreshes that succeeded since then and whose report is DUE, oldest first."""

    @abstractmethod
    def mark_reported(self, tokens: Collection[str]) -> None:
        """Record that the versions of these refreshes were reported to the scheduler."""

    @abstractmethod
    def record_source_states(self, token: str, states: Mapping[str, SourceState]) -> None:
        """Insert or replace the states of the sources of a refresh, by full name."""

    @abstractmethod
    def source_states(self, token: str) -> dict[str, SourceState]:
        """Return the states of the sources of a refresh, by full name; missing sources are unknown.

        They are kept as long as the refresh, unless it made no version.
        """

    @abstractmethod
    def installation(self) -> str:
        """Return the id of this installation. It is stored in the ledger, so a copy of the database has the same id."""

    @abstractmethod
    def tables(self) -> list[TableIdentifier]:
        """Return every table that was ever refreshed, sorted."""

    @abstractmethod
    def prune(self, before: datetime) -> int:
        """Delete old jobs, finished refreshes with their sources, and finished stages; the latest success of a table is kept.

        :return: the number of deleted rows.
        """

    @abstractmethod
    def upgrade(self) -> None:
        """Upgrade the storage to this release's schema; idempotent."""

    @abstractmethod
    def check(self) -> None:
        """Check the connection."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; idempotent."""
