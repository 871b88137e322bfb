"""What a DAG run asks for: schedule time, partitions, full refresh; from its conf, its params and its dates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    in_time_zone,
    parse_partitions,
    parse_schedule_time,
)


def read_request(context: Mapping[str, Any], table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> RefreshRequest:
    """The refresh that a task is to do, from the task's context.

    :raises ConfigurationError: names the argument, and what is wrong with it.
    """
    partitions = _partitions(_asked(context, "partition"))
    full_refresh = _asked(context, "full_refresh") or False
    if not isinstance(full_refresh, bool):
        raise ConfigurationError(f"full_refresh must be true or false, not {full_refresh!r}.")
    ti = context["ti"]
    return RefreshRequest(
        table=table,
        sources=sources,
        schedule_time=_schedule_time(context, table),
        token=str(ti.id),
        owner=owner_of(ti.dag_id, ti.run_id, ti.task_id),
        is_reported=True,
        partitions=partitions,
        full_refresh=full_refresh,
    )


def owner_of(dag_id: str, run_id: str, task_id: str) -> str:
    """The owner of the stages of a task: the same for all its tries in one run."""
    return f"{dag_id}/{run_id}/{task_id}"


def run_of(owner: str) -> tuple[str, str]:
    """The DAG and the run of the task that is an owner; ids of DAGs and tasks have no slash."""
    dag_id, _, rest = owner.partition("/")
    return dag_id, rest.rpartition("/")[0]


def _asked(context: Mapping[str, Any], name: str) -> Any:
    """A param as the conf of the run has it, else with its default; empty text is nothing."""
    conf = getattr(context.get("dag_run"), "conf", None) or {}
    value = conf[name] if name in conf else (context.get("params") or {}).get(name)
    return None if isinstance(value, str) and not value.strip() else value


def _schedule_time(context: Mapping[str, Any], table: DynamicTable) -> datetime:
    asked = _asked(context, "schedule_time")
    if asked is None:
        return _date_of_the_run(context)
    try:
        return in_time_zone(parse_schedule_time(str(asked)), table)
    except ValueError as error:
        raise ConfigurationError(
            f"schedule_time {asked!r} is no time; write for example 2024-01-31T06:00:00+00:00, or 2024-01-31 06:00:00 "
            f"in the table's time zone ({table.timezone})."
        ) from error


def _date_of_the_run(context: Mapping[str, Any]) -> datetime:
    run = context.get("dag_run")
    dates = (
        getattr(run, "partition_date", None),
        context.get("data_interval_end"),
        context.get("logical_date"),
        getattr(run, "run_after", None),
    )
    most_specific = next((date for date in dates if date is not None), None)
    if most_specific is None:
        raise ConfigurationError("This run has no date at all; give it a schedule_time.")
    # Airflow's dates may be pendulum's, which JSON and dataclasses do not know.
    return datetime.fromisoformat(most_specific.isoformat())


def _partitions(text: object) -> PartitionSet | None:
    if text is None:
        return None
    try:
        return parse_partitions(str(text))
    except ValueError as error:
        raise ConfigurationError(f"partition: {error}.") from error
