"""Previewing: what a scheduled refresh would do, from the definition alone. No catalog is imported, so that it starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.dates import scheduled_partitions
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.definitions.model import DynamicTable


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a scheduled refresh at ``schedule_time`` would do."""

    identifier: str
    freshness_seconds: int
    refresh_mode: str
    reason: str
    cron: str | None
    timezone: str
    schedule_time: datetime
    partitions: PartitionSet
    upstream: tuple[str, ...]
    statement: str
    atomicity: str


def preview(table: DynamicTable, schedule_time: datetime) -> TablePlan:
    """What the schedule would refresh at that time; pure.

    :param schedule_time: timezone-aware.
    """
    continuous = table.mode is RefreshMode.CONTINUOUS
    partitions = (
        WHOLE_TABLE if continuous else scheduled_partitions(schedule_time, table.freshness, table.formatters, table.timezone)
    )
    return TablePlan(
        identifier=str(table.identifier),
        freshness_seconds=table.freshness.seconds,
        refresh_mode=table.mode.value,
        reason=table.mode_reason,
        cron=table.cron,
        timezone=table.timezone,
        schedule_time=schedule_time,
        partitions=partitions,
        upstream=tuple(map(str, table.upstream)),
        statement=statement(table.expanded_query, partitions),
        atomicity=table.atomicity,
    )


def statement(query: str, partitions: PartitionSet) -> str:
    """The SQL of a refresh as a person reads it: the query, restricted to the partitions unless they are the whole table."""
    where = "" if partitions.is_whole else f"\nWHERE {partitions.predicate}"
    return f"SELECT * FROM (\n{query}\n){where}"


def not_supported_yet(table: DynamicTable) -> str | None:
    """Why a table that is defined rightly cannot be refreshed by this release; ``None`` when it can."""
    if table.mode is RefreshMode.FULL:
        return None
    return f"{table.mode.lower()} refresh is not supported yet ({table.mode_reason}); set refresh_mode: full"
