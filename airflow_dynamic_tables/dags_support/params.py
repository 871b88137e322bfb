"""The params of a DAG: what a person may ask for when triggering it."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.common.compat.sdk import Param

from airflow_dynamic_tables.core.tables.dates import formatted
from airflow_dynamic_tables.definitions.model import DynamicTable

_EXAMPLE_DAY = datetime(2024, 1, 31)  # noqa: DTZ001 - only written with the table's patterns


def params_of(table: DynamicTable) -> dict[str, Param]:
    """The params of its DAG, with defaults, so that the trigger form works."""
    example = "/".join(f"{key}={_example(table, key)}" for key in table.partition_keys)
    return {
        "schedule_time": Param(
            None,
            source="dag",
            type=["null", "string"],
            format="date-time",
            title="Schedule time",
            description=f"The tick to refresh for; empty: the time of the run. Without offset it is in {table.timezone}.",
        ),
        "partition": Param(
            None,
            source="dag",
            type=["null", "string"],
            title="Partition",
            description=f"Refresh exactly this partition, e.g. {example}, or several separated by commas. Empty: the schedule "
            "decides."
            if example
            else "The table is not partitioned; leave this empty.",
        ),
        "full_refresh": Param(
            False,
            source="dag",
            type=["null", "boolean"],  # the form marks what cannot be null as required
            title="Full refresh",
            description="Replace the whole table.",
        ),
    }


def _example(table: DynamicTable, key: str) -> str:
    pattern = table.formatters.get(key)
    return formatted(_EXAMPLE_DAY, pattern) if pattern else "…"
