"""Change detection: skip a scheduled refresh, and record the table as fresh, if nothing that it depends on has changed.

The state recorded by the refresh that created the rows is compared with the current state of the recipe (query, functions,
settings), of every source, and of the table itself, which other engines may have changed. Unknown state counts as changed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, LateChanges
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError, StaleSourceError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome, notify
from airflow_dynamic_tables.services.refresh.catching_up import caught_up, standing
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.frozen_partitions import without_frozen
from airflow_dynamic_tables.services.refresh.incremental import find_changed
from airflow_dynamic_tables.services.refresh.late_changes import find_late
from airflow_dynamic_tables.services.refresh.planning import Bound, ToDo, bind_inputs
from airflow_dynamic_tables.services.refresh.requests import NEVER, RefreshRequest, Skipped, planned_partitions
from airflow_dynamic_tables.services.refresh.upstream import complete_until
from airflow_dynamic_tables.services.source_progress import Growth, look
from airflow_dynamic_tables.services.tables.rollback import with_undone
from airflow_dynamic_tables.services.tables.source_reads import stretch
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import YIELDING

log = logging.getLogger(__name__)

_LATEST = 50
"""Limit of refreshes read from the history; partitions of older ones are refreshed again."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The partitions of a table that must be refreshed because their inputs changed, and why.

    These are all requested partitions if the changes are unknown. ``version`` is the current version; ``bound`` are the inputs as
    they were compared, by ``comparison``. ``holds`` means that nothing has changed.
    """

    partitions: PartitionSet
    why: str
    version: Version | None = None
    bound: Bound | None = None
    holds: bool = False
    comparison: Comparison | None = None


class _MustRefreshError(Exception):
    """An input has changed or may have changed; the message describes the change."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A refresh without work, and why. ``version`` is the current version if it is valid up to the time of the request."""

    reason: Reason
    version: Version | None = None
    growth: Growth | None = None
    late: LateChanges = NOTHING_LATE


def what_remains(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, current: Version | None
) -> tuple[RefreshRequest, ToDo | Skipped]:
    """Return the request with the missed ticks, and its work. Record the dirty partitions, and a skip if no work remains."""
    since = _last_search(workspace, request, registered)
    began = workspace.now()
    request, requested = requested_work(workspace, request, registered, current)
    try:
        decided = decide(workspace, request, registered, requested)
    except StaleSourceError:
        if requested.partitions.is_empty:
            raise
        return request, requested  # the refresh meets the same error, and records it
    found = decided.late.found
    if found is not None and since is not None:
        since = workspace.ledger.record_dirty(request.table.identifier, found, began, since)
    if isinstance(decided, Idle):
        return request, skip(workspace, request, decided.reason, decided.version, growth=decided.growth, late=decided.late)
    return request, replace(decided, search=since)


