"""Live plans: what a scheduled refresh would do now, with its causes, from the current state of the table and its sources."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.refresh.change_detection import Idle, decide, requested_work
from airflow_dynamic_tables.services.refresh.planning import ToDo
from airflow_dynamic_tables.services.refresh.preview import TablePlan
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, action_of, overtaken
from airflow_dynamic_tables.services.tables.entries import registered_or_new
from airflow_dynamic_tables.services.tables.source_reads import fresh_until, pace_of
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

_LATEST = 100
"""Limit of refreshes read from the history for the expected duration."""


@dataclass(frozen=True, slots=True)
class LivePlan(TablePlan):
    """A plan with the work that is due now."""

    action: RefreshAction | None = None
    """Null: the refresh would fail, for the reason given."""
    reason_code: ReasonCode | None = None
    reason: str = ""
    replaced: PartitionSet = NO_PARTITIONS
    """The partitions that would be replaced. Empty: the complete table; null: none."""
    left_dirty: PartitionSet = NO_PARTITIONS
    """Other partitions whose sources changed, which the refresh would leave. Empty: any partition may be; null: none."""
    expected_seconds: float | None = None
    """The duration of the earlier refresh with the most similar number of partitions; null: there was none."""
    frozen_changed: int | None = None
    """The number of frozen partitions whose sources changed; null: the table has no frozen partitions."""
    not_merged: str | None = None
    """Why all rows of an incremental table's partitions are computed, not only those added to a source; null: they are not, or a
    merge would cost more, as the reason says."""
    downstream: tuple[str, ...] = ()
    """The tables that read this one, which a new version would make out of date."""


def live_plan(workspace: Workspace, plan: TablePlan, table: DynamicTable, definitions: Definitions) -> LivePlan:
    """Complete a plan with the work that is due now, without side effects."""
    request = RefreshRequest(
        table, definitions.sources, plan.schedule_time, token="", owner="", catches_up=True, is_scheduled=True
    )
    found = dict(items(plan))
    try:
        registered = registered_or_new(workspace, table)
        request, decided = _decided(workspace, request, registered)
    except (DynamicTableError, OSError) as error:
        return LivePlan(**found, reason=str(error))
    if table.frozen is not None:
        found["frozen_changed"] = len(decided.late.frozen)
    found["left_dirty"] = decided.late.to_leave
    if isinstance(decided, Idle):
        action = RefreshAction.NO_DATA if decided.version is not None else RefreshAction.SKIP
        return LivePlan(**found, action=action, reason_code=decided.reason.code, reason=decided.reason.text)
    action, reason = action_of(request, decided.partitions, registered.current(), merges=decided.merging is not None)
    reason = decided.divided(table).explained(reason)
    return LivePlan(
        **found,
        action=action,
        reason_code=reason.code,
        reason=reason.text,
        replaced=decided.partitions,
        expected_seconds=_expected_seconds(
            workspace.ledger.list_refreshes(table.identifier, _LATEST), action, decided.partitions
        ),
        not_merged=decided.not_merged or None,
        downstream=tuple(map(str, definitions.downstream(table.identifier))),
    )


def _decided(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> tuple[RefreshRequest, ToDo | Idle]:
    current = registered.current()
    request, requested = requested_work(workspace, request, registered, current)
    if skipped := overtaken(request, requested.partitions, current, fresh_until(workspace, current)):
        return request, Idle(skipped.reason)
    return request, decide(workspace, request, registered, requested)


def _expected_seconds(refreshes: list[Refresh], action: RefreshAction, partitions: PartitionSet) -> float | None:
    """Return the duration of the latest refresh with the most similar number of partitions; ``None`` if there was none."""
    is_whole = action is not RefreshAction.PARTITIONS
    similar = [
        refresh
        for refresh in refreshes
        if refresh.is_made_of_sources and refresh.seconds and refresh.partitions.is_whole == is_whole
    ]
    closest = min(similar, key=lambda refresh: abs(len(refresh.partitions) - len(partitions)), default=None)
    return pace_of(closest).seconds if closest is not None else None
