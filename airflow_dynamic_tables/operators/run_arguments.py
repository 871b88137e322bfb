"""Arguments of a DAG run: schedule time, partitions, full refresh; from its conf, params and dates."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow import __version__ as airflow_version
from airflow.sdk.execution_time.context import InletEventsAccessor

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean, shown
from airflow_dynamic_tables.core.partition_dates import check_dates, scheduled_partitions
from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import parse_schedule_time
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    asked_time,
    in_time_zone,
    latest_schedule_time,
    parse_partitions,
)

log = logging.getLogger(__name__)

_ARGUMENTS = ("schedule_time", "partition", "full_refresh", "even_if_suspended", "do_not_wait")
"""Keys of a run's conf, and params of its DAG."""

PERIODIC = "dynamic_tables.is_periodic"
"""Conf key of a run requested by the schedule of another scheduler, through the gateway. No param can have this name."""

_BY_SCHEDULE = ("scheduled", "backfill")


BY_ITSELF = ("scheduled", "asset_triggered")
"""Run types of Airflow that no user requested."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tables that share a DAG: their full names, and the longest time that one may wait, because it delays the others."""

    tables: tuple[str, ...]
    longest_wait: timedelta

    def named(self, name: object) -> str:
        """Return the full name of the table with a name, or of the only one whose name ends with it.

        :raises ConfigurationError: if there is none, or several.
        """
        ending = [table for table in self.tables if f".{table}".endswith(f".{name}")]
        exact = [table for table in ending if table == name]
        if len(exact or ending) != 1:
            hint = did_you_mean(str(name), self.tables) or f"; legal are {', '.join(self.tables)}"
            raise ConfigurationError(f"tables: this DAG has no table {_shown(name)}{hint}.")
        return (exact or ending)[0]


@dataclass(frozen=True, slots=True)
class Runs:
    """How the runs of a DAG are interpreted, depending on its author.

    ``keys`` are the permitted conf keys; ``None`` permits any, because user code may read others. With ``by_ticks``, a run is for
    the table's latest tick up to its date; otherwise, and on asset updates, for that date. With ``by_begin``, it is for its start
    time, because it may have been queued for long.
    """

    keys: tuple[str, ...] | None
    by_ticks: bool
    group: Group | None = None
    by_begin: bool = False


OF_TABLE = Runs(keys=_ARGUMENTS, by_ticks=False)
OF_CONTINUOUS = Runs(keys=_ARGUMENTS, by_ticks=False, by_begin=True)
"""Manually triggered runs of the DAG of a table in continuous mode."""


def of_group(tables: Iterable[DynamicTable]) -> Runs:
    """Return the interpretation of runs of a shared DAG."""
    tables = tuple(tables)
    wait = min(table.freshness.period for table in tables)
    return Runs((*_ARGUMENTS, "tables"), by_ticks=True, group=Group(tuple(str(table.identifier) for table in tables), wait))


OF_OTHERS = Runs(keys=None, by_ticks=True)


def read_request(
    context: Mapping[str, Any], table: DynamicTable, sources: Mapping[TableIdentifier, Source], runs: Runs = OF_TABLE
) -> RefreshRequest:
    """Return the refresh requested by a task's context.

    :raises ConfigurationError: names the invalid argument.
    """
    if runs.keys is not None:
        _check_keys(context, (*runs.keys, *table.params, PERIODIC))
    partitions = _partitions(_asked(context, "partition"), table)
    if partitions is not None and runs.group and len(_chosen(context, runs.group)) != 1:
        raise ConfigurationError(
            f"partition needs `tables` with the one table that it is of, such as {_shown([str(table.identifier)])}."
        )
    ti = context["ti"]
    is_first = getattr(ti, "try_number", 1) == 1
    updated = _updated_partitions(context, table) if _is_on_update(context) else None
    return RefreshRequest(
        table=table,
        sources=sources,
        schedule_time=_schedule_time(context, table, runs),
        token=str(ti.id),
        owner=owner_of(ti.dag_id, ti.run_id, ti.task_id),
        is_reported=True,
        catches_up=came_by_itself(context) or not _asks_for_its_time(context),
        is_scheduled=came_by_itself(context) and is_first and (updated is None or updated.is_whole),
        partitions=partitions,
        full_refresh=_truth(context, "full_refresh"),
        force=_truth(context, "even_if_suspended"),
        updated=updated,
        is_by_hand=_is_by_hand(context),
        waits=not _truth(context, "do_not_wait"),
    )


