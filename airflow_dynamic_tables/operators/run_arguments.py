"""What a DAG run asks for: schedule time, partitions, full refresh; from its conf, its params and its dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean, shown
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.wall_clock import parse_schedule_time
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.operators.updates import is_on_update, updated_partitions
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    asked_time,
    in_time_zone,
    latest_schedule_time,
    parse_partitions,
)

_ARGUMENTS = ("schedule_time", "partition", "full_refresh", "even_if_suspended", "do_not_wait")
"""Keys of a run's conf, and params of its DAG."""

PERIODIC = "dynamic_tables.is_periodic"
"""Key of the conf of a run that the schedule of another scheduler asked the gateway for. No param can have such a name."""

_BY_SCHEDULE = ("scheduled", "backfill")
"""Types of runs, as Airflow has them, for which the schedule decides."""


BY_ITSELF = ("scheduled", "asset_triggered")
"""Types of runs that nobody asks for."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tables that share a DAG of ours: their full names, and how long one may wait, so that it holds up no other for longer."""

    tables: tuple[str, ...]
    longest_wait: timedelta

    def named(self, name: object) -> str:
        """The full name of the table of that name, or the only one whose name ends so.

        :raises ConfigurationError: when there is none.
        """
        ending = [table for table in self.tables if f".{table}".endswith(f".{name}")]
        exact = [table for table in ending if table == name]
        if len(exact or ending) != 1:
            hint = did_you_mean(str(name), self.tables) or f"; legal are {', '.join(self.tables)}"
            raise ConfigurationError(f"tables: this DAG has no table {_shown(name)}{hint}.")
        return (exact or ending)[0]


@dataclass(frozen=True, slots=True)
class Runs:
    """How the runs of a DAG are read, which depends on whose DAG it is.

    ``keys`` may stand in their conf; ``None``: any, as somebody else reads it, too. With ``by_ticks`` a run is for the newest
    tick of the table that is not after its date; otherwise, and when assets were updated, for that date. With ``by_begin`` it is
    for the time at which it began: it may have waited long for another run to end.
    """

    keys: tuple[str, ...] | None
    by_ticks: bool
    group: Group | None = None
    by_begin: bool = False


OF_TABLE = Runs(keys=_ARGUMENTS, by_ticks=False)
"""Runs of a DAG that is the table's own."""


OF_CONTINUOUS = Runs(keys=_ARGUMENTS, by_ticks=False, by_begin=True)
"""Runs of the DAG of a table in continuous mode, when somebody triggered them."""


def of_group(tables: Iterable[DynamicTable]) -> Runs:
    """Runs of the DAG that tables share."""
    tables = tuple(tables)
    wait = min(table.freshness.period for table in tables)
    return Runs((*_ARGUMENTS, "tables"), by_ticks=True, group=Group(tuple(str(table.identifier) for table in tables), wait))


OF_OTHERS = Runs(keys=None, by_ticks=True)
"""Runs of a DAG that somebody wrote."""


