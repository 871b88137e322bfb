"""Quarantine: stages whose fuse tripped wait, out of everybody's way, until somebody publishes or aborts them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from itertools import takewhile

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, DynamicTableError, StageRejectedError
from airflow_dynamic_tables.ledger.base import RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.stages.landing import land, read_plan, read_result
from airflow_dynamic_tables.services.stages.leases import LEASE, lease_kept
from airflow_dynamic_tables.services.stages.processes import current_process
from airflow_dynamic_tables.services.stages.settling import reconcile, record_landed, settle, staged_table
from airflow_dynamic_tables.services.workspace import Workspace

KEEP_QUARANTINED = timedelta(days=30)
"""How long a stage waits for somebody to decide; then the maintenance aborts it."""

log = logging.getLogger(__name__)


def quarantine(workspace: Workspace, token: str, reason: str, seconds: Mapping[str, float]) -> None:
    """Put an OPEN stage into quarantine and end its refresh.

    :param seconds: how long each step took.

    :raises CommitRejectedError: when the stage was taken away meanwhile.
    """
    ended: RefreshChanges = {
        "state": RefreshState.QUARANTINED,
        "error": reason,
        "finished_at": workspace.now(),
        "seconds": seconds,
    }
    workspace.ledger.move_stage(token, (StageState.OPEN,), StageState.QUARANTINED, ended)


def publish(workspace: Workspace, token: str) -> Version:
    """Commit a stage that is in quarantine; everything but the fuse is checked again. Idempotent by token.

    :raises ConfigurationError: when there is no such stage, or it is not in quarantine.
    :raises StageRejectedError: when the stage no longer fits the table; it stays in quarantine.
    :raises ConflictError: when newer data was committed meanwhile; it stays in quarantine.
    :raises CommitUnknownError: when nobody knows whether it landed.
    """
    stage = _stage(workspace, token)
    if stage.state is StageState.COMMITTED and (landed := reconcile(workspace, token)):
        return landed
    _check_quarantined(stage)
    planned = read_plan(stage)
    result = read_result(planned)
    staged = staged_table(workspace, stage)

    ledger = workspace.ledger
    lease = workspace.now() + LEASE
    # From here on it is the stage of this process: when that dies, the stage is settled as that of any refresh.
    ledger.move_stage(token, (StageState.QUARANTINED,), StageState.COMMITTING, process=current_process(), lease_until=lease)
    try:
        with lease_kept(workspace, token):
            version = land(staged, planned, result, lambda: _check_up_to_date(workspace, stage, planned))
    except (StageRejectedError, ConflictError):
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.QUARANTINED)
        raise

    refresh = ledger.get_refresh(token)
    record_landed(workspace, token, version, refresh.seconds if refresh is not None else None)
    supersede(workspace, stage.table)
    return version


def reject(workspace: Workspace, token: str, reason: str) -> None:
    """Abort a stage that is in quarantine and delete its files; idempotent.

    :param reason: recorded in the history.
    :raises ConfigurationError: when there is no such stage, or it is not in quarantine.
    """
    stage = _stage(workspace, token)
    if stage.state is not StageState.ABORTED:
        _check_quarantined(stage)
        settle(workspace, stage, reason)


def supersede(workspace: Workspace, table: TableIdentifier) -> None:
    """After a commit: abort what it supersedes in quarantine. Best effort; the sweep does it, too."""
    try:
        for stage in workspace.ledger.list_stages(table, (StageState.QUARANTINED,)):
            if reason := why_over(workspace, stage):
                settle(workspace, stage, reason)
    except (DynamicTableError, OSError):
        log.exception("Could not abort what is obsolete in quarantine of %s; the next sweep does it.", table)


def stage_of_owner(workspace: Workspace, table: TableIdentifier, owner: str) -> Stage | None:
    """The stage of the latest try of a piece of work, whatever became of it."""
    stages = workspace.ledger.list_stages(table, tuple(StageState))
    return next((stage for stage in reversed(stages) if stage.owner == owner), None)


def why_over(workspace: Workspace, stage: Stage) -> str | None:
    """Why a stage need not stay in quarantine; ``None`` when somebody still has to decide."""
    committed = workspace.ledger.list_stages(stage.table, (StageState.COMMITTED,))
    newer = next((other for other in committed if _overtakes(other, stage)), None)
    if newer is not None:
        return f"superseded by {newer.token}"
    if stage.opened_at + KEEP_QUARANTINED < workspace.now():
        return f"nobody decided within {KEEP_QUARANTINED.days} days"
    return None


def _overtakes(newer: Stage, stage: Stage) -> bool:
    return newer.opened_at > stage.opened_at and newer.overlaps(stage)


def _check_up_to_date(workspace: Workspace, stage: Stage, planned: RefreshPlan) -> None:
    """Refuse to overwrite what was committed after the stage was opened; asked of the table itself, whatever the ledger lacks."""
    workspace.ledger.move_stage(stage.token, (), StageState.COMMITTING)  # or somebody else settled it
    newest_first = workspace.table(stage.table, stage.format).versions()[::-1]
    for version in takewhile(lambda version: version.snapshot != planned.base, newest_first):
        newer = workspace.ledger.get_stage(version.token)
        fresher = stage.partitions.is_whole and version.data_timestamp and version.data_timestamp > planned.schedule_time
        if newer is None or _overtakes(newer, stage) or fresher:
            raise ConflictError(
                f"Version {version.number} of {stage.table} was committed after stage {stage.token} was planned; "
                f"publishing this would undo it, so run dynamic-tables abort {stage.token}"
            )


def _stage(workspace: Workspace, token: str) -> Stage:
    stage = workspace.ledger.get_stage(token)
    if stage is None:
        raise ConfigurationError(f"No stage {token} is known; dynamic-tables history lists the refreshes in quarantine.")
    return stage


def _check_quarantined(stage: Stage) -> None:
    if stage.state is not StageState.QUARANTINED:
        raise ConfigurationError(
            f"Stage {stage.token} of {stage.table} is {stage.state}, not in quarantine; there is nothing to decide."
        )