def left_out(context: Mapping[str, Any], table: DynamicTable, runs: Runs) -> str | None:
    """Return why a requested run does not include this table of a group; ``None`` if it does.

    :raises ConfigurationError: if the request is invalid.
    """
    if runs.group is None:
        return None
    _check_keys(context, (*(runs.keys or ()), *table.params, PERIODIC))
    chosen = _chosen(context, runs.group)
    return None if str(table.identifier) in chosen else f"this run is for {', '.join(chosen)}"


def is_scheduled(context: Mapping[str, Any]) -> bool:
    """Return whether a run was created by the schedule, without arguments."""
    kind = getattr(context.get("dag_run"), "run_type", None)
    return kind in _BY_SCHEDULE and not any(_asked(context, name) for name in (*_ARGUMENTS, "tables"))


def came_by_itself(context: Mapping[str, Any]) -> bool:
    """Return whether a run was not requested by a user (trigger, backfill), but by Airflow or another scheduler."""
    if _conf(context).get(PERIODIC) is True:
        return True
    kind = getattr(context.get("dag_run"), "run_type", None)
    asked = any(_asked(context, name) for name in (*_ARGUMENTS, "tables"))
    return kind in BY_ITSELF and not asked


def _is_by_hand(context: Mapping[str, Any]) -> bool:
    if _conf(context).get(PERIODIC) is True or _asked(context, "schedule_time") is not None:
        return False
    return getattr(context.get("dag_run"), "run_type", None) == "manual"


def _asks_for_its_time(context: Mapping[str, Any]) -> bool:
    kind = getattr(context.get("dag_run"), "run_type", None)
    return kind == "backfill" or _asked(context, "schedule_time") is not None


def was_cleared(context: Mapping[str, Any]) -> bool:
    """Return whether a user cleared the task: Airflow then adds its retries to the previous tries."""
    retries = getattr(context.get("task"), "retries", None) or 0
    return getattr(context["ti"], "max_tries", 0) > retries


def date_of(context: Mapping[str, Any], table: DynamicTable) -> datetime:
    """Return the date of a run.

    :raises ConfigurationError: if it has none.
    """
    return in_time_zone(_date_of_the_run(context), table)


def _chosen(context: Mapping[str, Any], group: Group) -> tuple[str, ...]:
    asked = _asked(context, "tables")
    if not asked:
        return group.tables
    if not isinstance(asked, list | tuple):
        raise ConfigurationError(f"tables must be a list of names, not {_shown(asked)}.")
    return tuple(dict.fromkeys(map(group.named, asked)))


