"""Schedules of DAGs: cron expressions, asset updates, or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from airflow.providers.common.compat.sdk import Asset, AssetAll, AssetAny
from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, MultipleCronTriggerTimetable
from airflow.sdk.definitions.asset import BaseAsset

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.definitions.model import AssetReference, DynamicTable, Updates
from airflow_dynamic_tables.exceptions import ConfigurationError

Schedule = CronTriggerTimetable | AssetOrTimeSchedule | BaseAsset | Literal["@continuous"]


CONTINUOUS_TAG = "dynamic-table-continuous"
"""Tag of a continuous DAG; it is how tasks learn the current schedule of their DAG, which may have changed."""


def schedule_of(table: DynamicTable) -> Schedule | None:
    """Return the ``schedule`` of a table's DAG.

    :raises ConfigurationError: if Airflow rejects one of the assets.
    """
    if table.is_continuous:
        return "@continuous"
    cron = CronTriggerTimetable(table.cron, timezone=table.timezone) if table.cron else None
    if table.on is None:
        return cron
    updates = _condition(table.on)
    return updates if cron is None else AssetOrTimeSchedule(timetable=cron, assets=updates)


def shared_schedule_of(tables: Iterable[DynamicTable]) -> CronTriggerTimetable | MultipleCronTriggerTimetable:
    """Return the ``schedule`` of a DAG shared by tables in one time zone: the ticks of all tables, without duplicates."""
    tables = list(tables)
    timezone = tables[0].timezone
    crons = list(dict.fromkeys(str(table.cron) for table in tables))
    if len(crons) == 1:
        return CronTriggerTimetable(crons[0], timezone=timezone)
    return MultipleCronTriggerTimetable(*crons, timezone=timezone)


def _condition(updates: Updates) -> BaseAsset:
    assets = map(_asset, updates.assets)
    return AssetAll(*assets) if updates.every else AssetAny(*assets)


def _asset(reference: AssetReference) -> BaseAsset:
    if reference.table is not None:
        return dynamic_table_asset(reference.table)
    # A reference, because an asset of ours with the same URI and another name would block the tasks of its producer.
    if reference.name is not None:
        return Asset.ref(name=reference.name)
    try:
        return Asset.ref(uri=Asset(uri=str(reference.uri)).uri)
    except ValueError as error:
        raise ConfigurationError(f"on: Airflow takes no asset {reference.uri!r}: {error}") from error
