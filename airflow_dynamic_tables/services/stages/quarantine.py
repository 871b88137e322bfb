"""Quarantine: stages whose fuse tripped wait, out of everybody's way, until somebody publishes or aborts them."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import takewhile

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, DynamicTableError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.stages.landing import land, read_plan, read_result
from airflow_dynamic_tables.services.stages.leases import COMPACTION, is_abandoned
from airflow_dynamic_tables.services.stages.processes import current_process
from airflow_dynamic_tables.services.stages.protocol import staged_write
from airflow_dynamic_tables.services.stages.settling import reconcile, settle, staged_table, was_quarantined
from airflow_dynamic_tables.services.workspace import Workspace

KEEP_QUARANTINED = timedelta(days=30)
"""How long a stage waits for somebody to decide; then the maintenance aborts it."""

log = logging.getLogger(__name__)


def publish(workspace: Workspace, token: str) -> Version:
    """Commit a stage that is in quarantine; everything but the fuse is checked again. Idempotent by token.

    Whatever fails, it is in quarantine again, at once or when the next one publishes or sweeps, unless its commit landed.

    :raises ConfigurationError: when there is no such stage, or it is not in quarantine.
    :raises StageRejectedError: when the stage no longer fits the table.
    :raises ConflictError: when newer data was committed meanwhile, a refresh of some of the same partitions is running, or
        somebody else decides on it.
    :raises CommitUnknownError: when nobody knows whether it landed.
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
    with staged_write(workspace, Operation.PUBLISH, ours, staged) as write:
        write.note(seconds=refresh.seconds if refresh is not None else {})
        version = write.publish(partial(land, staged, planned, result), lambda: _check_up_to_date(workspace, ours, planned))
        write.landed(version)
    if write.outcome.has_record:
        supersede(workspace, stage.table)
    return version


def reject(workspace: Workspace, token: str, reason: str) -> None:
    """Abort a stage that is in quarantine and delete its files; idempotent.

    :param reason: recorded in the history.
    :raises ConfigurationError: when there is no such stage, or it is not in quarantine.
    """
    stage = _stage(workspace, token)
    if stage.state is not StageState.ABORTED:
        _check_quarantined(workspace, stage)
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
    return newer.ordinal > stage.ordinal and newer.overlaps(stage) and newer.owner != COMPACTION


def _check_up_to_date(workspace: Workspace, stage: Stage, planned: RefreshPlan) -> None:
    """Refuse to overwrite what was committed on the base of the stage; asked of the table itself, whatever the ledger lacks.

    What the commit replaces was read before: a version that is newer than that is seen here, and refused by the swap, too.
    """
    workspace.ledger.move_stage(stage.token, (), StageState.COMMITTING, held_by=stage.process)  # or it was settled elsewhere
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
    """The stage as it is once nobody who died publishes it any more.

    :raises ConfigurationError: when there is none.
    :raises ConflictError: when somebody publishes it, or what a dead one did of that may still land.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None:
        raise ConfigurationError(f"No stage {token} is known; dynamic-tables history lists the refreshes in quarantine.")
    if stage.state not in (StageState.COMMITTING, StageState.FENCING) or not was_quarantined(workspace, token):
        return stage
    if not is_abandoned(workspace, stage):
        raise ConflictError(
            f"Stage {token} of {stage.table} is being published by somebody else; "
            f"see what became of it, or try again after {stage.lease_until.isoformat()} if that one died."
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
    """Of a stage that landed: its version, whether the table still has it, and what can be done about that."""
    refresh = workspace.ledger.get_refresh(stage.token)
    version = f" as version {refresh.version}" if refresh is not None and refresh.version is not None else ""
    landed = f"Stage {stage.token} of {stage.table} has landed{version}; there is nothing left to decide."
    if reconcile(workspace, stage.token) is not None:
        return f"{landed} dynamic-tables rollback takes the table back to an earlier version."
    again = f" for {refresh.schedule_time.isoformat()}" if refresh is not None else ""
    return (
        f"{landed} The table no longer has that version: it has expired, or the table was made anew. "
        f"To have its rows again, refresh the table{again}."
    )
