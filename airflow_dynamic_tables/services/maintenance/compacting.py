"""Compaction: merges many small files of a partition by the protocol of a staged write, without a new version or event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import (
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS, Compacted, Limits, PartitionFiles
from airflow_dynamic_tables.services.outcomes import Ending, Operation
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import COMPACTION
from airflow_dynamic_tables.services.writes.owner_markers import other_markers, shared, write_marker
from airflow_dynamic_tables.services.writes.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.writes.settling import reconcile

MOST_COMMITS = 16
"""Maximum number of compactions of a table per maintenance. Each reads some hundred MB; the next maintenance continues."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """Files and bytes of a partition before and after a compaction."""

    partition: Mapping[str, str | None]
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    why_not: str | None
    """Why small files were left."""


def compact(
    workspace: Workspace, identifier: TableIdentifier, limits: Limits = DEFAULT_LIMITS, *, is_cheap: bool = False
) -> Compacted:
    """Compact the small files of a dynamic table where there are too many; other tables are left alone.

    Safe concurrently with refreshes, which take precedence: partitions being refreshed are skipped, and a new refresh aborts the
    compaction. A table that another installation refreshes, too, is left alone, because its refreshes are not visible here.

    :param is_cheap: stop early if few files were added since the last compaction.
    :raises CommitUnknownError: if it is unknown whether a commit landed; the next sweep resolves it.
    :raises CatalogUnavailableError: if the catalog or metadata cannot be read.
    """
    try:
        registered = workspace.look_up(identifier)
    except NotFoundError:
        return Compacted()
    due = registered.lake_table.scattered(limits, is_cheap=is_cheap)
    if not due:
        return Compacted()
    write_marker(workspace, registered)
    if strangers := other_markers(workspace, registered):
        return Compacted(left=(shared(identifier, strangers),))
    return sum((_round(workspace, registered, partitions, limits) for partitions in due[:MOST_COMMITS]), Compacted())


def count_files(workspace: Workspace, identifier: TableIdentifier, limits: Limits = DEFAULT_LIMITS) -> list[PartitionFiles]:
    """Return the number of files of each partition of a dynamic table, and which are due for compaction; changes nothing.

    :raises NotFoundError: if there is no such dynamic table.
    :raises UnsupportedError: if it cannot be compacted; the message contains the reason.
    """
    registered = workspace.look_up(identifier)
    try:
        counted = registered.lake_table.count_files(limits)
    except UnsupportedError as error:
        raise UnsupportedError(f"{identifier} is not compacted. {error}") from error
    if strangers := other_markers(workspace, registered):
        raise UnsupportedError(f"{identifier} is not compacted. {shared(identifier, strangers)}")
    return counted


def _round(workspace: Workspace, registered: RegisteredTable, partitions: PartitionSet, limits: Limits) -> Compacted:
    """Run one compaction, unless a refresh holds the partitions."""
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
