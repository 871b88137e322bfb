"""Stages between ledger and table: aborted, settled, reconciled. The states are drawn in ``ledger.base``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    DynamicTableError,
    JobFailedError,
)
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import HOLDING, Refresh, RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.stages.drafts import DraftedTable
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")


def abort(workspace: Workspace, token: str, reason: BaseException | str, *, surely_not_landed: bool = False) -> None:
    """Give a stage up and delete its files; idempotent, by token. Nothing happens after a commit, or once it was in quarantine.

    :param surely_not_landed: the caller's own commit was refused, so it need not be fenced off first.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None or stage.state in (StageState.COMMITTED, StageState.QUARANTINED, StageState.ABORTED):
        return
    if was_quarantined(workspace, token):
        return  # somebody publishes it
    ended: RefreshChanges = {"state": RefreshState.FAILED} if isinstance(reason, Exception) else {}
    if isinstance(reason, JobFailedError) and reason.application_id:
        ended["application_id"] = reason.application_id
    settle(workspace, stage, str(reason) or type(reason).__name__, surely_not_landed=surely_not_landed, ended=ended)


def give_up(workspace: Workspace, token: str, error: BaseException) -> None:
    """Abort a stage because its owner's work failed with that error; when this fails, too, the next refresh or sweep does it."""
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
    """Bring a stage to its end: COMMITTED when its commit landed, else its files are deleted and it is ABORTED.

    :param error: why, for the history, unless somebody gave the stage up before and died over it: that one knew better.
    :param ended: more fields of the refresh, above all its state when that is not ABORTED.
    :return: the state it has now; QUARANTINED when it is there again, because whoever published it is gone and it did not land.
    :raises CommitRejectedError: when it came to its end by other hands just now.
    :raises CommitUnknownError: when nobody knows whether its commit can still land.
    """
    ledger = workspace.ledger
    staged = staged_table(workspace, stage)
    token = stage.token
    changes: RefreshChanges = {"state": RefreshState.ABORTED, "error": error, "finished_at": workspace.now()}
    changes.update(ended or {})

    if not _never_committed(workspace, stage, changes):
        # A format that is not atomic may have published a part of it already.
        kept = was_quarantined(workspace, token) and workspace.table(stage.table, stage.format).is_atomic
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.FENCING, None if kept else changes)
        if not surely_not_landed and _landed_all_the_same(workspace, stage, staged):
            return StageState.COMMITTED

        after = StageState.QUARANTINED if kept else StageState.ABORTING
        ledger.move_stage(token, (StageState.FENCING,), after)
        if kept:
            return after

    return _deleted(workspace, stage, staged)


def _deleted(workspace: Workspace, stage: Stage, staged: StagedTable) -> StageState:
    """Delete the files of an ABORTING stage, and end it; COMMITTED when its table reads them all the same."""
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
    """Make sure that a commit can no longer land, and look whether it did before that.

    :raises CommitUnknownError: when the fence was refused: that says nothing of the commit it was to keep out.
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
    """Whether what is, or was, being committed came out of quarantine: there it goes back when it does not land."""
    refresh = workspace.ledger.get_refresh(token)
    return refresh is not None and refresh.state is RefreshState.QUARANTINED


def _never_committed(workspace: Workspace, stage: Stage, ended: RefreshChanges) -> bool:
    """Take a stage away whose commit has not begun, and can then no longer.

    :raises CommitRejectedError: when somebody publishes just now what was in quarantine.
    """
    match stage.state:
        case StageState.ABORTING:
            return True  # whoever moved it there made sure
        case StageState.QUARANTINED:
            workspace.ledger.move_stage(stage.token, (stage.state,), StageState.ABORTING, ended)
            return True
        case StageState.OPEN:
            with suppress(CommitRejectedError):  # it began to commit just now
                workspace.ledger.move_stage(stage.token, (stage.state,), StageState.ABORTING, ended)
                return True
    return False


def record_landed(workspace: Workspace, token: str, version: Version, seconds: Mapping[str, float] | None = None) -> None:
    """Write into the ledger that a commit landed; idempotent.

    :param seconds: how long each step took, when its own process is there to tell.
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


def tell_landed(workspace: Workspace, token: str, version: Version, seconds: Mapping[str, float] | None = None) -> bool:
    """As :func:`record_landed`, right after the commit, which stands whether the ledger can be told or not.

    :return: whether it was told; else reconcile, the next refresh or a sweep completes it.
    :raises CommitRejectedError: when the stage was given up, and the table does not have the version.
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
    """What the ledger knows of a refresh that just made a version; ``None`` when it cannot be asked: the version is there."""
    try:
        return workspace.ledger.get_refresh(version.token)
    except DynamicTableError:
        log.exception("Version %s of stage %s landed, but the ledger cannot be asked.", version.number, version.token)
        return None


def result_of(workspace: Workspace, token: str, made: _Made) -> Refresh | _Made:
    """The line of the history of a write that has just ended; ``made`` itself when the ledger does not have it.

    :param token: of the write that ended in ``made``; a version may be that of another one.
    """
    recorded = recorded_refresh(workspace, made) if isinstance(made, Version) else workspace.ledger.get_refresh(token)
    return recorded or made


def reconcile(workspace: Workspace, token: str) -> Version | None:
    """Look a token up in its table's own metadata and put the ledger right.

    :return: its version when its commit landed.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None:
        return None
    version = staged_table(workspace, stage).outcome()
    if version is not None and stage.state is not StageState.COMMITTED:
        record_landed(workspace, token, version)
    return version


def staged_table(workspace: Workspace, stage: Stage) -> StagedTable:
    """The table side of a stage of the ledger."""
    if stage.creates not in (None, str(stage.table)):
        return DraftedTable(workspace, stage.table, stage.format, stage.token)
    return workspace.table(stage.table, stage.format).stage(stage.token)
