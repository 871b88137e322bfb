"""Callbacks named in definitions, imported when DAGs are created, so that a wrong name is reported early.

SystemExit is handled like other exceptions, because a module that calls ``sys.exit`` would break the DAG file of all tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_dynamic_tables.definitions.model import AirflowPart, Callback, DynamicTable, settings_of
from airflow_dynamic_tables.exceptions import ConfigurationError

Callbacks = dict[str, list[Callable[..., Any]]]
"""Callbacks by Airflow's argument name."""

_OF_THE_DAG = "dag_"

_OF_DAGS = settings_of(AirflowPart.DAG_CALLBACK)
_OF_TASKS = settings_of(AirflowPart.TASK_CALLBACK)


def callbacks_of(table: DynamicTable) -> Callbacks:
    """Return the callbacks of the table's tasks that are set.

    :raises ConfigurationError: if a function or notifier does not exist.
    """
    named = {name: callbacks for name in _OF_TASKS if (callbacks := getattr(table, name)) is not None}
    return {name: [imported(name, callback) for callback in callbacks] for name, callbacks in named.items()}


def dag_callbacks_of(table: DynamicTable) -> Callbacks:
    """Return the callbacks of the table's DAG, which Airflow calls at the end of a run; only those that are set.

    :raises ConfigurationError: if a function or notifier does not exist.
    """
    # Airflow stores whether a DAG has callbacks, not how many.
    named = {name: callbacks for name in _OF_DAGS if (callbacks := getattr(table, name))}
    return {
        name.removeprefix(_OF_THE_DAG): [imported(name, callback) for callback in callbacks] for name, callbacks in named.items()
    }


def imported(name: str, callback: Callback) -> Callable[..., Any]:
    """Import a callback: a function, or a notifier created with its arguments.

    :raises ConfigurationError: if the function or notifier does not exist.
    """
    value: Callable[..., Any] = look_up_name(name, callback.path)
    if callback.arguments is None:
        # A class would be instantiated with the context, without notifying anyone.
        if isinstance(value, type) or not callable(value):
            raise ConfigurationError(f"{name}: {callback.path!r} is no function; a notifier needs {{notifier: …, arguments: …}}")
        return value
    # Only notifiers, because authors of definitions must not call arbitrary classes when DAGs are created.
    if not isinstance(value, type) or not issubclass(value, BaseNotifier):
        raise ConfigurationError(f"{name}: {callback.path!r} is no class of notifiers")
    try:
        return value(**callback.arguments)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{name}: {callback.path!r} does not take these arguments: {error}") from error


def look_up_name(setting: str, path: str) -> Any:
    """Import the object named ``module:name``.

    :raises ConfigurationError: if it cannot be imported.
    """
    module, _, attribute = path.partition(":")
    try:
        return reduce(getattr, attribute.split("."), import_module(module))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{setting}: {path!r} cannot be imported where Airflow reads DAGs ({reason})") from error
