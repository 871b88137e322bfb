"""The params of a DAG: what a person may ask for when triggering it."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import Param

from airflow_dynamic_tables.definitions.model import DynamicTable


def params_of(table: DynamicTable) -> dict[str, Param]:
    """The params of its DAG, with defaults, so that the trigger form works."""
    keys = "/".join(f"{key}=…" for key in table.partition_keys)
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
            description=f"Refresh exactly this partition ({keys}), or several separated by commas; empty: the schedule decides."
            if keys
            else "The table is not partitioned; leave this empty.",
        ),
        "full_refresh": Param(False, source="dag", type="boolean", title="Full refresh", description="Replace the whole table."),
    }
