"""Late changes: partitions older than the scheduled ones whose sources changed after the partitions were made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from airflow_dynamic_tables.core.partition_dates import normalised, scheduled_partitions, start_of
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import LatePolicy
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, DirtyPartitions, LateChanges
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import HOLDING
from airflow_dynamic_tables.services.refresh.catching_up import MOST_PARTITIONS
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.dirty_partitions import DirtySearch, Spec
from airflow_dynamic_tables.services.refresh.frozen_partitions import FrozenPartitions, frozen_partitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import is_abandoned

_INSTANT = timedelta(microseconds=1)


def find_late(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, comparison: Comparison) -> LateChanges:
    """Return the late changes of a table with time partitions, without side effects.

    Partitions whose refreshes the ledger does not know are omitted, because an earlier release made them.
    """
    table = request.table
    policy = LatePolicy.REFRESH if request.only_dirty else table.late
    if policy is LatePolicy.IGNORE or not table.formatters or table.is_continuous:
        return NOTHING_LATE
    made = workspace.ledger.made_partitions(table.identifier)
    scheduled = scheduled_partitions(request.schedule_time, table.freshness, table.formatters, table.timezone)
    starts = [start_of(spec, table.formatters) for spec in scheduled]
    end = max(starts) + _INSTANT
    before = end if request.only_dirty else min(starts)
    frozen = frozen_partitions(workspace, request, registered)
    keys = tuple(table.formatters)
    every = comparison.mappings.all_partitions(keys) if frozen is not None else None
    search = DirtySearch(comparison, made, keys, every)
    if (why := search.why_any()) and every is None:
        # Without frozen partitions, all rows are replaced. With them, it is not known which other ones to replace.
        found = DirtyPartitions(WHOLE_TABLE, 1, end)
        late = LateChanges(WHOLE_TABLE, why, policy if frozen is None else LatePolicy.REPORT, found=found)
    else:
        late = _named(registered, table, policy, frozen, search.dirty(partial(_is_before, table, before)), end)
    if late.partitions.is_empty:
        return late
    return late if request.only_dirty else _without_held(workspace, request, late)


def _named(
    registered: RegisteredTable,
    table: DynamicTable,
    policy: LatePolicy,
    frozen: FrozenPartitions | None,
    dirty: Iterable[tuple[Spec, str]],
    end: datetime,
) -> LateChanges:
    """Return dirty partitions in the order of their times, as many as one commit may replace, and the frozen ones of them.

    :param end: the end of the partitions that are compared, here or by the caller.
    """
    found = sorted(dirty, key=lambda each: start_of(each[0], table.formatters))
    thawed = [each for each in found if frozen is None or not frozen.include(each[0])]
    specs = PartitionSet.of(spec for spec, _ in thawed[:MOST_PARTITIONS])  # the next refresh continues with the others
    stay = PartitionSet.of(spec for spec, _ in found if frozen is not None and frozen.include(spec))
    partitions = normalised(specs, registered.columns)
    every = DirtyPartitions(partitions, len(partitions) + len(thawed) - len(specs), end)
    return LateChanges(partitions, thawed[0][1] if thawed else "", policy, stay, every)


def _without_held(workspace: Workspace, request: RefreshRequest, late: LateChanges) -> LateChanges:
    """Return late changes without those that another refresh, such as a backfill, is replacing now."""
    held = workspace.ledger.list_stages(request.table.identifier, HOLDING)
    stages = [stage for stage in held if stage.owner != request.owner and not is_abandoned(workspace, stage)]
    free = [spec for spec in late.partitions if not any(stage.partitions.overlaps(PartitionSet.of([spec])) for stage in stages)]
    return replace(late, partitions=PartitionSet.of(free))


def _is_before(table: DynamicTable, before: datetime, spec: Spec) -> bool:
    """Return whether a partition starts before a time; null and values that another engine wrote do not."""
    try:
        return start_of(spec, table.formatters) < before
    except ValueError:
        return False
