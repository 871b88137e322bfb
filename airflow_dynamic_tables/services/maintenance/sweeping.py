"""Maintenance sweep and recovery: settles abandoned stages, compacts, expires, prunes the history; finds missing reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.versions import Retention
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, DynamicTableError, NotFoundError
from airflow_dynamic_tables.ledger.base import Refresh, Stage, StageState
from airflow_dynamic_tables.services.lifecycle.registration import finish_rename
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.tables.rollback import forget_versions, note_undone
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.dropped_rows import forget_dropped_rows, retention_of
from airflow_dynamic_tables.services.writes.leases import is_abandoned
from airflow_dynamic_tables.services.writes.owner_markers import other_markers, shared
from airflow_dynamic_tables.services.writes.quarantine import why_over
from airflow_dynamic_tables.services.writes.settling import settle, staged_table

KEEP_HISTORY = timedelta(days=90)
"""How long finished refreshes stay in the ledger."""

ZOMBIE_WINDOW = timedelta(days=2)
"""How long after a stage was aborted a zombie job may still write into its folder."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Tokens of stages that were aborted, found to be committed, or kept.

    ``compacted_files`` is the number of small files that were merged, ``expired`` of expired snapshots, ``deleted_files`` and
    ``deleted_bytes`` of orphan files, ``pruned`` of ledger rows. ``failed`` are the tables whose maintenance failed; the log has
    the errors.
    """

    aborted: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    compacted_files: int = 0
    expired: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    pruned: int = 0
    failed: tuple[str, ...] = ()


def sweep(workspace: Workspace) -> SweepReport:
    """Settle every stage whose owner is dead, compact small files, expire versions, delete orphan files, and prune the history.

    Live stages are not touched, nor quarantined stages that may still be published.
    """
    now = workspace.now()
    ended: dict[StageState | None, list[str]] = {StageState.ABORTED: [], StageState.COMMITTED: [], None: []}
    for stage in workspace.ledger.list_stages():
        ended[_ended(workspace, stage)].append(stage.token)

    for stage in workspace.ledger.list_stages(states=(StageState.ABORTED,)):
        if stage.opened_at > now - ZOMBIE_WINDOW:
            _delete_again(workspace, stage)

    compacted = {table: _compacted(workspace, table) for table in workspace.ledger.tables()}
    expired = {table: _expired(workspace, table) for table in compacted}
    tidied = [went for went in expired.values() if went is not None]
    return SweepReport(
        aborted=tuple(ended[StageState.ABORTED]),
        completed=tuple(ended[StageState.COMMITTED]),
        kept=tuple(ended[None]),
        compacted_files=sum(files or 0 for files in compacted.values()),
        expired=sum(went.snapshots for went in tidied),
        deleted_files=sum(went.files for went in tidied),
        deleted_bytes=sum(went.bytes for went in tidied),
        pruned=workspace.ledger.prune(now - KEEP_HISTORY),
        failed=tuple(str(table) for table, went in expired.items() if went is None or compacted[table] is None),
    )


def end_abandoned(workspace: Workspace, stage: Stage) -> StageState | None:
    """Settle a stage whose owner is dead, or that is in quarantine and superseded or expired.

    :return: its final state, COMMITTED or ABORTED; ``None`` if it was not ended.
    :raises DynamicTableError: if it cannot be ended now.
    :raises OSError: if its files cannot be deleted.
    """
    reason = why_over(workspace, stage) if stage.state is StageState.QUARANTINED else _why_abandoned(workspace, stage)
    state = settle(workspace, stage, reason) if reason else None
    return state if state in (StageState.COMMITTED, StageState.ABORTED) else None


def _ended(workspace: Workspace, stage: Stage) -> StageState | None:
    """End a stage as :func:`end_abandoned` does; errors are logged and left to the next sweep."""
    try:
        return end_abandoned(workspace, stage)
    except (DynamicTableError, OSError):
        log.exception("Could not settle stage %s of %s; the next sweep tries again.", stage.token, stage.table)
        return None


def _why_abandoned(workspace: Workspace, stage: Stage) -> str | None:
    return "abandoned: its owner is gone" if is_abandoned(workspace, stage) else None


def _delete_again(workspace: Workspace, stage: Stage) -> None:
    try:
        staged_table(workspace, stage).abort(stage.location)
    except (DynamicTableError, OSError):
        log.exception("Could not delete what is left of stage %s of %s.", stage.token, stage.table)


def _compacted(workspace: Workspace, table: TableIdentifier) -> int | None:
    """Compact a table and return the number of merged files; ``None`` on an error, so that the sweep continues."""
    try:
        return compact(workspace, table).files
    except CatalogUnavailableError as error:
        log.warning("%s is not compacted; the next sweep tries again: %s", table, error)
        return None
    except Exception:
        log.exception("Could not compact %s; the next sweep tries again.", table)
        return None


def _expired(workspace: Workspace, table: TableIdentifier) -> Expired | None:
    """Expire a table; ``None`` on an error, so that the sweep continues with other tables."""
    try:
        return expire(workspace, table)
    except ConflictError as error:
        log.info("%s", error)
        return Expired()
    except CatalogUnavailableError as error:
        log.warning("%s is not tidied up; the next sweep tries again: %s", table, error)
        return None
    except Exception:
        log.exception("Could not tidy up %s; the next sweep tries again.", table)
        return None


REPORT_WINDOW = timedelta(days=7)
"""How long after a commit a missing report is sent. Later it is obsolete, and the scheduler may have lost the first one."""

CLOCK_MARGIN = timedelta(days=1)
"""How far the clock of the scheduler may be behind that of the worker that committed."""

Reported = Callable[[TableIdentifier, datetime], Collection[str]]
"""Returns the tokens of a table's refreshes since a time that were reported to the scheduler."""


