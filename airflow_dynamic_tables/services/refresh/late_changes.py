"""Late changes: partitions older than the scheduled ones whose sources changed after the partitions were made."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from airflow_dynamic_tables.core.partition_dates import normalised, scheduled_partitions, start_of
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import LatePolicy
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, LateChanges
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import HOLDING
from airflow_dynamic_tables.services.refresh.catching_up import MOST_PARTITIONS
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.dirty_partitions import DirtySearch, Spec
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

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
    before = max(starts) + _INSTANT if request.only_dirty else min(starts)
    search = DirtySearch(table, comparison, made, tuple(table.formatters))
    if why := search.why_any():
        late = LateChanges(WHOLE_TABLE, why, policy)
    elif found := list(search.dirty(partial(_is_before, table, before))):
        found.sort(key=lambda each: start_of(each[0], table.formatters))
        specs = PartitionSet.of(spec for spec, _ in found[:MOST_PARTITIONS])  # the next refresh continues with the others
        late = LateChanges(normalised(specs, registered.columns), found[0][1], policy)
    else:
        return NOTHING_LATE
    return late if request.only_dirty else _without_held(workspace, request, late)


def _without_held(workspace: Workspace, request: RefreshRequest, late: LateChanges) -> LateChanges:
    """Return late changes without those that another refresh, such as a backfill, is replacing now."""
    stages = workspace.ledger.list_stages(request.table.identifier, HOLDING)
    free = [spec for spec in late.partitions if not any(stage.partitions.overlaps(PartitionSet.of([spec])) for stage in stages)]
    return replace(late, partitions=PartitionSet.of(free))


def _is_before(table: DynamicTable, before: datetime, spec: Spec) -> bool:
    """Return whether a partition starts before a time; null and values that another engine wrote do not."""
    try:
        return start_of(spec, table.formatters) < before
    except ValueError:
        return False
