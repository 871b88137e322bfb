"""Stages between ledger and table: aborted, settled, reconciled. The states are drawn in ``ledger.base``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import CommitRejectedError, JobFailedError
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.workspace import Workspace

UNFENCED_GRACE = timedelta(days=1)
"""How long files are kept when their commit might still land because there is no table yet to fence it with."""


log = logging.getLogger(__name__)


def abort(workspace: Workspace, token: str, reason: BaseException | str, *, surely_not_landed: bool = False) -> None:
    """Give a stage up and delete its files; idempotent, by token. Nothing happens after a commit, or when it is in quarantine.

    :param surely_not_landed: the caller's own commit was refused, so it need not be fenced off first.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None or stage.state in (StageState.COMMITTED, StageState.QUARANTINED, StageState.ABORTED):
        return
    ended: RefreshChanges = {"state": RefreshState.FAILED} if isinstance(reason, Exception) else {}
    if isinstance(reason, JobFailedError) and reason.application_id:
        ended["application_id"] = reason.application_id
    settle(workspace, stage, str(reason) or type(reason).__name__, surely_not_landed=surely_not_landed, ended=ended)


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
    :return: the state it has now; ABORTING when its commit might still land, so that nothing was deleted.
    """
    ledger = workspace.ledger
    staged = staged_table(workspace, stage)
    token = stage.token
    changes: RefreshChanges = {"state": RefreshState.ABORTED, "error": error, "finished_at": workspace.now()}
    changes.update(ended or {})

    if not _never_committed(workspace, stage, changes):
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.ABORTING, changes)
        if not surely_not_landed:
            fenced = staged.fence()
            version = staged.outcome()
            if version is not None:
                record_landed(workspace, token, version)
                return StageState.COMMITTED
            if not fenced and workspace.now() < stage.opened_at + UNFENCED_GRACE:
                return StageState.ABORTING

    trace(Step.SETTLING, token)
    staged.abort()
    trace(Step.DELETED, token)
    ledger.move_stage(token, (StageState.ABORTING,), StageState.ABORTED)
    return StageState.ABORTED


def _never_committed(workspace: Workspace, stage: Stage, ended: RefreshChanges) -> bool:
    """Take a stage away whose commit has not begun, and can then no longer."""
    if stage.state not in (StageState.OPEN, StageState.QUARANTINED):
        return False
    try:
        return workspace.ledger.move_stage(stage.token, (stage.state,), StageState.ABORTING, ended)
    except CommitRejectedError:
        return False  # it began to commit just now


def record_landed(workspace: Workspace, token: str, version: Version, seconds: Mapping[str, float] | None = None) -> None:
    """Write into the ledger that a commit landed; idempotent.

    :param seconds: how long each step took, when its own process is there to tell.
    """
    succeeded: RefreshChanges = {
        "state": RefreshState.SUCCEEDED,
        "version": version.number,
        "snapshot": version.snapshot,
        "data_timestamp": version.data_timestamp,
        "finished_at": workspace.now(),
        "error": None,
        "seconds": seconds or {},
    }
    unfinished = (StageState.OPEN, StageState.COMMITTING, StageState.ABORTING)
    workspace.ledger.move_stage(token, unfinished, StageState.COMMITTED, succeeded)


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
    return workspace.table(stage.table, stage.format).stage(stage.token)
