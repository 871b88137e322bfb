"""Wishes to refresh a table: what they replace, and whether there is anything to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.dates import scheduled_partitions
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet, check_spec
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """A wish to refresh one table.

    ``token`` is new for every attempt, ``owner`` the same for all attempts of one piece of work. ``partitions`` names the
    ones to refresh by hand; ``full_refresh`` replaces the whole table; otherwise the schedule time decides.
    """

    table: DynamicTable
    sources: Mapping[TableIdentifier, Source]
    schedule_time: datetime
    token: str
    owner: str
    partitions: PartitionSet | None = None
    full_refresh: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing was done, and why."""

    reason: Reason


def requested_partitions(request: RefreshRequest) -> PartitionSet:
    """The partitions a request replaces.

    :raises ConfigurationError: when a partition named by hand does not fit the table.
    """
    table = request.table
    if request.full_refresh:
        return WHOLE_TABLE
    if request.partitions is None:
        return scheduled_partitions(request.schedule_time, table.freshness, table.formatters, table.timezone)
    for spec in () if request.partitions.is_whole else request.partitions:
        try:
            check_spec(spec, table.partition_keys)
        except ValueError as error:
            raise ConfigurationError(f"{table.identifier}: {error}") from error
    return request.partitions


def overtaken(request: RefreshRequest, partitions: PartitionSet, current: Version | None) -> Skipped | None:
    """A refresh of the whole table for an older schedule time would overwrite newer data: skip it."""
    fresh = current.data_timestamp if current is not None else None
    if not partitions.is_whole or current is None or fresh is None or request.schedule_time >= fresh:
        return None
    text = (
        f"{request.table.identifier} is already fresh up to {fresh.isoformat()} (version {current.number}); "
        f"a refresh of the whole table for {request.schedule_time.isoformat()} would overwrite newer data."
    )
    return Skipped(Reason(ReasonCode.ALREADY_FRESH, text))


def action_of(request: RefreshRequest, partitions: PartitionSet, current: Version | None) -> tuple[RefreshAction, Reason]:
    """What kind of refresh this is, and why."""
    anew = RefreshAction.FULL if partitions.is_whole else RefreshAction.PARTITIONS
    action = RefreshAction.INITIALIZE if current is None else anew
    if request.full_refresh:
        return action, Reason(ReasonCode.FULL_REFRESH, "full refresh asked for")
    if request.partitions is not None:
        return action, Reason(ReasonCode.ASKED_FOR, f"asked for: {partitions}")
    return action, Reason(ReasonCode.SCHEDULED, f"scheduled for {request.schedule_time.isoformat()}: {partitions}")
