"""Restoring: an earlier version of a table becomes the current one again. Metadata only, by the same protocol as a refresh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.formats.base import kept_version
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.registered import look_up
from airflow_dynamic_tables.services.stages.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.tables.undoing import note_undone
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """A wish to restore version ``number`` of a table; ``token`` and ``owner`` as of a refresh.

    It is restored ``with_columns`` and partition keys, where the table has others now: then its definition has to follow.
    """

    identifier: TableIdentifier
    number: int
    token: str
    owner: str
    with_columns: bool = False


def rollback(workspace: Workspace, request: RollbackRequest) -> Version:
    """Make the content of an earlier version current again, as a new version.

    :raises TableNotFoundError: when the catalog has no such dynamic table.
    :raises VersionNotFoundError: when that version is not kept; names those that are.
    :raises ConflictError: when a refresh of the table is running.
    :raises SchemaEvolutionError: when the columns of that version do not fit the table any more.
    :raises CommitRejectedError: when it surely did not land.
    :raises CommitUnknownError: when nobody knows.
    """
    registered = look_up(workspace, request.identifier)
    as_dynamic(request.identifier, registered.entry)
    kept_version(registered.loaded.versions(), request.number, request.identifier)  # else nothing is recorded
    staged = registered.lake_table.stage(request.token)
    stage = new_stage(workspace, registered, request.token, request.owner, staged.begin())
    with staged_write(workspace, Operation.ROLLBACK, stage, staged) as write:
        registered.reload()
        note_undone(workspace, registered)
        _record(workspace, stage, kept_version(registered.loaded.versions(), request.number, stage.table))
        trace(Step.RESTORING, stage.token)
        version = write.publish(partial(staged.restore, request.number, with_columns=request.with_columns))
        write.landed(version)
    return version


def _record(workspace: Workspace, stage: Stage, old: Version) -> None:
    """Begin the line of the history: the rollback has the sources and the ticks of the version that it restores."""
    made = workspace.ledger.get_refresh(old.token)
    workspace.ledger.record(
        Refresh(
            token=stage.token,
            table=stage.table,
            action=RefreshAction.ROLLBACK,
            reason=f"version {old.number} asked for",
            reason_code=ReasonCode.ROLLBACK,
            state=RefreshState.RUNNING,
            schedule_time=old.data_timestamp or old.committed_at,
            started_at=stage.opened_at,
            sources={str(stage.table): old.snapshot},
            unbroken=made.unbroken if made is not None else None,
            watermark=made.watermark if made is not None else None,
        )
    )
    workspace.ledger.record_source_states(stage.token, workspace.ledger.source_states(old.token))
