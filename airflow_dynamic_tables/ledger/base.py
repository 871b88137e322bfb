"""The ledger: which refresh holds which stage, and what became of every refresh.

States of a stage, every arrow a compare-and-swap::

    OPEN ──▶ COMMITTING ───▶ COMMITTED
     │           │               ▲
     │           ▼ (taken away)  │
     │        FENCING ───────────┤ (its commit turned out to have landed)
     │           │ (it can no longer land)
     └──────▶ ABORTING ──▶ ABORTED

    OPEN ──▶ QUARANTINED ──▶ COMMITTING, ABORTING   (somebody decides)
                  ▲────────── COMMITTING            (that commit was refused)
                  ▲────────── FENCING               (whoever published it died)

Only the owner of an OPEN stage may start to commit. Whoever takes a stage away in its commit first moves it to FENCING, so
that its owner, should it wake up, can no longer publish; then fences the table and looks in the table's own metadata whether
the commit landed; and only then deletes files and closes it. Until it is fenced it may still land, so it is in the way.

A QUARANTINED stage keeps its files, has no lease and is in nobody's way; its refresh stays QUARANTINED until its commit landed
or somebody gave it up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypedDict, Unpack

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.ledger.failed_runs import CountsFailures
from airflow_dynamic_tables.ledger.jobs import RemembersJobs
from airflow_dynamic_tables.ledger.latest import KnowsTheLatest
from airflow_dynamic_tables.ledger.partition_commits import RemembersPartitions
from airflow_dynamic_tables.ledger.renaming import FollowsNames


class StageState(StrEnum):
    """Where a stage stands."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    QUARANTINED = "QUARANTINED"
    FENCING = "FENCING"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


HOLDING = (StageState.OPEN, StageState.COMMITTING, StageState.FENCING)
"""A stage in one of these states may be committed without anybody asking, so it is in the way of others."""

UNFINISHED = (*HOLDING, StageState.QUARANTINED, StageState.ABORTING)
"""A stage in one of these states still has files."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Files of one refresh that nobody reads yet, and who may commit them.

    ``owner`` is the same for every try of one piece of work (Airflow: DAG, run and task), so that a new try may supersede an
    older one at once. ``process`` names machine, process id and its start, so that a dead process is noticed on its own
    machine before the lease ends. ``ordinal`` counts the stages of its table in the order in which the ledger opened them:
    clocks of several machines tell no order. ``creates`` is the name that a table has while such a stage makes it, its own where
    the commit makes it in one step.
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
        """Whether both stages would replace some of the same rows."""
        return self.table == other.table and self.partitions.overlaps(other.partitions)


class RefreshState(StrEnum):
    """How a refresh stands or ended; UNDONE when it succeeded and its table has the version no more, though none replaced it."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    UNDONE = "UNDONE"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    QUARANTINED = "QUARANTINED"


class ReportState(StrEnum):
    """Whether whoever scheduled a refresh has heard of its version."""

    DUE = "DUE"
    MADE = "MADE"


