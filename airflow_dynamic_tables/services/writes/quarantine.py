"""Quarantine: stages that failed an expectation are kept, without blocking other writes, until they are published or aborted."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import takewhile

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    ConfigurationError,
    ConflictError,
    DynamicTableError,
    StageRejectedError,
)
from airflow_dynamic_tables.ledger.base import RefreshState, Stage, StageState
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import YIELDING, current_process, is_abandoned
from airflow_dynamic_tables.services.writes.protocol import staged_write
from airflow_dynamic_tables.services.writes.publishing import publish_stage, read_plan, read_result, record_state
from airflow_dynamic_tables.services.writes.settling import reconcile, settle, staged_table, was_quarantined

KEEP_QUARANTINED = timedelta(days=30)
"""How long a stage stays in quarantine without a decision; then the maintenance aborts it."""

log = logging.getLogger(__name__)


def publish(workspace: Workspace, token: str) -> Version:
    """Commit a quarantined stage, after repeating every check except the expectations; idempotent by token.

    On failure the stage returns to quarantine, immediately or with the next publish or sweep, unless its commit landed.

    :raises ConfigurationError: if there is no such stage, or it is not in quarantine.
    :raises StageRejectedError: if the stage no longer fits the table.
    :raises ConflictError: if newer data was committed meanwhile, a refresh of some of the same partitions is running, or another
        process is publishing or aborting the stage.
    :raises CommitUnknownError: if it is unknown whether the commit landed.
    """
    stage = _stage(workspace, token)
    if stage.state is StageState.COMMITTED and (landed := reconcile(workspace, token)):
        return landed
    _check_quarantined(workspace, stage)
    planned = read_plan(stage)
    result = read_result(planned)
    staged = staged_table(workspace, stage)
    ours = replace(stage, process=current_process())
    refresh = workspace.ledger.get_refresh(token)
    try:
        with staged_write(workspace, Operation.PUBLISH, ours, staged) as write:
            write.note(seconds=refresh.seconds if refresh is not None else {})
            write.wrote(result)
            version = write.publish(
                partial(publish_stage, staged, planned, result), lambda: _check_up_to_date(workspace, ours, planned)
            )
            write.landed(version)
    except CommitRejectedError as error:
        if workspace.table(stage.table, stage.format).layout() is not None:
            raise
        raise StageRejectedError(
            f"There is no table {stage.table} to publish into: it was dropped, or the refresh is of release 0.1.0, which "
            f"created a table only at its first commit. Abort it and refresh again: dynamic-tables abort {token}"
        ) from error
    if write.outcome.has_record:
        record_state(workspace, workspace.look_up(stage.table), planned, version)
        supersede(workspace, stage.table)
    return version


def reject(workspace: Workspace, token: str, reason: str) -> None:
    """Abort a quarantined stage and delete its files; idempotent.

    :param reason: recorded in the history.
    :raises ConfigurationError: if there is no such stage, or it is not in quarantine.
    """
    stage = _stage(workspace, token)
    if stage.state is not StageState.ABORTED:
        _check_quarantined(workspace, stage)
        settle(workspace, stage, reason, ended={"state": RefreshState.REJECTED})


def supersede(workspace: Workspace, table: TableIdentifier) -> None:
    """Abort the quarantined stages that a commit supersedes. Best effort; the sweep repeats it."""
    try:
        for stage in workspace.ledger.list_stages(table, (StageState.QUARANTINED,)):
            if reason := why_over(workspace, stage):
                settle(workspace, stage, reason)
    except (DynamicTableError, OSError):
        log.exception("Could not abort what is obsolete in quarantine of %s; the next sweep does it.", table)


def stage_of_owner(workspace: Workspace, table: TableIdentifier, owner: str) -> Stage | None:
    """Return the stage of the latest attempt of an owner, in any state."""
    stages = workspace.ledger.list_stages(table, tuple(StageState))
    return next((stage for stage in reversed(stages) if stage.owner == owner), None)


def why_over(workspace: Workspace, stage: Stage) -> str | None:
    """Return why a stage need not stay in quarantine; ``None`` if a decision is still required."""
    committed = workspace.ledger.list_stages(stage.table, (StageState.COMMITTED,))
    newer = next((other for other in committed if _overtakes(other, stage)), None)
    if newer is not None:
        return f"superseded by {newer.token}"
    if stage.opened_at + KEEP_QUARANTINED < workspace.now():
        return f"no decision within {KEEP_QUARANTINED.days} days"
    return None


def _overtakes(newer: Stage, stage: Stage) -> bool:
    return newer.ordinal > stage.ordinal and newer.overlaps(stage) and newer.owner not in YIELDING


def _check_up_to_date(workspace: Workspace, stage: Stage, planned: RefreshPlan) -> None:
    """Refuse to overwrite versions committed after the stage was planned.

    The table itself is checked, because the ledger may be incomplete. The commit has read the state that it replaces before this
    check; a newer version is detected here, and also refused by the table's atomic swap.
    """
    workspace.ledger.move_stage(
        stage.token, (), StageState.COMMITTING, held_by=stage.process
    )  # fails if the stage was settled elsewhere
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
    """Return the stage, after settling a publish whose process has ended.

    :raises ConfigurationError: if there is no such stage.
    :raises ConflictError: if another process is publishing it, or the commit of a dead publisher may still land.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None:
        raise ConfigurationError(f"No stage {token} is known; dynamic-tables history lists the refreshes in quarantine.")
    if stage.state not in (StageState.COMMITTING, StageState.FENCING) or not was_quarantined(workspace, token):
        return stage
    if not is_abandoned(workspace, stage):
        raise ConflictError(
            f"Stage {token} of {stage.table} is being published by another process; "
            f"see its outcome in the history, or try again after {stage.lease_until.isoformat()} if that process died."
        )
    return replace(stage, state=settle(workspace, stage, None))


def _check_quarantined(workspace: Workspace, stage: Stage) -> None:
    if stage.state is StageState.QUARANTINED:
        return
    if stage.state is StageState.COMMITTED:
        raise ConfigurationError(_what_became_of(workspace, stage))
    raise ConfigurationError(
        f"Stage {stage.token} of {stage.table} is {stage.state}, not in quarantine; there is nothing to decide."
    )


def _what_became_of(workspace: Workspace, stage: Stage) -> str:
    """Describe a stage that landed: its version, whether the table still has it, and possible actions."""
    refresh = workspace.ledger.get_refresh(stage.token)
    version = f" as version {refresh.version}" if refresh is not None and refresh.version is not None else ""
    landed = f"Stage {stage.token} of {stage.table} has landed{version}; there is nothing left to decide."
    if reconcile(workspace, stage.token) is not None:
        return f"{landed} dynamic-tables rollback takes the table back to an earlier version."
    again = f" for {refresh.schedule_time.isoformat()}" if refresh is not None else ""
    return (
        f"{landed} The table no longer has that version: it has expired, or the table was recreated. "
        f"To have its rows again, refresh the table{again}."
    )
