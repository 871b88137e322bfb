"""Sweeping: what no refresh and no callback cleaned up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.processes import is_dead
from airflow_dynamic_tables.services.stages import settle, staged_table
from airflow_dynamic_tables.services.workspace import Workspace

KEEP_HISTORY = timedelta(days=90)
"""How long finished refreshes stay in the ledger."""

ZOMBIE_WINDOW = timedelta(days=2)
"""How long after a stage was aborted a job that outlived it may still write into its folder."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Tokens of stages that were aborted, turned out to be committed, or were left alone; ``pruned`` counts ledger rows."""

    aborted: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    pruned: int = 0


def sweep(workspace: Workspace) -> SweepReport:
    """Settle every stage whose owner is gone, delete what zombies left, and prune the history. Living stages are not touched."""
    now = workspace.now()
    ended: dict[StageState, list[str]] = {StageState.ABORTED: [], StageState.COMMITTED: [], StageState.ABORTING: []}
    for stage in workspace.ledger.list_stages():
        ended[_ended(workspace, stage)].append(stage.token)
    for stage in workspace.ledger.list_stages(states=(StageState.ABORTED,)):
        if stage.opened_at > now - ZOMBIE_WINDOW:
            _delete_again(workspace, stage)
    return SweepReport(
        aborted=tuple(ended[StageState.ABORTED]),
        completed=tuple(ended[StageState.COMMITTED]),
        kept=tuple(ended[StageState.ABORTING]),
        pruned=workspace.ledger.prune(now - KEEP_HISTORY),
    )


def _ended(workspace: Workspace, stage: Stage) -> StageState:
    if stage.state is StageState.QUARANTINED:
        return StageState.ABORTING
    if stage.state is not StageState.ABORTING and stage.lease_until >= workspace.now() and not is_dead(stage.process):
        return StageState.ABORTING
    try:
        return settle(workspace, stage, "abandoned: its owner is gone")
    except DynamicTableError:
        log.exception("Could not settle stage %s of %s; the next sweep tries again.", stage.token, stage.table)
        return StageState.ABORTING


def _delete_again(workspace: Workspace, stage: Stage) -> None:
    try:
        staged_table(workspace, stage).abort()
    except DynamicTableError:
        log.exception("Could not delete what is left of stage %s of %s.", stage.token, stage.table)
