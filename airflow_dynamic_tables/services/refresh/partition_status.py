"""Status of partitions: which refresh made each of them, and whether it is dirty, frozen, or waits in quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import start_of
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet, describe
from airflow_dynamic_tables.core.refresh.source_changes import DirtyFinding, Made
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import Refresh, StageState
from airflow_dynamic_tables.services.refresh.frozen_partitions import frozen_at
from airflow_dynamic_tables.services.workspace import Workspace

_LATEST = 2_000
"""Limit of refreshes that are read from the history."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a table."""

    name: str
    values: Mapping[str, str]
    exists: bool | None
    """Whether the table has rows of it; null: its format does not list partitions."""
    version: int | None
    """The version that made it; null: unknown, or the table no longer has the rows of that version."""
    refreshed_at: datetime | None
    """When that refresh began."""
    rows: int | None
    """The rows that this refresh wrote; null: it is not known, or it made other partitions, too."""
    dirty: bool | None
    """Whether its sources changed after it was made, as the last refresh that compared them found; null: unknown, or frozen."""
    compared_at: datetime | None
    """When it was compared with its sources, or made, whichever is later; null: whether it is dirty is unknown."""
    frozen: bool
    quarantined: bool
    """Whether a refresh of it waits in quarantine."""


def list_partitions(workspace: Workspace, identifier: TableIdentifier, definition: DynamicTable | None) -> list[PartitionStatus]:
    """Return the partitions that a table has, that refreshes made, and those in quarantine, in the order of their names.

    :param definition: needed for the frozen ones.
    """
    registered = workspace.look_up(identifier)
    keys = registered.entry.partition_keys
    if not keys:
        return []
    stages = workspace.ledger.list_stages(identifier, (StageState.QUARANTINED,))
    specs = [spec for stage in stages for spec in stage.partitions]
    waiting = [{key: NULL_PARTITION if value is None else value for key, value in spec.items()} for spec in specs]
    state = registered.loaded.read().state if registered.current() is not None else None
    present = state.partitions if state is not None else None
    frozen = frozen_at(workspace, definition, registered, workspace.now()) if definition is not None else None
    made = workspace.ledger.made_partitions(identifier)
    finding = workspace.ledger.dirty_finding(identifier)
    refreshes = {one.token: one for one in workspace.ledger.list_refreshes(identifier, _LATEST)}
    found = []
    for spec in made.specs(keys, state, waiting):
        maker = made.made(spec)
        refresh = refreshes.get(maker.token) if maker is not None and maker.token is not None else None
        is_frozen = frozen is not None and frozen.include(spec)
        dirty = finding.is_dirty(spec, maker, _begins(spec, definition)) if finding is not None else None
        dirty = None if is_frozen and not dirty else dirty
        found.append(
            PartitionStatus(
                name=describe(spec),
                values=spec,
                exists=None if present is None else describe(spec) in present,
                version=maker.version if maker is not None and maker.token is not None else None,
                refreshed_at=refresh.started_at if refresh is not None else None,
                rows=_rows(refresh),
                dirty=dirty,
                compared_at=_compared_at(dirty, finding, maker, refresh),
                frozen=is_frozen,
                quarantined=any(stage.partitions.overlaps(PartitionSet.of([spec])) for stage in stages),
            )
        )
    return found


def count_dirty(workspace: Workspace, identifier: TableIdentifier) -> int | None:
    """Return the number of partitions that are known to be dirty, without reading the table; ``None`` if it is unknown."""
    finding = workspace.ledger.dirty_finding(identifier)
    if finding is None:
        return None
    return finding.still_dirty(workspace.ledger.made_partitions(identifier)) if finding.dirty.count else 0


def _begins(spec: Mapping[str, str], definition: DynamicTable | None) -> datetime | None:
    """Return the start of a partition; ``None`` if its values are no times, or its date formatters are unknown."""
    if definition is None or not definition.formatters:
        return None
    try:
        return start_of(spec, definition.formatters)
    except ValueError:
        return None


def _compared_at(
    dirty: bool | None, finding: DirtyFinding | None, maker: Made | None, refresh: Refresh | None
) -> datetime | None:
    if dirty is None or finding is None:
        return None
    if maker is None or not finding.precedes(maker):
        return finding.found_at
    return max(finding.found_at, refresh.started_at) if refresh is not None else finding.found_at


def _rows(refresh: Refresh | None) -> int | None:
    is_alone = refresh is not None and len(refresh.partitions) == 1 and not refresh.partitions.is_whole
    return refresh.rows if refresh is not None and is_alone else None
