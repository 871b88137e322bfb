"""Partitions named by the asset events that triggered a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow.sdk.execution_time.context import InletEventsAccessor

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.partition_dates import check_dates, scheduled_partitions
from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.definitions.model import DynamicTable

log = logging.getLogger(__name__)

_TRIGGERED = "asset_triggered"
"""Airflow's run type for asset updates."""


def is_on_update(context: Mapping[str, Any]) -> bool:
    """Return whether a run was triggered by asset updates."""
    return getattr(context.get("dag_run"), "run_type", None) == _TRIGGERED


def updated_partitions(context: Mapping[str, Any], table: DynamicTable) -> PartitionSet:
    """Return the partitions that such a run refreshes in addition to those of its own time.

    These are the partitions of the time of the first update, and those named by events of dynamic tables, by the table's time
    keys.
    """
    log.info("An asset was updated: %s.", table.on or "one that the definition does not name")
    since = context["dag_run"].run_after
    first = scheduled_partitions(since, table.freshness, table.formatters, table.timezone)
    if not table.formatters or table.on is None:
        return first
    named: list[dict[str, str]] = []
    for parent in table.on.tables:
        asset = dynamic_table_asset(parent)
        events = [
            *context["triggering_asset_events"].get(asset, ()),
            # Airflow creates one run for several updates, and lists only events that existed at the first one.
            *InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).after(since.isoformat()),
        ]
        named += _of_table(events, table)
    return first.union(PartitionSet.of(named))


def _of_table(events: Iterable[Any], table: DynamicTable) -> Iterator[dict[str, str]]:
    """Yield the partitions named by events that are valid for the table."""
    for text in dict.fromkeys(text for event in events for text in (event.extra or {}).get("partitions") or ()):
        try:
            spec = parse_spec(text)
            # Only the schedule's keys: a predicate has the same keys in every partition.
            of_table = {key: spec[key] for key in table.formatters}
            check_dates(of_table, table.formatters)
        except (KeyError, ValueError):
            log.info("An update names %s, which is no partition of this table by its time keys.", text)
        else:
            yield of_table
