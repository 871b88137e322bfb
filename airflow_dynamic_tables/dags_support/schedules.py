"""When Airflow runs the DAG of a table: by cron, when assets are updated, or both."""

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
"""Tag of a DAG that always runs: it is what Airflow tells a task of the schedule of its DAG, which may be another one by now."""


def schedule_of(table: DynamicTable) -> Schedule | None:
    """What a DAG takes as its ``schedule``.

    :raises ConfigurationError: when Airflow does not take one of the assets.
    """
    if table.is_continuous:
        return "@continuous"
    cron = CronTriggerTimetable(table.cron, timezone=table.timezone) if table.cron else None
    if table.on is None:
        return cron
    updates = _condition(table.on)
    return updates if cron is None else AssetOrTimeSchedule(timetable=cron, assets=updates)


def shared_schedule_of(tables: Iterable[DynamicTable]) -> CronTriggerTimetable | MultipleCronTriggerTimetable:
    """What the DAG that tables share takes as its ``schedule``: the ticks of all of them, each once.

    :param tables: with a cron expression and in one time zone, which the definitions see to.
    """
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
    # By reference: an asset of our own, of the same URI and another name, would keep the tasks of who writes it from running.
    if reference.name is not None:
        return Asset.ref(name=reference.name)
    try:
        return Asset.ref(uri=Asset(uri=str(reference.uri)).uri)
    except ValueError as error:
        raise ConfigurationError(f"on: Airflow takes no asset {reference.uri!r}: {error}") from error