@dataclass(frozen=True, slots=True)
class Refresh:
    """One line of the refresh history. ``seconds`` is the duration of each step, ``sources`` the version of each table read.

    ``reason_code`` is why it did what it did, ``reason`` the same for people; an earlier release recorded no code. ``report`` is
    ``None`` when nobody waits to hear of its version: nothing scheduled it, or an earlier release made it. ``recipe`` is a digest
    of all that decides rows besides what the sources hold. ``unbroken`` says whether no tick is missing before its data
    timestamp; earlier releases did not look for missing ticks. What it read was ``complete_until`` a time before its schedule
    time when it did not wait for parents that lagged behind. ``watermark`` is that of its sources, where they have one.
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
        """Whether it made a version of what the sources had, and that version was not undone."""
        return self.state is RefreshState.SUCCEEDED and self.action is not RefreshAction.ROLLBACK

    @property
    def made_for(self) -> datetime:
        """The last tick that its partitions count for."""
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
        """Insert an OPEN stage in one step, unless stages that are ``HOLDING`` overlap it.

        Opening the same token again returns as if it were new while it is OPEN (idempotent).

        :return: the stages in the way; empty when the stage is now open.
        :raises ConflictError: when the token was used already and its stage is no longer OPEN.
        """

    @abstractmethod
    def resume_stage(self, token: str, process: str, lease_until: datetime) -> tuple[Stage, ...]:
        """Move a QUARANTINED stage to COMMITTING in one step, unless stages that are ``HOLDING`` overlap it.

        :param process: who publishes it from here on.
        :return: the stages in the way; empty when the stage is now that process's.
        :raises ConflictError: when it is not in quarantine (any more): somebody else publishes it, or gave it up.
        """

    @abstractmethod
    def get_stage(self, token: str) -> Stage | None:
        """One stage, whatever its state."""

    @abstractmethod
    def list_stages(self, table: TableIdentifier | None = None, states: Collection[StageState] = UNFINISHED) -> list[Stage]:
        """Stages in one of the states, oldest first."""

    @abstractmethod
    def last_stage(self, table: TableIdentifier, but_of: str = "") -> Stage | None:
        """The stage of a table that was opened last, whatever its state, but none of that owner, if it is still known."""

    @abstractmethod
    def renew_lease(self, token: str, until: datetime) -> StageState:
        """Extend the lease of an OPEN or COMMITTING stage.

        :return: which of both it is.
        :raises ConflictError: when the stage is in another state: its owner lost it.
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
        """Compare-and-swap; moving a stage to the state it is in does nothing.

        :param refresh: fields of its refresh to change in the same step, so that the two never disagree.
        :param held_by: the process that must own the stage, when several may have had it in turn.
        :return: whether it was moved; False when it was in ``to_state`` already.
        :raises CommitRejectedError: when the stage is missing, another process's, or in none of these states.
        """

    @abstractmethod
    def record(self, refresh: Refresh) -> None:
        """Insert or replace the refresh of that token, whole.

        :raises ConflictError: when its stage is no longer OPEN: whoever ended it would never hear of this refresh.
        """

    @abstractmethod
    def update_refresh(self, token: str, **changes: Unpack[RefreshChanges]) -> None:
        """Change some fields of a refresh; an unknown token is ignored (its row may have been pruned)."""

    @abstractmethod
    def extend(self, refresh: Refresh, instead_of: str = "") -> None:
        """Insert a refresh, or let the one of that token end and hold later; it holds up to the latest time that was said.

        :param instead_of: token of a refresh that was skipped at last, which this one tells of, too: it is deleted.
        """

    @abstractmethod
    def get_refresh(self, token: str) -> Refresh | None:
        """One refresh."""

    @abstractmethod
    def list_refreshes(self, table: TableIdentifier | None = None, limit: int = 20) -> list[Refresh]:
        """The latest refreshes, newest first."""

    @abstractmethod
    def list_versions(self, table: TableIdentifier, number: int) -> dict[str, int]:
        """The versions with that number or a later one that refreshes of a table made, by their tokens, without UNDONE ones.

        Only the latest thousand refreshes are looked at.
        """

    @abstractmethod
    def mark_undone(self, errors: Mapping[str, str]) -> None:
        """Make refreshes UNDONE that succeeded.

        :param errors: what is to be said of each, by their tokens.
        """

    @abstractmethod
    def list_due_reports(self, since: datetime) -> list[Refresh]:
        """Refreshes that succeeded since then and whose report is DUE, oldest first."""

    @abstractmethod
    def mark_reported(self, tokens: Collection[str]) -> None:
        """Note that whoever scheduled these refreshes has heard of their versions."""

    @abstractmethod
    def record_source_states(self, token: str, states: Mapping[str, SourceState]) -> None:
        """Insert or replace what the sources of a refresh were like, by their full names."""

    @abstractmethod
    def source_states(self, token: str) -> dict[str, SourceState]:
        """What the sources of a refresh were like, by their full names; a source that is not among them is unknown.

        They are there as long as the refresh itself, unless it made no version.
        """

    @abstractmethod
    def installation(self) -> str:
        """Which installation this is: the same as long as what the ledger is kept in, and of a copy of that, too."""

    @abstractmethod
    def tables(self) -> list[TableIdentifier]:
        """Every table that was ever refreshed, sorted."""

    @abstractmethod
    def prune(self, before: datetime) -> int:
        """Delete jobs, finished refreshes with their sources, and finished stages older than that; no latest success of a table.

        :return: how many rows were deleted.
        """

    @abstractmethod
    def upgrade(self) -> None:
        """Bring what it is kept in to this release's schema; idempotent."""

    @abstractmethod
    def check(self) -> None:
        """Connect once, to see whether it answers."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections; idempotent."""
