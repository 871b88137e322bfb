"""Params of a DAG: arguments of manually triggered runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from airflow.providers.common.compat.sdk import Param

from airflow_dynamic_tables.core.partition_dates import formatted
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.definitions.model import DynamicTable, RunParam

_EXAMPLE_DAY = datetime(2024, 1, 31)  # noqa: DTZ001 - only written with the table's patterns


def params_of(table: DynamicTable) -> dict[str, Param]:
    """Return the params of a table's DAG, with defaults, so that the trigger form works."""
    example = "/".join(f"{key}={_example(table.formatters.get(key))}" for key in plain_keys(table.partition_keys))
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
            description=f"Refresh exactly this partition, e.g. {example}, several separated by commas, or a range with its ends "
            f"included, {example}..{example}. Empty: the schedule decides."
            if example
            else "The table has no partition that could be named; leave this empty.",
        ),
        "full_refresh": _flag("Full refresh", "Replace the complete table, also when its columns or partition keys changed."),
        "even_if_suspended": _flag("Even if suspended", "Refresh the table once although it is suspended; it stays so."),
        "do_not_wait": _flag(
            "Do not wait", "Read the versions that parents have now, as dynamic-tables refresh does, and do not wait for data."
        ),
        **{name: _own(param) for name, param in table.params.items()},
    }


def _flag(title: str, description: str) -> Param:
    # The form marks non-nullable params as required.
    return Param(False, source="dag", type=["null", "boolean"], title=title, description=description)


def _own(param: RunParam) -> Param:
    """Return a param of the definition; without a default it is nullable, because scheduled runs have no value for it."""
    nothing = [None] if param.default is None else []
    schema: dict[str, Any] = {"type": ["null", param.type] if nothing else param.type}
    if param.choices:
        schema["enum"] = [*nothing, *param.choices]
    texts = {"title": param.title, "description": param.description}
    return Param(param.default, source="dag", **schema, **{name: text for name, text in texts.items() if text})


def group_params_of(tables: Sequence[DynamicTable]) -> dict[str, Param]:
    """Return the params of a DAG of several tables."""
    params = params_of(tables[0])
    names = [str(table.identifier) for table in tables]
    params["schedule_time"].description = (
        "The time to refresh for; empty: the newest tick of each table up to the run. Without offset it is in "
        f"{tables[0].timezone}."
    )
    partition = params["partition"]
    partition.description = "Refresh exactly this partition of the one table that is chosen. Empty: the schedule decides."
    chosen = Param(
        None,
        source="dag",
        type=["null", "array"],
        items={"type": "string"},
        examples=names,
        title="Tables",
        description="Refresh only these. Empty: all of them.",
    )
    return {"tables": chosen, **params}


@lru_cache(maxsize=1_000)
def _example(pattern: str | None) -> str:
    return formatted(_EXAMPLE_DAY, pattern) if pattern else "…"
