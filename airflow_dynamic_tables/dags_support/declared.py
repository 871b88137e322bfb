"""A table by its name: its definition looked up, and what that says of the tasks that refresh it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_dynamic_tables.core.identifiers import split_name
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.dags_support.callbacks import callbacks_of
from airflow_dynamic_tables.dags_support.executors import executor_settings
from airflow_dynamic_tables.definitions.loader import load_sound_definitions, load_table_definitions, load_task_definitions
from airflow_dynamic_tables.definitions.model import AirflowPart, Conventions, Definitions, DynamicTable, settings_of
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, TableNotFoundError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION
from airflow_dynamic_tables.schedulers.registry import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.project import conventions_of
from airflow_dynamic_tables.services.refresh.preview import not_supported_yet
from airflow_dynamic_tables.services.settings import parse_threshold, threshold_in

_DEFAULT_ARGS: Mapping[str, Any] = {"retries": 2, "retry_delay": timedelta(minutes=5)}
"""For the tasks of a table that a schedule refreshes."""

_CONTINUOUS_ARGS: Mapping[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=10)}
"""For a task that is tried again only when its worker died: after other failures, the loop itself has tried again."""

_TASK_SETTINGS = settings_of(AirflowPart.TASK)


@dataclass(frozen=True, slots=True)
class Access:
    """Where refreshes find their state: a connection, and the catalogs file beside the definitions if there is one.

    ``definitions`` is their file or folder. ``default_args`` are Airflow's, for what the definitions do not say.
    """

    conn_id: str = DEFAULT_CONNECTION
    definitions: Path | None = None
    catalogs_file: Path | None = None
    poll_interval: float = 30
    default_args: Mapping[str, Any] = field(default_factory=dict)


def said(table: DynamicTable, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the settings that the table names."""
    return {name: value for name in names if (value := getattr(table, name)) is not None}


def task_settings(table: DynamicTable) -> dict[str, Any]:
    """What the definition says of its tasks, as arguments of operators; without callbacks.

    :raises ConfigurationError: when this Airflow has no such executor, or its config names no pod.
    """
    return {**said(table, _TASK_SETTINGS), **executor_settings(table)}


def default_args_of(table: DynamicTable) -> Mapping[str, Any]:
    """What holds for its tasks where neither its definition nor anybody else says so."""
    return _CONTINUOUS_ARGS if table.is_continuous else _DEFAULT_ARGS


def refresh_settings(table: DynamicTable) -> dict[str, Any]:
    """What the definition says of its task ``refresh``, callbacks included, as arguments of the operator.

    :raises ConfigurationError: when there is not what it names: a callback, an executor, a pod.
    """
    return {"max_active_tis_per_dag": 1, **task_settings(table), **callbacks_of(table)}


def configured_poll_interval() -> float:
    """Seconds between two looks at parents that a refresh waits for, as Airflow is configured."""
    return float(conf.get("dynamic_tables", "upstream_poll_interval", fallback="30"))


def configured_threshold() -> Freshness:
    """The freshness below which tables that say nothing else are refreshed all the time, as Airflow is configured.

    :raises ConfigurationError: when that is no length of time.
    """
    text = str(conf.get("dynamic_tables", "freshness_threshold", fallback=""))
    return parse_threshold("[dynamic_tables] freshness_threshold", text) if text.strip() else threshold_in(os.environ)


def look_up(name: object, definitions: str | Path, catalogs_file: Path | None) -> tuple[DynamicTable, Definitions]:
    """A table, and the definitions that its refresh needs. With a warm cache nothing else is read.

    :param name: one that can be known while DAGs are made, as a rule the full one.
    :param definitions: a definitions file or folder.
    :param catalogs_file: says how names are completed.
    :raises ConfigurationError: when it is a template, or no name.
    :raises DefinitionError: when it is not there while files have mistakes; with all mistakes of all files.
    :raises TableNotFoundError: when nobody defines it.
    """
    if not isinstance(name, str) or "{{" in name or "{%" in name:
        raise ConfigurationError(
            f"table={name!r} is not known before a run: the definition is read when the DAG is made, so write "
            "the full name of one table, such as 'lake.sales.daily_revenue', and one task for each table."
        )
    try:
        is_full = len(split_name(name)) == 3
    except ValueError as error:
        raise ConfigurationError(f"table={name!r}: {error}.") from error
    if is_full:
        needed = load_table_definitions(Path(definitions), name, conventions=_conventions(catalogs_file))
        if (table := needed.table(name)) is not None:
            return refreshable(table), needed
    every, mistakes = load_every(definitions, catalogs_file)
    try:
        return refreshable(named_table(every, name)), every
    except TableNotFoundError:
        if mistakes:
            # One of them may be why.
            raise DefinitionError(mistakes) from None
        raise


def load_every(definitions: str | Path, catalogs_file: Path | None) -> tuple[Definitions, tuple[Mistake, ...]]:
    """All definitions that are fine, and all mistakes; parameters as for :func:`look_up`."""
    return load_sound_definitions(Path(definitions), conventions=_conventions(catalogs_file))


def load_workflow(path: Path, workflow_id: str, catalogs_file: Path | None) -> Definitions:
    """What the refreshes of a workflow need, empty when its definitions are broken or gone; parameters as for :func:`look_up`."""
    return load_task_definitions(path, workflow_id, conventions=_conventions(catalogs_file))


def _conventions(catalogs_file: Path | None) -> Conventions:
    return conventions_of(os.environ, catalogs_file, configured_threshold())


def refreshable(table: DynamicTable) -> DynamicTable:
    """Itself.

    :raises DefinitionError: when nothing refreshes such a table, or Airflow does not have what it names.
    """
    problem = not_supported_yet(table)
    try:
        refresh_settings(table)
    except ConfigurationError as error:
        problem = str(error)
    if problem:
        raise DefinitionError((Mistake(table.path, table.line, 1, f"{table.identifier}: {problem}"),))
    return table


def is_airflows(table: DynamicTable) -> bool:
    """Whether Airflow is to have a table refreshed, and no other scheduler."""
    return table.scheduler in (None, DEFAULT_SCHEDULER)