def _last_search(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> int | None:
    """Return the number of the last search for the dirty partitions of a table; ``None`` if it is never searched."""
    if not registered.entry.partition_keys or request.batch is not None:
        return None
    finding = workspace.ledger.dirty_finding(request.table.identifier)
    return finding.number if finding is not None else 0


def requested_work(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, current: Version | None
) -> tuple[RefreshRequest, ToDo]:
    """Return the request with the missed ticks, and the partitions that it asks for, whether they changed or not."""
    growth = look(workspace, request.table, request.sources, current)
    request = caught_up(workspace, request, registered) if growth is None else request
    request = replace(request, complete_until=complete_until(workspace, request, growth))
    partitions = planned_partitions(request, registered.columns, growth)
    if request.partitions is None:
        partitions = with_undone(partitions, registered, request.table.partition_keys)
    if request.table.frozen is None or request.is_incremental or request.only_dirty:
        return request, ToDo(partitions, growth)
    partitions, frozen = without_frozen(workspace, request, registered, partitions)
    return request, ToDo(partitions, growth, frozen=frozen)


def decide(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, to_do: ToDo) -> ToDo | Idle:
    """Return the work that remains of a refresh: if it is scheduled, without unchanged partitions. It has no side effects.

    :raises UnsupportedError: if all rows of an ``incremental_strict`` table must be replaced.
    :raises StaleSourceError: if a source did not change for too long.
    """
    if request.only_dirty:
        return _dirty(workspace, request, registered)
    if request.is_incremental and to_do.growth is None:
        return _incremental(workspace, request, registered)
    if to_do.partitions.is_empty and not to_do.frozen.is_empty:
        return Idle(Reason(ReasonCode.FROZEN, f"{to_do.frozen.brief} stay as they are, because frozen"), registered.current())
    remaining = _without_unchanged(workspace, request, registered, to_do)
    if isinstance(remaining, Idle) or (nothing := _nothing_to_do(request, remaining)) is None:
        return remaining
    return Idle(Reason(ReasonCode.NOTHING_TO_REFRESH, nothing), growth=remaining.growth)


def _incremental(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> ToDo | Idle:
    """Return the work of an incremental refresh; none if the table equals its query."""
    to_do = find_changed(workspace, request, registered)
    if not to_do.partitions.is_empty or to_do.change is None:
        return to_do
    stale = to_do.bound.stale if to_do.bound is not None else ""
    why = "; ".join(filter(None, (to_do.change.text, str(to_do.late), stale)))
    return Idle(Reason(ReasonCode.UNCHANGED, why), registered.current(), late=to_do.late)


def _dirty(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> ToDo | Idle:
    """Return the work of a refresh of the partitions whose sources changed after they were made."""
    nothing = Reason(ReasonCode.NOTHING_TO_REFRESH, "no partition is known to be dirty")
    current = registered.current()
    if current is None:
        return Idle(nothing)
    bound = bind_inputs(workspace, request, WHOLE_TABLE)
    # At this time, the query may return no rows for older partitions.
    late = (
        NOTHING_LATE
        if bound.times
        else find_late(workspace, request, registered, Comparison(workspace, registered, bound, request.sources))
    )
    if late.partitions.is_empty:
        return Idle(replace(nothing, text="; ".join(filter(None, (nothing.text, str(late))))), late=late)
    return ToDo(late.partitions, None, bound, current.token, late)


def _nothing_to_do(request: RefreshRequest, to_do: ToDo) -> str | None:
    """Return why there is nothing to refresh, or why the sources are unreadable while being rewritten; ``None`` otherwise."""
    growth = to_do.growth
    if growth is not None and growth.obstacle is not None and request.partitions is None and not request.full_refresh:
        return growth.obstacle
    if to_do.partitions.is_empty:
        return f"no new complete partition: {growth}" if growth else "there is nothing to refresh"
    return None


def _without_unchanged(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, to_do: ToDo) -> ToDo | Idle:
    """With time partitions and watermark sources, only the watermarks determine which partitions to refresh."""
    growth = to_do.growth
    asked = to_do.partitions
    by_watermark = growth is not None and bool(request.table.formatters)
    if not request.is_scheduled or (growth is not None and growth.obstacle is not None) or (by_watermark and not asked.is_empty):
        return to_do
    if by_watermark:
        why = f"no new complete partition: {growth}"
        moved = Moved(NO_PARTITIONS, why, registered.current(), holds=True)
    else:
        moved = detect_changes(workspace, request, registered, asked, growth)
    late = _late(workspace, request, registered, moved) if growth is None else NOTHING_LATE
    if late.found is not None:
        late = replace(late, found=late.found.with_more(moved.partitions))
    if moved.holds and moved.version is not None and late.to_refresh.is_empty:
        stale = moved.bound.stale if moved.bound is not None else ""
        why = "; ".join(filter(None, (moved.why, to_do.without_frozen, str(late), stale)))
        return Idle(Reason(ReasonCode.UNCHANGED, why), moved.version, growth, late)
    partitions = moved.partitions.union(late.to_refresh)
    log.info("Building %s of %s: %s.", partitions.brief, request.table.identifier, late if moved.holds else moved.why)
    # The binding of a source with a watermark depends on the partitions that are replaced.
    is_bound_for_these = growth is None or moved.partitions == asked
    base = moved.version.token if moved.version is not None else None
    return ToDo(partitions, growth, moved.bound if is_bound_for_these else None, base, late, frozen=to_do.frozen)


def _late(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, moved: Moved) -> LateChanges:
    """Return the late changes of a scheduled refresh that could compare its sources, with a warning about unrepaired ones."""
    if moved.comparison is None:
        return NOTHING_LATE
    late = find_late(workspace, request, registered, moved.comparison)
    if late.to_refresh.is_empty and not late.partitions.is_empty:
        # A source that feeds all partitions often changes every day.
        log.log(logging.INFO if late.partitions.is_whole else logging.WARNING, "%s: %s.", request.table.identifier, late)
    return late


def detect_changes(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, asked: PartitionSet, growth: Growth | None = None
) -> Moved:
    """Return which partitions of a scheduled refresh have changed inputs, without side effects and without Spark."""
    version = registered.current()
    if version is None:
        return Moved(asked, "it has no version yet")
    bound: Bound | None = None
    comparison: Comparison | None = None
    try:
        bound = bind_inputs(workspace, request, asked, growth)
        if why := bound.why_it_varies:
            return Moved(asked, why, version, bound)
        compared = Comparison(workspace, registered, bound, request.sources)
        # At this time, the query may return other rows for older partitions, or none.
        comparison = None if bound.times else compared
        history = _standing(workspace, request, registered, version)
        found = [(spec, compared.why_moved(spec, history)) for spec in asked or WHOLE_TABLE]
    except _MustRefreshError as reason:
        return Moved(asked, str(reason), version, bound, comparison=comparison)
    except StaleSourceError:
        raise
    except (DynamicTableError, OSError) as error:
        # The refresh meets the same error and handles it.
        return Moved(asked, f"cannot tell whether its sources changed: {error}", version, bound)
    moved = [(spec, why) for spec, why in found if why]
    if moved:
        partitions = asked if asked.is_empty else PartitionSet.of(spec for spec, _ in moved)
        return Moved(partitions, moved[0][1] or "", version, bound, comparison=comparison)
    made = " and ".join(map(str, sorted(compared.versions)))
    why = f"nothing that it reads has moved since version {made}: {bound.versions}"
    if excluded := compared.why_without_effect:
        why = f"no change since version {made} has an effect: {excluded}"
    return Moved(NO_PARTITIONS, why, version, bound, holds=True, comparison=comparison)


def skip(
    workspace: Workspace,
    request: RefreshRequest,
    reason: Reason,
    version: Version | None = None,
    growth: Growth | None = None,
    late: LateChanges = NOTHING_LATE,
) -> Skipped:
    """Skip a refresh that took no lease: record it, and notify the listeners.

    :param version: the current version if it is valid up to the time of the request, so that the table is fresh up to then.
    :param late: partitions that stay out of date.
    """
    skipped = record_skip(workspace, request, reason, version, growth=growth)
    action = RefreshAction.SKIP if version is None else RefreshAction.NO_DATA
    left = len(late.partitions) if request.searches and version is not None and not late.partitions.is_whole else None
    table = request.table.identifier
    outcome = WriteOutcome(Operation.REFRESH, Ending.SKIPPED, request.token, table, NO_PARTITIONS, action=action, left=left)
    notify(workspace.listeners, replace(outcome, reason=reason))
    return skipped


def record_skip(
    workspace: Workspace,
    request: RefreshRequest,
    reason: Reason,
    version: Version | None = None,
    instead_of: str = "",
    growth: Growth | None = None,
) -> Skipped:
    """Record a skip in the history. Consecutive skips of scheduled refreshes share one record.

    :param version: see :func:`skip`.
    :param instead_of: token of a refresh that was skipped at its commit, whose record is replaced by this one.
    """
    is_line = request.is_scheduled or request.batch is not None
    token = _line(workspace, request, reason, version) if is_line else request.token
    skipped = _skipped(workspace, replace(request, token=token), reason, version, growth)
    if is_line:
        workspace.ledger.extend(skipped, instead_of)
    else:
        workspace.ledger.record(skipped)
    if version is None:
        return Skipped(reason)
    if request.unbroken:
        workspace.ledger.update_refresh(version.token, unbroken=True)  # this is recorded with no other version
    return Skipped(reason, request.schedule_time)


def _skipped(
    workspace: Workspace, request: RefreshRequest, reason: Reason, version: Version | None, growth: Growth | None
) -> Refresh:
    now = workspace.now()
    skipped = Refresh(
        token=request.token,
        table=request.table.identifier,
        action=RefreshAction.SKIP,
        reason=reason.text,
        reason_code=reason.code,
        state=RefreshState.SKIPPED,
        schedule_time=request.schedule_time,
        started_at=now,
        finished_at=now,
        partitions=NO_PARTITIONS,
        complete_until=request.complete_until,
        watermark=growth.reached_at if growth is not None else None,
    )
    if version is None:
        return skipped
    return replace(
        skipped,
        action=RefreshAction.NO_DATA,
        data_timestamp=None if request.complete_until == NEVER else request.complete_until or request.schedule_time,
        version=version.number,
        snapshot=version.snapshot,
        sources=version.sources,
    )


def _line(workspace: Workspace, request: RefreshRequest, reason: Reason, version: Version | None) -> str:
    """Return the token of the shared history record; a new record begins after a refresh that had a stage."""
    if version is not None:
        return stretch(version.token)
    if request.batch is not None:
        return f"{request.batch.position.stream}-{reason.code.lower()}"
    last = workspace.ledger.last_stage(request.table.identifier)
    since = last.token if last is not None else uuid5(NAMESPACE_URL, str(request.table.identifier)).hex
    return f"{since}-{reason.code.lower()}"


def _standing(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, version: Version) -> list[Refresh]:
    """Return the refreshes that created the current version and earlier ones, newest first.

    :raises _MustRefreshError: if the table may have changed since, or ``skip_unchanged`` is false.
    """
    ledger = workspace.ledger
    identifier = request.table.identifier
    if not request.table.skip_unchanged:
        raise _MustRefreshError("skip_unchanged is false")
    if workspace.now() < request.schedule_time:
        raise _MustRefreshError("what is read now may not be all that comes before its schedule time")
    if registered.loaded.undone():
        raise _MustRefreshError("another engine changed the table")
    unfinished = [stage for stage in ledger.list_stages(identifier) if stage.owner not in YIELDING]
    opened = ledger.last_stage(identifier, but_of=YIELDING)
    refreshes = [refresh for refresh in ledger.list_refreshes(identifier, _LATEST) if refresh.state is not RefreshState.SKIPPED]
    last = {refresh.token for refresh in refreshes[:1]}
    # Clocks of several machines give no reliable order; the ledger does, as long as it has the stage.
    last |= {opened.token} if opened is not None else set()
    if unfinished or last != {version.token}:
        raise _MustRefreshError("its last refresh did not succeed")
    return standing(refreshes, version.number)
