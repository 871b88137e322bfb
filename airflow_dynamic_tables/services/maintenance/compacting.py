"""Compacting: many small files of a partition become few, by the protocol of a refresh; no version, no event, the same rows."""

from __future__ import annotations

import logging
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import is_own
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import (
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS, Compacted, Limits, PartitionFiles
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.stages.leases import COMPACTION, lease_kept, new_lease
from airflow_dynamic_tables.services.stages.marks import leave_mark, other_marks, shared
from airflow_dynamic_tables.services.stages.settling import abort, give_up, reconcile
from airflow_dynamic_tables.services.workspace import Workspace

MOST_COMMITS = 16
"""How many compactions of a table one maintenance makes: each reads some hundred MB, and the next maintenance goes on."""

log = logging.getLogger(__name__)


def compact(
    workspace: Workspace, identifier: TableIdentifier, limits: Limits = DEFAULT_LIMITS, *, is_cheap: bool = False
) -> Compacted:
    """Make few files of the small ones of a dynamic table where these are too many; another table is left alone.

    Safe beside refreshes, which have their way: what a refresh replaces is left to it, and one that comes meanwhile takes the
    stage away. A table that another installation refreshes, too, is left alone, because its refreshes cannot be seen.

    :param is_cheap: look no further when few files were added since the last compaction.
    :raises CommitUnknownError: when nobody knows whether a commit landed; the next sweep finds out.
    :raises CatalogUnavailableError: when catalog or metadata cannot be read.
    """
    try:
        table_format = _format(workspace, identifier)
    except NotFoundError:
        return Compacted()
    table = workspace.table(identifier, table_format)
    due = table.scattered(limits, is_cheap=is_cheap)
    if not due:
        return Compacted()
    leave_mark(workspace, identifier, table)
    if strangers := other_marks(workspace, table):
        return Compacted(left=(shared(identifier, strangers),))
    stages = (_stage(workspace, identifier, table_format, table, partitions) for partitions in due[:MOST_COMMITS])
    return sum((_round(workspace, table, stage, limits) for stage in stages), Compacted())


def count_files(workspace: Workspace, identifier: TableIdentifier, limits: Limits = DEFAULT_LIMITS) -> list[PartitionFiles]:
    """How many files each partition of a dynamic table has, and which are due to be compacted; changes nothing.

    :raises NotFoundError: when there is no such dynamic table.
    :raises UnsupportedError: when nothing of it can be compacted; says why.
    """
    table = workspace.table(identifier, _format(workspace, identifier))
    try:
        counted = table.count_files(limits)
    except UnsupportedError as error:
        raise UnsupportedError(f"{identifier} is not compacted. {error}") from error
    if strangers := other_marks(workspace, table):
        raise UnsupportedError(f"{identifier} is not compacted. {shared(identifier, strangers)}")
    return counted


def _format(workspace: Workspace, identifier: TableIdentifier) -> str:
    """The format of a dynamic table.

    :raises NotFoundError: when there is no such dynamic table.
    """
    entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    if not is_own(entry):
        raise TableNotFoundError(f"{identifier} is no dynamic table, so its files are left to whoever writes them.")
    return entry.format


def _stage(
    workspace: Workspace, identifier: TableIdentifier, table_format: str, table: LakeTable, partitions: PartitionSet
) -> Stage:
    token = f"compaction-{uuid4()}"
    return Stage(
        token=token,
        table=identifier,
        location=table.stage(token).begin(),
        owner=COMPACTION,
        partitions=partitions,
        format=table_format,
        **new_lease(workspace),
    )


def _round(workspace: Workspace, table: LakeTable, stage: Stage, limits: Limits) -> Compacted:
    """One compaction, unless somebody works on the partitions."""
    if workspace.ledger.open_stage(stage):
        return _left(f"{stage.partitions} of {stage.table} is being refreshed; its small files stay until next time.")
    trace(Step.OPENED, stage.token)
    try:
        with lease_kept(workspace, stage.token):
            return _compacted(workspace, table, stage, limits)
    except CommitUnknownError:
        raise
    except BaseException as error:
        give_up(workspace, stage.token, error)
        if not isinstance(error, (ConflictError, StageRejectedError)):
            raise
        return _left(f"{stage.partitions} of {stage.table} is not compacted: {error}")


def _compacted(workspace: Workspace, table: LakeTable, stage: Stage, limits: Limits) -> Compacted:
    def publishing() -> None:
        workspace.ledger.move_stage(stage.token, (StageState.OPEN,), StageState.COMMITTING)
        trace(Step.PUBLISHING, stage.token)

    done = table.stage(stage.token).compact(stage.partitions, limits, publishing)
    if done is None:
        abort(workspace, stage.token, "there is nothing to compact")
        return _left(f"{stage.partitions} of {stage.table} has no small files (any more) that are alike, so nothing is done.")
    trace(Step.PUBLISHED, stage.token)
    reconcile(workspace, stage.token)
    trace(Step.COMPLETED, stage.token)
    log.info("%s of %s: %s files became %s.", stage.partitions, stage.table, done.files, done.made)
    return done


def _left(why: str) -> Compacted:
    log.info("%s", why)
    return Compacted(left=(why,))
