"""Transitions of stages in ledger and table: abort, settle, reconcile. See ``ledger.base`` for the diagram of states."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    DynamicTableError,
    JobFailedError,
)
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import HOLDING, Refresh, RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.drafts import DraftedTable

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")


def abort(workspace: Workspace, token: str, reason: BaseException | str, *, surely_not_landed: bool = False) -> None:
    """Abort a stage and delete its files; idempotent by token. Committed stages and stages from quarantine are left alone.

    :param surely_not_landed: the caller's own commit was refused, so it need not be fenced off first.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None or stage.state in (StageState.COMMITTED, StageState.QUARANTINED, StageState.ABORTED):
        return
    if was_quarantined(workspace, token):
        return  # another process is publishing it
    ended: RefreshChanges = {"state": RefreshState.FAILED} if isinstance(reason, Exception) else {}
    if isinstance(reason, JobFailedError) and reason.application_id:
        ended["application_id"] = reason.application_id
    settle(workspace, stage, str(reason) or type(reason).__name__, surely_not_landed=surely_not_landed, ended=ended)


def abort_stage(workspace: Workspace, token: str, error: BaseException) -> None:
    """Abort a stage after its owner's work failed. If this fails too, it is logged; the next refresh or sweep repeats it."""
    try:
        abort(workspace, token, error, surely_not_landed=isinstance(error, CommitRejectedError))
    except Exception:
        log.exception("Could not abort stage %s; the next refresh or sweep does it.", token)


def settle(
    workspace: Workspace,
    stage: Stage,
    error: str | None,
    *,
    surely_not_landed: bool = False,
    ended: RefreshChanges | None = None,
) -> StageState:
    """Bring a stage to a final state: COMMITTED if its commit landed; otherwise its files are deleted and it is ABORTED.

    :param error: reason for the history; not recorded if another process recorded one before it died.
    :param ended: more fields of the refresh, in particular its state if that is not ABORTED.
    :return: the new state; QUARANTINED if the stage returned to quarantine, because its publisher has ended and it did not land.
    :raises CommitRejectedError: if the stage has just been settled elsewhere.
    :raises CommitUnknownError: if it is unknown whether its commit can still land.
    """
    ledger = workspace.ledger
    staged = staged_table(workspace, stage)
    token = stage.token
    changes: RefreshChanges = {"state": RefreshState.ABORTED, "error": error, "finished_at": workspace.now()}
    changes.update(ended or {})

    if not _never_committed(workspace, stage, changes):
        # A format without atomic commits may already have published a part of the stage.
        kept = was_quarantined(workspace, token) and workspace.table(stage.table, stage.format).is_atomic
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.FENCING, None if kept else changes)
        if not surely_not_landed and _landed_all_the_same(workspace, stage, staged):
            return StageState.COMMITTED

        if kept:
            staged.reopen()
            ledger.move_stage(token, (StageState.FENCING,), StageState.QUARANTINED)
            return StageState.QUARANTINED
        ledger.move_stage(token, (StageState.FENCING,), StageState.ABORTING)

    return _deleted(workspace, stage, staged)


def _deleted(workspace: Workspace, stage: Stage, staged: StagedTable) -> StageState:
    """Delete the files of an ABORTING stage and end it; COMMITTED if its table reads the files."""
    token = stage.token
    trace(Step.SETTLING, token)
    try:
        staged.abort(stage.location)
    except ConflictError:
        version = staged.outcome()
        if version is None:
            raise
        record_landed(workspace, token, version)
        return StageState.COMMITTED
    trace(Step.DELETED, token)
    workspace.ledger.move_stage(token, (StageState.ABORTING,), StageState.ABORTED)
    return StageState.ABORTED


def _landed_all_the_same(workspace: Workspace, stage: Stage, staged: StagedTable) -> bool:
    """Fence a commit off so that it can no longer land, and return whether it had landed before.

    :raises CommitUnknownError: if the fence was refused, because then the fate of the commit is unknown.
    """
    try:
        staged.fence()
    except CommitRejectedError as error:
        raise CommitUnknownError(f"The commit of stage {stage.token} may still land: {error}") from error
    version = staged.outcome()
    if version is not None:
        record_landed(workspace, stage.token, version)
    return version is not None


