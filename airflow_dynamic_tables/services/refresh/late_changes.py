"""Late changes: partitions older than the scheduled ones whose sources changed after the partitions were made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from airflow_dynamic_tables.core.partition_dates import normalised, scheduled_partitions, start_of
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.reasons import LatePolicy, OnChange
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, LateChanges, MadePartitions, SourceState, sorted_text
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import HOLDING
from airflow_dynamic_tables.services.refresh.catching_up import MOST_PARTITIONS
from airflow_dynamic_tables.services.refresh.comparison import Comparison, SourceChange
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

Spec = Mapping[str, str]
"""The time partition keys of a partition, with their values."""

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
    search = _Search(table, comparison, made, max(starts) + _INSTANT if request.only_dirty else min(starts))
    if why := search.why_any():
        late = LateChanges(WHOLE_TABLE, why, policy)
    elif found := search.late(registered.loaded.read().state):
        specs = PartitionSet.of(spec for _, spec, _ in found[:MOST_PARTITIONS])  # the next refresh continues with the others
        late = LateChanges(normalised(specs, registered.columns), found[0][2], policy)
    else:
        return NOTHING_LATE
    return late if request.only_dirty else _without_held(workspace, request, late)


def _without_held(workspace: Workspace, request: RefreshRequest, late: LateChanges) -> LateChanges:
    """Return late changes without those that another refresh, such as a backfill, is replacing now."""
    stages = workspace.ledger.list_stages(request.table.identifier, HOLDING)
    free = [spec for spec in late.partitions if not any(stage.partitions.overlaps(PartitionSet.of([spec])) for stage in stages)]
    return replace(late, partitions=PartitionSet.of(free))


class _Search:
    """Search for late changes of the partitions of a table.

    :param before: only partitions that start earlier are late.
    """

    def __init__(self, table: DynamicTable, comparison: Comparison, made: MadePartitions, before: datetime) -> None:
        self._comparison = comparison
        self._made = made
        self._formatters = table.formatters
        self._on_change = table.on_change
        self._before = before
        self._affected: dict[int, set[str] | None] = {}

    def why_any(self) -> str:
        """Return the change that may have brought rows of any partition of a table that was made completely; empty if none."""
        if "" not in self._made.refreshes:
            return ""  # it has the partitions that were scheduled or requested, and no others
        changes = self._changes(self._made.token({}))
        return next((change.why for change in changes if self._specs(change) is None), "")

    def late(self, own: SourceState | None) -> list[tuple[datetime, Spec, str]]:
        """Return the late partitions with their starts and their first changes, oldest first.

        :param own: the state of the table.
        """
        found: list[tuple[datetime, Spec, str]] = []
        for spec in self._candidates(own).values():
            if not self._made.covers(spec):
                continue
            with suppress(ValueError):  # null, or a value that another engine wrote
                start = start_of(spec, self._formatters)
                if start < self._before and (why := self._why(spec)):
                    found.append((start, spec, why))
        return sorted(found, key=lambda each: each[0])

    def _candidates(self, own: SourceState | None) -> dict[str, Spec]:
        """Return the partitions that the table has or had, and those that a source got, by their texts."""
        texts = {*self._made.refreshes, *((own.partitions if own is not None else None) or {})}
        specs: list[Mapping[str, str]] = [parse_spec(text) for text in texts if text]
        if "" in self._made.refreshes:
            for change in self._changes(self._made.token({})):
                specs += self._specs(change) or ()
        known = ({key: spec[key] for key in self._formatters if key in spec} for spec in specs)
        return {sorted_text(spec): spec for spec in known if len(spec) == len(self._formatters)}

    def _why(self, spec: Spec) -> str:
        changes = self._changes(self._made.token(spec))
        return next((change.why for change in changes if self._concerns(change, spec)), "")

    def _concerns(self, change: SourceChange, spec: Spec) -> bool:
        if id(change) not in self._affected:
            specs = self._specs(change)
            self._affected[id(change)] = None if specs is None else {sorted_text(one) for one in specs}
        affected = self._affected[id(change)]
        return self._comparison.concerns(change, spec) if affected is None else sorted_text(spec) in affected

    def _changes(self, token: str | None) -> list[SourceChange]:
        """Return the changes since a refresh, without those of sources that have no versions or that it did not read."""
        changes = self._comparison.changes_since(token)
        is_unknown = not self._comparison.is_known(token)
        compared = (
            change for change in changes if change.has_versions and self._on_change.get(change.source) is not OnChange.IGNORE
        )
        return [change for change in compared if is_unknown or not change.is_new]

    def _specs(self, change: SourceChange) -> list[dict[str, str]] | None:
        return self._comparison.only_in(change, {key: change.keys.get(key, "") for key in self._formatters})
