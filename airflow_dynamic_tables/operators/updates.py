"""What the events of updated assets say to the run that they triggered."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow.sdk.execution_time.context import InletEventsAccessor

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.tables.dates import check_dates, scheduled_partitions
from airflow_dynamic_tables.core.tables.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.definitions.model import DynamicTable

log = logging.getLogger(__name__)

_TRIGGERED = "asset_triggered"
"""Airflow's type of such runs."""


def is_on_update(context: Mapping[str, Any]) -> bool:
    """Whether a run is because assets were updated."""
    return getattr(context.get("dag_run"), "run_type", None) == _TRIGGERED


def updated_partitions(context: Mapping[str, Any], table: DynamicTable) -> PartitionSet:
    """What such a run refreshes beside the partitions of its own time.

    These are the partitions of the time of the first update, and those that the events of dynamic tables name, by the table's
    time keys.
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
            # Airflow makes one run of several updates, and lists only what was there when the first came.
            *InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).after(since.isoformat()),
        ]
        named += _of_table(events, table)
    return first.union(PartitionSet.of(named))


def _of_table(events: Iterable[Any], table: DynamicTable) -> Iterator[dict[str, str]]:
    """What the events name, as far as the table may have such partitions."""
    for text in dict.fromkeys(text for event in events for text in (event.extra or {}).get("partitions") or ()):
        try:
            spec = parse_spec(text)
            # As the schedule names them: a predicate has the same keys in every partition.
            of_table = {key: spec[key] for key in table.formatters}
            check_dates(of_table, table.formatters)
        except (KeyError, ValueError):
            log.info("An update names %s, which is no partition of this table by its time keys.", text)
        else:
            yield of_table
