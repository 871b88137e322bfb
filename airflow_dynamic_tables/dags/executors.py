"""Executor settings of definitions, checked here because Airflow's errors would hide all DAGs of the loader's file."""

from __future__ import annotations

from typing import Any

from airflow.exceptions import UnknownExecutorException
from airflow.executors.executor_loader import ExecutorLoader
from airflow.providers.common.compat.sdk import conf
from airflow.sdk import get_parsing_context

from airflow_dynamic_tables.dags.callbacks import look_up_name
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError

_POD = "pod_override"


def executor_settings(table: DynamicTable) -> dict[str, Any]:
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
