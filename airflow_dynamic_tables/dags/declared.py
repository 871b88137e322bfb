"""Lookup of definitions by table name, and the task settings that they contain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.exceptions import UnknownExecutorException
from airflow.executors.executor_loader import ExecutorLoader
from airflow.providers.common.compat.sdk import conf
from airflow.sdk import get_parsing_context

from airflow_dynamic_tables.core.identifiers import split_name
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.dags.callbacks import callbacks_of, look_up_name
from airflow_dynamic_tables.definitions.loader import load_sound_definitions, load_table_definitions, load_task_definitions
from airflow_dynamic_tables.definitions.model import AirflowPart, Conventions, Definitions, DynamicTable, settings_of
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, TableNotFoundError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.project import conventions_of
from airflow_dynamic_tables.services.refresh.preview import not_schedulable
from airflow_dynamic_tables.services.settings import parse_threshold, threshold_in

_POD = "pod_override"


def _executor_settings(table: DynamicTable) -> dict[str, Any]:
    """Return the executor and its config as operator arguments.

    The executor is omitted where a task runs, because the scheduler has selected it, and the worker's configuration may differ.

    :raises ConfigurationError: if Airflow has no such executor, or the pod does not exist.
    """
    settings: dict[str, Any] = {}
    if table.executor is not None and get_parsing_context().dag_id is None:
        _check_executor(table.executor)
        settings["executor"] = table.executor
    if table.executor_config is not None:
        config = dict(table.executor_config)
        if _POD in config:
            config[_POD] = _pod(config[_POD])
        settings["executor_config"] = config
    return settings


def _check_executor(name: str) -> None:
    if conf.getboolean("core", "multi_team", fallback=False):
        return  # the available executors depend on the team of the DAG folder
    try:
        ExecutorLoader.lookup_executor_name_by_str(name)
    except UnknownExecutorException:
        known = conf.get("core", "executor")
        raise ConfigurationError(f"executor: this Airflow has no {name!r}; [core] executor is {known!r}") from None


def _pod(path: str) -> object:
    pod = look_up_name(f"executor_config: {_POD}", path)
    # Compared by name, because Kubernetes may not be installed.
    if type(pod).__name__ != "V1Pod":
        raise ConfigurationError(f"executor_config: {_POD}: {path!r} is no kubernetes.client.models.V1Pod")
    return pod


_DEFAULT_ARGS: Mapping[str, Any] = {"retries": 2, "retry_delay": timedelta(minutes=5)}
"""Defaults for the tasks of scheduled tables."""

_CONTINUOUS_ARGS: Mapping[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=10)}
"""Defaults for continuous tasks, which are retried only if the worker died; the loop itself retries other failures."""

_TASK_SETTINGS = settings_of(AirflowPart.TASK)


@dataclass(frozen=True, slots=True)
class DagAccess:
    """Settings of refreshes: the connection, and the catalogs file beside the definitions, if there is one.

    ``definitions`` is their file or folder. ``default_args`` are Airflow's, used where the definitions have no value.
    """

    conn_id: str = DEFAULT_CONNECTION
    definitions: Path | None = None
    catalogs_file: Path | None = None
    poll_interval: float = 30
    default_args: Mapping[str, Any] = field(default_factory=dict)


def said(table: DynamicTable, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings with these names that the table defines."""
    return {name: value for name in names if (value := getattr(table, name)) is not None}


def task_settings(table: DynamicTable) -> dict[str, Any]:
    """Return the task settings of a definition as operator arguments, without callbacks.

    :raises ConfigurationError: if Airflow has no such executor, or its config names no pod.
    """
    return {**said(table, _TASK_SETTINGS), **_executor_settings(table)}


def default_args_of(table: DynamicTable) -> Mapping[str, Any]:
    """Return the defaults for task settings that are not set otherwise."""
    return _CONTINUOUS_ARGS if table.is_continuous else _DEFAULT_ARGS


def refresh_settings(table: DynamicTable) -> dict[str, Any]:
    """Return the settings of the task ``refresh`` in a definition as operator arguments, including callbacks.

    :raises ConfigurationError: if a callback, executor or pod does not exist.
    """
    return {"max_active_tis_per_dag": 1, **task_settings(table), **callbacks_of(table)}


def configured_poll_interval() -> float:
    """Return the seconds between two checks of pending parents, from Airflow's configuration."""
    return float(conf.get("dynamic_tables", "upstream_poll_interval", fallback="30"))


def configured_threshold() -> Freshness:
    """Return the freshness below which tables are refreshed continuously by default, from Airflow's configuration.

    :raises ConfigurationError: if it is not a valid duration.
    """
    text = str(conf.get("dynamic_tables", "freshness_threshold", fallback=""))
    return parse_threshold("[dynamic_tables] freshness_threshold", text) if text.strip() else threshold_in(os.environ)


def look_up(name: object, definitions: str | Path, catalogs_file: Path | None) -> tuple[DynamicTable, Definitions]:
    """Look up a table, and the definitions that its refresh requires. With a warm cache, nothing else is read.

    :param name: a name known when DAGs are created, usually the full name.
    :param definitions: a definitions file or folder.
    :param catalogs_file: determines how short names are completed.
    :raises ConfigurationError: if it is a template or not a valid name.
    :raises DefinitionError: if it is not found and definitions have mistakes; contains all of them.
    :raises TableNotFoundError: if it is not defined.
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
            # A mistake may be the reason.
            raise DefinitionError(mistakes) from None
        raise


def load_every(definitions: str | Path, catalogs_file: Path | None) -> tuple[Definitions, tuple[Mistake, ...]]:
    """Load all valid definitions, and all mistakes; see :func:`look_up` for the parameters."""
    return load_sound_definitions(Path(definitions), conventions=_conventions(catalogs_file))


def load_workflow(path: Path, workflow_id: str, catalogs_file: Path | None) -> Definitions:
    """Load the definitions required by a workflow, empty if broken or removed; see :func:`look_up` for the parameters."""
    return load_task_definitions(path, workflow_id, conventions=_conventions(catalogs_file))


def _conventions(catalogs_file: Path | None) -> Conventions:
    return conventions_of(os.environ, catalogs_file, configured_threshold())


def refreshable(table: DynamicTable) -> DynamicTable:
    """Return the table unchanged if it can be refreshed.

    :raises DefinitionError: if it cannot be refreshed, or names something that Airflow lacks.
    """
    problem = not_schedulable(table)
    try:
        refresh_settings(table)
    except ConfigurationError as error:
        problem = str(error)
    if problem:
        raise DefinitionError((Mistake(table.path, table.line, 1, f"{table.identifier}: {problem}"),))
    return table


def is_airflows(table: DynamicTable) -> bool:
    """Return whether Airflow schedules a table, not another scheduler."""
    return table.scheduler in (None, DEFAULT_SCHEDULER)
