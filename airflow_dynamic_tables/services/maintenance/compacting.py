"""Compacting: many small files of a partition become few, by the protocol of a refresh; no version, no event, the same rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import (
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS, Compacted, Limits, PartitionFiles
from airflow_dynamic_tables.services.outcomes import Ending, Operation
from airflow_dynamic_tables.services.registered import RegisteredTable, look_up
from airflow_dynamic_tables.services.stages.leases import COMPACTION
from airflow_dynamic_tables.services.stages.marks import leave_mark, other_marks, shared
from airflow_dynamic_tables.services.stages.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.stages.settling import reconcile
from airflow_dynamic_tables.services.workspace import Workspace

MOST_COMMITS = 16
"""How many compactions of a table one maintenance makes: each reads some hundred MB, and the next maintenance goes on."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """Files and bytes of a partition before and after a compaction."""

    partition: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    why_not: str | None
    """Why small files were left."""


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
        registered = look_up(workspace, identifier)
    except NotFoundError:
        return Compacted()
    due = registered.lake_table.scattered(limits, is_cheap=is_cheap)
    if not due:
        return Compacted()
    leave_mark(workspace, registered)
    if strangers := other_marks(workspace, registered):
        return Compacted(left=(shared(identifier, strangers),))
    return sum((_round(workspace, registered, partitions, limits) for partitions in due[:MOST_COMMITS]), Compacted())


def count_files(workspace: Workspace, identifier: TableIdentifier, limits: Limits = DEFAULT_LIMITS) -> list[PartitionFiles]:
    """How many files each partition of a dynamic table has, and which are due to be compacted; changes nothing.

    :raises NotFoundError: when there is no such dynamic table.
    :raises UnsupportedError: when nothing of it can be compacted; says why.
    """
    registered = look_up(workspace, identifier)
    try:
        counted = registered.lake_table.count_files(limits)
    except UnsupportedError as error:
        raise UnsupportedError(f"{identifier} is not compacted. {error}") from error
    if strangers := other_marks(workspace, registered):
        raise UnsupportedError(f"{identifier} is not compacted. {shared(identifier, strangers)}")
    return counted


def _round(workspace: Workspace, registered: RegisteredTable, partitions: PartitionSet, limits: Limits) -> Compacted:
    """One compaction, unless a refresh works on the partitions."""
    token = f"compaction-{uuid4()}"
    staged = registered.lake_table.stage(token)
    stage = replace(new_stage(workspace, registered, token, COMPACTION, staged.begin()), partitions=partitions)
    try:
        with staged_write(workspace, Operation.COMPACTION, stage, staged) as write:
            done = write.publish(partial(staged.compact, partitions, limits))
            if done is None:
                return _left(f"{partitions} of {stage.table} has no small files (any more) that are alike, so nothing is done.")
            write.note(ending=Ending.COMMITTED)
            reconcile(workspace, token)
            trace(Step.COMPLETED, token)
    except CommitUnknownError:
        raise
    except (ConflictError, StageRejectedError) as error:
        return _left(f"{partitions} of {stage.table} is not compacted: {error}")
    log.info("%s of %s: %s files became %s.", partitions, stage.table, done.files, done.made)
    return done


def _left(why: str) -> Compacted:
    log.info("%s", why)
    return Compacted(left=(why,))
