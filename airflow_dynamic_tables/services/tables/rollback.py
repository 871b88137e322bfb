"""Restoring: an earlier version of a table becomes the current one again. Metadata only, by the same protocol as a refresh."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitUnknownError,
)
from airflow_dynamic_tables.formats.base import kept_version
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.stages.leases import lease_kept, new_lease, open_stage
from airflow_dynamic_tables.services.stages.settling import give_up, tell_landed
from airflow_dynamic_tables.services.tables.undoing import note_undone
from airflow_dynamic_tables.services.workspace import Workspace


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
    stage = _stage(workspace, request)
    open_stage(workspace, stage)
    trace(Step.OPENED, stage.token)
    try:
        with lease_kept(workspace, stage.token):
            return _restored(workspace, request, stage)
    except CommitUnknownError as error:
        with suppress(CatalogUnavailableError):
            workspace.ledger.update_refresh(stage.token, error=str(error))
        raise
    except BaseException as error:
        give_up(workspace, stage.token, error)
        raise


def _stage(workspace: Workspace, request: RollbackRequest) -> Stage:
    entry = workspace.dynamic_table(request.identifier)
    table = workspace.table(request.identifier, entry.format)
    kept_version(table.versions(), request.number, request.identifier)  # else nothing is recorded
    return Stage(
        token=request.token,
        table=request.identifier,
        location=table.stage(request.token).begin(),
        owner=request.owner,
        format=entry.format,
        **new_lease(workspace),
    )


def _restored(workspace: Workspace, request: RollbackRequest, stage: Stage) -> Version:
    table = workspace.table(request.identifier, stage.format)
    note_undone(workspace, stage.table, table)
    old = kept_version(table.versions(), request.number, stage.table)
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
    trace(Step.RESTORING, stage.token)
    staged = table.stage(stage.token)
    version = staged.restore(request.number, lambda: _publishing(workspace, stage), with_columns=request.with_columns)
    trace(Step.PUBLISHED, stage.token)
    if tell_landed(workspace, stage.token, version):
        trace(Step.COMPLETED, stage.token)
    return version


def _publishing(workspace: Workspace, stage: Stage) -> None:
    workspace.ledger.move_stage(stage.token, (StageState.OPEN,), StageState.COMMITTING)
    trace(Step.PUBLISHING, stage.token)