def owner_of(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the owner of a task's stages: the same for all tries in a run."""
    return f"{dag_id}/{run_id}/{task_id}"


def run_of(owner: str) -> tuple[str, str]:
    """Return the DAG and the run of an owner; ids of DAGs and tasks contain no slash."""
    dag_id, _, rest = owner.partition("/")
    return dag_id, rest.rpartition("/")[0]


def _conf(context: Mapping[str, Any]) -> Mapping[str, Any]:
    conf = getattr(context.get("dag_run"), "conf", None)
    if conf is not None and not isinstance(conf, Mapping):
        raise ConfigurationError(
            f'The conf of a run must be a mapping such as {{"partition": "ds=2024-01-31"}}, not {_shown(conf)}.'
        )
    return conf or {}


def _check_keys(context: Mapping[str, Any], legal: tuple[str, ...]) -> None:
    """Reject unknown keys, because a run with a mistyped key would succeed with another refresh than requested."""
    said = [key for key in legal if key != PERIODIC]  # set only by the gateway
    for key in _conf(context):
        if key not in legal:
            hint = did_you_mean(str(key), said) or f"; legal are {', '.join(said)}"
            raise ConfigurationError(f"The conf of this run has an unknown key {_shown(key)}{hint}.")


def _asked(context: Mapping[str, Any], name: str) -> Any:
    conf = _conf(context)
    value = conf[name] if name in conf else (context.get("params") or {}).get(name)
    return None if isinstance(value, str) and not value.strip() else value


def _truth(context: Mapping[str, Any], name: str) -> bool:
    value = _asked(context, name)
    if not isinstance(value, bool | None):
        raise ConfigurationError(f"{name} must be true or false, not {_shown(value)}.")
    return bool(value)


def _schedule_time(context: Mapping[str, Any], table: DynamicTable, runs: Runs) -> datetime:
    asked = _asked(context, "schedule_time")
    if asked is None:
        _check_date_of_partition(context)
        begin = getattr(context.get("dag_run"), "start_date", None) if runs.by_begin else None
        date = date_of(context, table) if begin is None else datetime.fromisoformat(begin.isoformat())
        # The table may have reached the tick before the update already, so that the update would not be read.
        return latest_schedule_time(table, date) if runs.by_ticks and not _is_on_update(context) else date
    try:
        time = parse_schedule_time(_text("schedule_time", asked))
    except ValueError as error:
        raise ConfigurationError(
            f"schedule_time {_shown(asked)} is no time; write for example 2024-01-31T06:00:00+00:00, or 2024-01-31 06:00:00 "
            f"in the table's time zone ({table.timezone})."
        ) from error
    return asked_time(time, table, datetime.now(UTC))


def _check_date_of_partition(context: Mapping[str, Any]) -> None:
    """Reject a run of a partition whose date is unknown: Airflow 3.2 gives tasks the key only."""
    run = context.get("dag_run")
    key = getattr(run, "partition_key", None)
    if key is not None and not hasattr(run, "partition_date") and not _is_on_update(context):
        lacks = f"Airflow {airflow_version} does not tell its date"
        raise ConfigurationError(
            f"This run is of partition {_shown(key)}, and {lacks}; give it a schedule_time, or upgrade to 3.3."
        )


def _date_of_the_run(context: Mapping[str, Any]) -> datetime:
    run = context.get("dag_run")
    dates = (
        # The run reads all updates up to its start, not only the first one, whose time is ``run_after``.
        getattr(run, "start_date", None) if _is_on_update(context) else None,
        getattr(run, "partition_date", None),
        context.get("data_interval_end"),
        context.get("logical_date"),
        getattr(run, "run_after", None),
    )
    most_specific = next((date for date in dates if date is not None), None)
    if most_specific is None:
        raise ConfigurationError("This run has no date at all; give it a schedule_time.")
    # Airflow's dates may be pendulum's, which JSON and dataclasses do not support.
    return datetime.fromisoformat(most_specific.isoformat())


def _partitions(asked: object, table: DynamicTable) -> PartitionSet | None:
    if asked is None:
        return None
    try:
        return parse_partitions(_text("partition", asked), table.formatters)
    except ValueError as error:
        raise ConfigurationError(f"partition: {shown(str(error))}.") from error


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {_shown(value)}; put it in quotes.")
    return value


def _shown(value: object) -> str:
    return shown(repr(value))


_TRIGGERED = "asset_triggered"


def _is_on_update(context: Mapping[str, Any]) -> bool:
    return getattr(context.get("dag_run"), "run_type", None) == _TRIGGERED


def _updated_partitions(context: Mapping[str, Any], table: DynamicTable) -> PartitionSet:
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
        # Airflow creates one run for several updates, and lists only events that existed at the first one.
        listed = context["triggering_asset_events"].get(dynamic_table_asset(parent), ())
        events = [*listed, *events_since(parent, since)]
        named += _of_table(events, table)
    return first.union(PartitionSet.of(named))


def events_since(table: TableIdentifier, since: datetime) -> Iterable[Any]:
    """Return the events of a table's asset in Airflow."""
    asset = dynamic_table_asset(table)
    return InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).after(since.isoformat())


def _of_table(events: Iterable[Any], table: DynamicTable) -> Iterator[dict[str, str]]:
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
