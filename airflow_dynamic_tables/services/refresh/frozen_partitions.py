"""Frozen partitions: those that refreshes leave as they are, by the ``frozen`` condition of their table.

``now`` in the condition is the latest schedule time: that of the refresh, or the time up to which the table is fresh, if that is
later. So every attempt of a refresh decides equally, and a refresh for an earlier time thaws nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.frozen import Calendar, FrozenCondition, comparisons, holds
from airflow_dynamic_tables.core.refresh.source_changes import MadePartitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import parse_frozen
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace


@dataclass(frozen=True, slots=True)
class FrozenPartitions:
    """The frozen partitions of a table at a time: those for which its condition holds.

    ``present`` are the partitions of the table, by their texts; ``None`` if they are unknown.
    """

    condition: FrozenCondition
    calendar: Calendar
    made: MadePartitions
    present: Collection[str] | None
    _known: list[Mapping[str, str]] = field(default_factory=list, compare=False)

    @property
    def keys(self) -> set[str]:
        """The partition keys in the condition."""
        return {comparison.key for comparison in comparisons(self.condition)}

    def include(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether a partition is frozen. One with other rows of a frozen partition is, too."""
        return holds(self.condition, spec, self.calendar) is not False

    def is_hole(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether a partition has no rows and no refresh of it was made, so that a missed tick may fill it."""
        if self.present is None or self.made.is_named(spec):
            return False
        return not any(spec.items() <= one.items() for one in self._specs())

    def split(self, partitions: PartitionSet) -> tuple[PartitionSet, PartitionSet]:
        """Return the partitions that are not frozen, and those that are."""
        frozen = [spec for spec in partitions if self.include(spec)]
        kept = [spec for spec in partitions if spec not in frozen] if frozen else partitions
        return PartitionSet.of(kept), PartitionSet.of(frozen)

    def _specs(self) -> list[Mapping[str, str]]:
        if not self._known:
            self._known.extend(map(parse_spec, self.present or ()))
        return self._known


def frozen_partitions(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> FrozenPartitions | None:
    """Return the partitions that a refresh leaves as they are; ``None`` if it may replace all of the table.

    Nothing of a table without a version is frozen.
    """
    return None if request.thaws else frozen_at(workspace, request.table, registered, request.latest_time)


def frozen_at(workspace: Workspace, table: DynamicTable, registered: RegisteredTable, time: datetime) -> FrozenPartitions | None:
    """Return the partitions of a table that are frozen at a time; ``None`` if it has no version, or no frozen partitions."""
    current = registered.current()
    if table.frozen is None or current is None:
        return None
    fresh = fresh_until(workspace, current)
    calendar = Calendar(table.formatters, table.timezone, max(time, fresh) if fresh is not None else time)
    state = registered.loaded.read().state
    present = state.partitions if state is not None else None
    return FrozenPartitions(parse_frozen(table.frozen), calendar, workspace.ledger.made_partitions(table.identifier), present)


def without_frozen(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, partitions: PartitionSet
) -> tuple[PartitionSet, PartitionSet]:
    """Return the partitions that a refresh which is not incremental may replace, and the frozen ones that it leaves out.

    :raises UnsupportedError: if a user asked for frozen partitions, or all rows would be replaced.
    """
    frozen = frozen_partitions(workspace, request, registered) if not partitions.is_empty else None
    if frozen is None:
        return partitions, PartitionSet()
    if partitions.is_whole:
        raise UnsupportedError(
            f"{request.table.identifier} has frozen partitions ({request.table.frozen}), so its rows are not all replaced. Name "
            "the partitions to refresh, or replace the frozen ones, too, with: "
            f"dynamic-tables refresh {request.table.identifier} --full-refresh --force"
        )
    is_asked_for = request.partitions is not None or not (request.is_scheduled or request.catches_up)
    kept, left_out = frozen.split(partitions)
    if is_asked_for and not left_out.is_empty:
        raise UnsupportedError(
            f"{left_out.brief} of {request.table.identifier} cannot be refreshed, because frozen: {request.table.frozen}. To "
            f"replace it anyway: dynamic-tables refresh {request.table.identifier} --partition … --force"
        )
    holes = PartitionSet.of(filter(frozen.is_hole, left_out))
    return kept.union(holes), PartitionSet.of(spec for spec in left_out if not holes.covers(spec))