def was_quarantined(workspace: Workspace, token: str) -> bool:
    """Return whether a stage came out of quarantine, to which it returns if it does not land."""
    refresh = workspace.ledger.get_refresh(token)
    return refresh is not None and refresh.state is RefreshState.QUARANTINED


def _never_committed(workspace: Workspace, stage: Stage, ended: RefreshChanges) -> bool:
    """Move a stage to ABORTING if its commit has not begun; return whether it is ABORTING.

    :raises CommitRejectedError: if another process is publishing a quarantined stage.
    """
    match stage.state:
        case StageState.ABORTING:
            return True  # the process that moved it there has fenced it off
        case StageState.QUARANTINED:
            workspace.ledger.move_stage(stage.token, (stage.state,), StageState.ABORTING, ended)
            return True
        case StageState.OPEN:
            with suppress(CommitRejectedError):  # its commit has just begun
                workspace.ledger.move_stage(stage.token, (stage.state,), StageState.ABORTING, ended)
                return True
    return False


def record_landed(workspace: Workspace, token: str, version: Version, seconds: Mapping[str, float] | None = None) -> None:
    """Record in the ledger that a commit landed; idempotent.

    :param seconds: duration of each step, if the process of the write itself records it.
    """
    succeeded: RefreshChanges = {
        "state": RefreshState.SUCCEEDED,
        "version": version.number or None,
        "snapshot": version.snapshot,
        "data_timestamp": version.data_timestamp,
        "finished_at": workspace.now(),
        "error": None,
        "seconds": seconds or {},
    }
    unfinished = (*HOLDING, StageState.ABORTING)
    workspace.ledger.move_stage(token, unfinished, StageState.COMMITTED, succeeded)


def record_commit(workspace: Workspace, token: str, version: Version, seconds: Mapping[str, float] | None = None) -> bool:
    """Record a commit immediately after it landed, like :func:`record_landed`, but log failures: the commit is valid either way.

    :return: whether it was recorded; otherwise :func:`reconcile`, the next refresh or a sweep completes the record.
    :raises CommitRejectedError: if the stage was aborted and the table does not have the version.
    """
    try:
        record_landed(workspace, token, version, seconds)
    except CommitRejectedError as error:
        stage = workspace.ledger.get_stage(token)
        if stage is None or staged_table(workspace, stage).outcome() is None:
            raise CommitRejectedError(
                f"Stage {token} was given up while it was committed, and its table does not have version {version.number}: it "
                "was dropped, or made again. Refresh it again."
            ) from error
        log.exception("Version %s of stage %s landed, but the ledger could not be told.", version.number, token)
        return False
    except DynamicTableError:
        log.exception("Version %s of stage %s landed, but the ledger could not be told.", version.number, token)
        return False
    return True


def recorded_refresh(workspace: Workspace, version: Version) -> Refresh | None:
    """Return the ledger's record of the refresh that created a version; ``None`` if the ledger is unavailable."""
    try:
        return workspace.ledger.get_refresh(version.token)
    except DynamicTableError:
        log.exception("Version %s of stage %s landed, but the ledger cannot be asked.", version.number, version.token)
        return None


def result_of(workspace: Workspace, token: str, made: _Made) -> Refresh | _Made:
    """Return the history record of a write that has just ended, or ``made`` if the ledger does not have it.

    :param token: token of the write that returned ``made``; a version may have been created by another write.
    """
    recorded = recorded_refresh(workspace, made) if isinstance(made, Version) else workspace.ledger.get_refresh(token)
    return recorded or made


def reconcile(workspace: Workspace, token: str) -> Version | None:
    """Look a token up in its table's metadata and correct the ledger.

    :return: the version if the commit landed.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None:
        return None
    version = staged_table(workspace, stage).outcome()
    if version is not None and stage.state is not StageState.COMMITTED:
        record_landed(workspace, token, version)
    return version


def staged_table(workspace: Workspace, stage: Stage) -> StagedTable:
    """Return the table side of a ledger stage."""
    if stage.creates not in (None, str(stage.table)):
        return DraftedTable(workspace, stage.table, stage.format, stage.token)
    return workspace.table(stage.table, stage.format).stage(stage.token)
