"""What a DAG run asks for: schedule time, partitions, full refresh; from its conf, its params and its dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.tables.partitions import PartitionSet, check_spec, parse_spec
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class RunArguments:
    """``partitions`` is ``None`` when the schedule time decides."""

    schedule_time: datetime
    partitions: PartitionSet | None = None
    full_refresh: bool = False


def read_run_arguments(context: Mapping[str, Any], table: DynamicTable) -> RunArguments:
    """Read them from the context of a task.

    :raises ConfigurationError: names the argument, and what is wrong with it.
    """
    partitions = _partitions(_asked(context, "partition"), table)
    full_refresh = _asked(context, "full_refresh") or False
    if not isinstance(full_refresh, bool):
        raise ConfigurationError(f"full_refresh must be true or false, not {full_refresh!r}.")
    if full_refresh and partitions is not None:
        raise ConfigurationError("partition and full_refresh exclude each other; give one of them.")
    return RunArguments(_schedule_time(context, table), partitions, full_refresh)


def _asked(context: Mapping[str, Any], name: str) -> Any:
    """A param as the conf of the run has it, else with its default; empty text is nothing."""
    conf = getattr(context.get("dag_run"), "conf", None) or {}
    value = conf[name] if name in conf else (context.get("params") or {}).get(name)
    return None if isinstance(value, str) and not value.strip() else value


def _schedule_time(context: Mapping[str, Any], table: DynamicTable) -> datetime:
    asked = _asked(context, "schedule_time")
    if asked is not None:
        return _parse_time(asked, table.timezone)
    run = context.get("dag_run")
    dates = (
        getattr(run, "partition_date", None),
        context.get("data_interval_end"),
        context.get("logical_date"),
        getattr(run, "run_after", None),
    )
    found = next((date for date in dates if date is not None), None)
    if found is None:
        raise ConfigurationError("This run has no date at all; give it a schedule_time.")
    # Airflow's dates may be pendulum's, which JSON and dataclasses do not know.
    return datetime.fromisoformat(found.isoformat())


def _parse_time(text: object, timezone: str) -> datetime:
    try:
        time = datetime.fromisoformat(str(text).strip())
    except ValueError as error:
        raise ConfigurationError(
            f"schedule_time {text!r} is no time; write for example 2024-01-31T06:00:00+00:00, or 2024-01-31 06:00:00 "
            f"in the table's time zone ({timezone})."
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=ZoneInfo(timezone))


def _partitions(text: object, table: DynamicTable) -> PartitionSet | None:
    if text is None:
        return None
    try:
        partitions = PartitionSet.of(parse_spec(part) for part in str(text).split(","))
        for spec in partitions:
            check_spec(spec, table.partition_keys)
    except ValueError as error:
        raise ConfigurationError(f"partition: {error}.") from error
    return partitions