def missing_reports(workspace: Workspace, reported: Reported, is_over: Callable[[str], bool]) -> list[Refresh]:
    """Return refreshes whose version was not and will not be reported to the scheduler by themselves, oldest first.

    The scheduler's reports are authoritative; the ledger only caches them. A report of these refreshes therefore occurs exactly
    once, provided that the scheduler refuses reports of finished work, and that only one process at a time calls this.

    :param is_over: returns whether the work of an owner (see :class:`~airflow_dynamic_tables.ledger.base.Stage`) has finished, so
        that the scheduler accepts no more reports from it; False if the scheduler does not know it.
    """
    due = workspace.ledger.list_due_reports(workspace.now() - REPORT_WINDOW)
    ended = [refresh for refresh in _unreported(workspace, due, reported) if _is_over(workspace, refresh, is_over)]
    # Checked again, because a report may have arrived between the first check and the end of the work.
    return sorted(_unreported(workspace, ended, reported), key=lambda refresh: refresh.started_at)


def _unreported(workspace: Workspace, refreshes: Sequence[Refresh], reported: Reported) -> list[Refresh]:
    """Return the refreshes without a report at the scheduler, and record the others in the ledger."""
    unreported: list[Refresh] = []
    for table, group in groupby(sorted(refreshes, key=lambda refresh: refresh.table), key=lambda refresh: refresh.table):
        of_table = list(group)
        known = reported(table, min(refresh.started_at for refresh in of_table) - CLOCK_MARGIN)
        workspace.ledger.mark_reported([refresh.token for refresh in of_table if refresh.token in known])
        unreported += [refresh for refresh in of_table if refresh.token not in known]
    return unreported


def _is_over(workspace: Workspace, refresh: Refresh, is_over: Callable[[str], bool]) -> bool:
    stage = workspace.ledger.get_stage(refresh.token)
    return stage is not None and is_over(stage.owner)


def check_available(workspace: Workspace) -> None:
    """Connect to the ledger and to every catalog.

    :raises CatalogUnavailableError: if one is unavailable.
    """
    workspace.ledger.check()
    for name in workspace.catalogs.names():
        workspace.catalogs.get(name).list_databases()