def read_request(
    context: Mapping[str, Any], table: DynamicTable, sources: Mapping[TableIdentifier, Source], runs: Runs = OF_TABLE
) -> RefreshRequest:
    """The refresh that a task is to do, from the task's context.

    :raises ConfigurationError: names the argument, and what is wrong with it.
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
    updated = updated_partitions(context, table) if is_on_update(context) else None
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
    """Why a run that somebody asked for is not for this table of a group; ``None`` when it is.

    :raises ConfigurationError: when what was asked for has no sense.
    """
    if runs.group is None:
        return None
    _check_keys(context, (*(runs.keys or ()), *table.params, PERIODIC))
    chosen = _chosen(context, runs.group)
    return None if str(table.identifier) in chosen else f"this run is for {', '.join(chosen)}"


def is_scheduled(context: Mapping[str, Any]) -> bool:
    """Whether the schedule made a run, and nobody asked it for anything."""
    kind = getattr(context.get("dag_run"), "run_type", None)
    return kind in _BY_SCHEDULE and not any(_asked(context, name) for name in (*_ARGUMENTS, "tables"))


def came_by_itself(context: Mapping[str, Any]) -> bool:
    """Whether nobody asked for a run: whoever triggers one, or backfills, did; not so another scheduler by way of the gateway."""
    if _conf(context).get(PERIODIC) is True:
        return True
    kind = getattr(context.get("dag_run"), "run_type", None)
    asked = any(_asked(context, name) for name in (*_ARGUMENTS, "tables"))
    return kind in BY_ITSELF and not asked


def _is_by_hand(context: Mapping[str, Any]) -> bool:
    """Whether a person triggered a run and named no time for it."""
    if _conf(context).get(PERIODIC) is True or _asked(context, "schedule_time") is not None:
        return False
    return getattr(context.get("dag_run"), "run_type", None) == "manual"


def _asks_for_its_time(context: Mapping[str, Any]) -> bool:
    """Whether a user asked for the refresh of one schedule time: by a param, or by a backfill."""
    kind = getattr(context.get("dag_run"), "run_type", None)
    return kind == "backfill" or _asked(context, "schedule_time") is not None


def was_cleared(context: Mapping[str, Any]) -> bool:
    """Whether somebody cleared the task and so asked for this try: Airflow adds its retries to the tries that it has had."""
    retries = getattr(context.get("task"), "retries", None) or 0
    return getattr(context["ti"], "max_tries", 0) > retries


def date_of(context: Mapping[str, Any], table: DynamicTable) -> datetime:
    """The date of a run.

    :raises ConfigurationError: when it has none.
    """
    return in_time_zone(_date_of_the_run(context), table)


def _chosen(context: Mapping[str, Any], group: Group) -> tuple[str, ...]:
    """The tables of a group that a run is for."""
    asked = _asked(context, "tables")
    if not asked:
        return group.tables
    if not isinstance(asked, list | tuple):
        raise ConfigurationError(f"tables must be a list of names, not {_shown(asked)}.")
    return tuple(dict.fromkeys(map(group.named, asked)))


def owner_of(dag_id: str, run_id: str, task_id: str) -> str:
    """The owner of the stages of a task: the same for all its tries in one run."""
    return f"{dag_id}/{run_id}/{task_id}"


def run_of(owner: str) -> tuple[str, str]:
    """The DAG and the run of the task that is an owner; ids of DAGs and tasks have no slash."""
    dag_id, _, rest = owner.partition("/")
    return dag_id, rest.rpartition("/")[0]


def _conf(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the run was triggered with.

    :raises ConfigurationError: when it is no mapping.
    """
    conf = getattr(context.get("dag_run"), "conf", None)
    if conf is not None and not isinstance(conf, Mapping):
        raise ConfigurationError(
            f'The conf of a run must be a mapping such as {{"partition": "ds=2024-01-31"}}, not {_shown(conf)}.'
        )
    return conf or {}


def _check_keys(context: Mapping[str, Any], legal: tuple[str, ...]) -> None:
    """Refuse a mistyped key: without it, the run would refresh something else than was asked for, and be green.

    :raises ConfigurationError: names the key, and the legal ones.
    """
    said = [key for key in legal if key != PERIODIC]  # by the gateway alone
    for key in _conf(context):
        if key not in legal:
            hint = did_you_mean(str(key), said) or f"; legal are {', '.join(said)}"
            raise ConfigurationError(f"The conf of this run has an unknown key {_shown(key)}{hint}.")


def _asked(context: Mapping[str, Any], name: str) -> Any:
    """A param as the conf of the run has it, else with its default; empty text is nothing."""
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
        begin = getattr(context.get("dag_run"), "start_date", None) if runs.by_begin else None
        date = date_of(context, table) if begin is None else datetime.fromisoformat(begin.isoformat())
        # A tick before the update may be one that the table has reached already, and the update would not be read.
        return latest_schedule_time(table, date) if runs.by_ticks and not is_on_update(context) else date
    try:
        time = parse_schedule_time(_text("schedule_time", asked))
    except ValueError as error:
        raise ConfigurationError(
            f"schedule_time {_shown(asked)} is no time; write for example 2024-01-31T06:00:00+00:00, or 2024-01-31 06:00:00 "
            f"in the table's time zone ({table.timezone})."
        ) from error
    return asked_time(time, table, datetime.now(UTC))


def _date_of_the_run(context: Mapping[str, Any]) -> datetime:
    run = context.get("dag_run")
    dates = (
        # What was updated until it began is read: more than the first of its updates, which ``run_after`` is the time of.
        getattr(run, "start_date", None) if is_on_update(context) else None,
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
