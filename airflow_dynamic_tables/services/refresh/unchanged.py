"""Whether anything moved that a table is made of. If nothing did, a refresh is left out, and the table is fresh all the same.

Compared is what the refresh that made the rows recorded with what is there now: the recipe (query, functions, settings), every
source, and the rows of the table itself, which others may have changed. What nobody knows has moved.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.actions import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.moved import difference
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.planning import Attempt, Bound, bind
from airflow_dynamic_tables.services.refresh.preview import why_it_varies
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.stages.leases import COMPACTION
from airflow_dynamic_tables.services.tables.freshness import stretch
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moved:
    """Which partitions of a table have to be made anew because what they are made of has moved, and why.

    They are empty when nothing has, and all that were asked for when nobody knows. ``version`` is the table's current one.
    """

    partitions: PartitionSet
    why: str
    version: Version | None = None


class _MovedError(Exception):
    """Something has moved, or may have; the message says what."""


def left_out(
    workspace: Workspace, request: RefreshRequest, table: LakeTable, asked: PartitionSet, growth: Growth | None
) -> Skipped | None:
    """Leave a scheduled refresh out, and say so in the history; ``None`` when it has to be done, or somebody asked for it.

    :param asked: the partitions that it would replace.
    :param growth: the sources that have a watermark: of time partitions that alone says which have to be made.
    """
    by_watermark = growth is not None and bool(request.table.formatters)
    if not request.is_scheduled or (growth is not None and growth.obstacle is not None) or (by_watermark and not asked.is_empty):
        return None
    if by_watermark:
        moved = Moved(NO_PARTITIONS, f"no partition is complete that the table does not have: {growth}", table.current())
    else:
        moved = what_moved(workspace, request, table, asked, growth)
    if moved.version is not None and moved.partitions.is_empty:
        return leave_out(workspace, request, moved, moved.version)
    log.info("The refresh of %s is not left out: %s.", request.table.identifier, moved.why)
    return None


def what_moved(
    workspace: Workspace, request: RefreshRequest, table: LakeTable, asked: PartitionSet, growth: Growth | None = None
) -> Moved:
    """Which of the partitions that a scheduled refresh would replace have to be replaced. Only looks, and needs no Spark.

    :param asked: those that it would replace, see :func:`~airflow_dynamic_tables.services.refresh.planning.planned_partitions`.
    :param growth: the sources that have a watermark.
    """
    try:
        version, refresh = _made_last(workspace, request, table)
        bound = _bound(workspace, request, asked, growth)
        if refresh.recipe != bound.recipe:
            raise _MovedError("its definition changed, or what that calls")
        return Moved(NO_PARTITIONS, _still(workspace, table, refresh, bound, asked), version)
    except _MovedError as moved:
        return Moved(asked, str(moved))
    except (DynamicTableError, OSError) as error:
        # The refresh itself meets the same, and knows what to do.
        return Moved(asked, f"it cannot be told whether anything moved: {error}")


def leave_out(workspace: Workspace, request: RefreshRequest, moved: Moved, version: Version) -> Skipped:
    """Write into the history up to when a version still holds; one line for as long as it does."""
    now = workspace.now()
    found = Refresh(
        token=stretch(version.token),
        table=request.table.identifier,
        action=RefreshAction.NO_DATA,
        reason=moved.why,
        reason_code=ReasonCode.UNCHANGED,
        state=RefreshState.SKIPPED,
        schedule_time=request.schedule_time,
        started_at=now,
        finished_at=now,
        data_timestamp=request.schedule_time,
        version=version.number,
        snapshot=version.snapshot,
        partitions=NO_PARTITIONS,
        sources=version.sources,
    )
    workspace.ledger.extend(found)
    return Skipped(Reason(ReasonCode.UNCHANGED, moved.why))


def remember(workspace: Workspace, attempt: Attempt, version: Version) -> None:
    """Keep what a commit left of the table, by which changes of others are noticed; without that no refresh is left out."""
    identifier = attempt.request.table.identifier
    if not attempt.request.table.skip_unchanged or attempt.request.batch is not None:
        return
    token = attempt.request.token
    try:
        left = attempt.table.read().state
        if left is not None and left.version == version.snapshot:
            states = workspace.ledger.source_states(token)
            workspace.ledger.record_source_states(token, {**states, str(identifier): left})
    except Exception:
        log.exception("What %s is like now could not be kept; its next refresh is not left out.", identifier)


def _made_last(workspace: Workspace, request: RefreshRequest, table: LakeTable) -> tuple[Version, Refresh]:
    """The current version, and the refresh that made it.

    :raises _MovedError: when there is none, or something came after it.
    """
    ledger = workspace.ledger
    identifier = request.table.identifier
    if not request.table.skip_unchanged:
        raise _MovedError("skip_unchanged is false")
    if workspace.now() < request.schedule_time:
        raise _MovedError("what is read now may not be all that comes before its schedule time")
    version = table.current()
    if version is None:
        raise _MovedError("it has no version yet")
    if table.undone() is not None:
        raise _MovedError("another engine changed the table")
    last = ledger.last_stage(identifier, but_of=COMPACTION)
    unfinished = [stage for stage in ledger.list_stages(identifier) if stage.owner != COMPACTION]
    if unfinished or (last is not None and last.token != version.token):
        raise _MovedError("its last refresh did not come to a good end")
    refresh = ledger.get_refresh(version.token)
    if refresh is None or refresh.state is not RefreshState.SUCCEEDED or refresh.action is RefreshAction.ROLLBACK:
        raise _MovedError(f"no refresh made version {version.number}, as far as the history goes")
    return version, refresh


def _bound(workspace: Workspace, request: RefreshRequest, asked: PartitionSet, growth: Growth | None) -> Bound:
    """What the query reads now.

    :raises _MovedError: when the same rows might become others.
    """
    bound = bind(workspace, request, asked, growth)
    if why := why_it_varies(bound.table):
        raise _MovedError(why)
    return bound


def _still(workspace: Workspace, table: LakeTable, refresh: Refresh, bound: Bound, asked: PartitionSet) -> str:
    """What has not moved, as a sentence without its full stop.

    :raises _MovedError: when something has.
    """
    if not all(map(refresh.partitions.covers, asked)):
        raise _MovedError(f"its last refresh made {refresh.partitions}, and not {asked}")
    states = workspace.ledger.source_states(refresh.token)
    if other := difference(states.get(str(bound.table.identifier)), table.read().state):
        raise _MovedError(f"the table is not as version {refresh.version} left it: {other.why}")
    for source in bound.sources:
        if other := difference(states.get(source.identifier), source.state):
            raise _MovedError(f"{source.identifier} moved: {other.why}")
    names = ", ".join(f"{source.identifier} ({source.version})" for source in bound.sources)
    return f"nothing that it reads has moved since version {refresh.version}: {names or 'it reads no table'}"