def upgrade(workspace: Workspace) -> None:
    """Upgrade the databases of the ledger and of all catalogs to this release's schema; idempotent.

    :raises CatalogUnavailableError: if one is unavailable.
    """
    workspace.ledger.upgrade()
    workspace.catalogs.upgrade()


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of the recovery of a table.

    ``completed`` and ``aborted`` are the tokens of refreshes that have landed, and of those that certainly have not.
    ``renamed_from`` is the former name of a completed rename. ``left`` lists unfinished refreshes with the reason and the remedy.
    """

    table: TableIdentifier
    state: JobState
    completed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    renamed_from: str = ""
    left: tuple[str, ...] = ()


def recover(workspace: Workspace, identifier: TableIdentifier) -> Recovered:
    """Complete a rename, and end every refresh of a table whose owner is dead. Idempotent; live refreshes are not touched.

    The next refresh and the maintenance do the same; this does not wait for them.

    :raises TableNotFoundError: if the catalog has no such dynamic table.
    """
    registered = workspace.look_up(identifier)
    handler = registered.handler
    if handler.renamed_from:
        finish_rename(workspace, identifier)
    ended: dict[StageState, list[str]] = {StageState.COMMITTED: [], StageState.ABORTED: []}
    left = []
    for stage in workspace.ledger.list_stages(identifier):
        try:
            state = end_abandoned(workspace, stage)
        except (DynamicTableError, OSError) as error:
            left.append(f"Refresh {stage.token} cannot be ended now: {error}")
            continue
        if state is None:
            left.append(_why_left(stage))
        else:
            ended[state].append(stage.token)
    note_undone(workspace, registered)
    completed, aborted = (tuple(tokens) for tokens in ended.values())
    return Recovered(identifier, handler.job_state, completed, aborted, handler.renamed_from, tuple(left))


def _why_left(stage: Stage) -> str:
    if stage.state is StageState.QUARANTINED:
        todo = f"dynamic-tables publish {stage.token}, or dynamic-tables abort {stage.token}"
        return f"Refresh {stage.token} is in quarantine; decide over it: {todo}."
    return (
        f"Refresh {stage.token} of {stage.owner} is at work since {stage.opened_at.isoformat()}; if it is not, it can be ended "
        f"after {stage.lease_until.isoformat()}."
    )


ORPHAN_AGE = timedelta(days=1)
"""How long orphan files are kept, because a commit in progress has written files that it does not refer to yet."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of an expiry: expired snapshots, deleted files and their bytes."""

    snapshots: int = 0
    files: int = 0
    bytes: int = 0

    def with_that(self, other: Expired) -> Expired:
        """Add another result."""
        return Expired(self.snapshots + other.snapshots, self.files + other.files, self.bytes + other.bytes)


def expire(workspace: Workspace, identifier: TableIdentifier) -> Expired:
    """Apply the retention of a dynamic table, with its dropped rows, or of one created by CREATE TABLE AS.

    Other tables are left alone.

    Safe concurrently with refreshes, rollbacks and itself: everything that an unfinished stage reads, holds or may have committed
    is kept.

    :raises ConflictError: if concurrent commits prevent it; the next call repeats it.
    :raises CatalogUnavailableError: if the catalog or metadata cannot be read.
    """
    try:
        registered = workspace.look_up(identifier)
    except NotFoundError:
        return Expired()
    note_undone(workspace, registered)
    snapshots = forget_versions(workspace, registered, Retention.parse(registered.entry.options))
    try:
        deleted = registered.lake_table.delete_orphans(workspace.now() - ORPHAN_AGE, lambda: _held(workspace, registered))
    except ConflictError as error:
        log.warning("%s", error)
        deleted = Deleted()
    expired = Expired(snapshots, deleted.files, deleted.bytes)
    keep = retention_of(registered)
    dropped_rows = forget_dropped_rows(workspace, identifier, keep) if keep is not None else None
    return expired.with_that(expire(workspace, dropped_rows)) if dropped_rows is not None else expired


def _held(workspace: Workspace, registered: RegisteredTable) -> set[str]:
    """Return the folders of the table's unfinished stages.

    :raises ConflictError: if a version is being restored, which may refer to any file; or if another installation, whose stages
        are unknown here, refreshes the table.
    """
    identifier = registered.identifier
    if strangers := other_markers(workspace, registered):
        raise ConflictError(f"{shared(identifier, strangers)} Until then none of its files is deleted.")
    folders = set()
    for stage in workspace.ledger.list_stages(identifier):
        refresh = workspace.ledger.get_refresh(stage.token)
        if refresh is not None and refresh.action is RefreshAction.ROLLBACK:
            raise ConflictError(f"An earlier version of {identifier} is being restored; its files are looked at next time.")
        folders.add(stage.location)
    return folders
