"""The callbacks that definitions name, imported when DAGs are made: a wrong name must not be noticed when one is needed.

A module that calls ``sys.exit`` would end the DAG file of all tables: SystemExit is a mistake like any other exception here.
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
"""What Airflow has to call, by its own name of the occasion."""

_OF_THE_DAG = "dag_"

_OF_DAGS = settings_of(AirflowPart.DAG_CALLBACK)
_OF_TASKS = settings_of(AirflowPart.TASK_CALLBACK)


def callbacks_of(table: DynamicTable) -> Callbacks:
    """The callbacks of its tasks; without those that the table does not name.

    :raises ConfigurationError: when there is no such function or notifier.
    """
    named = {name: callbacks for name in _OF_TASKS if (callbacks := getattr(table, name)) is not None}
    return {name: [imported(name, callback) for callback in callbacks] for name, callbacks in named.items()}


def dag_callbacks_of(table: DynamicTable) -> Callbacks:
    """The callbacks of its DAG, which Airflow calls when a run is over; only those that there are.

    :raises ConfigurationError: when there is no such function or notifier.
    """
    # Airflow keeps whether a DAG has any, and not how many.
    named = {name: callbacks for name in _OF_DAGS if (callbacks := getattr(table, name))}
    return {
        name.removeprefix(_OF_THE_DAG): [imported(name, callback) for callback in callbacks] for name, callbacks in named.items()
    }


def imported(name: str, callback: Callback) -> Callable[..., Any]:
    """What a callback names: a function, or a notifier that was made with its arguments.

    :param name: the setting, for the message.
    :raises ConfigurationError: when there is no such function or notifier.
    """
    value: Callable[..., Any] = look_up_name(name, callback.path)
    if callback.arguments is None:
        # A class would be made with the context, and nobody would be told.
        if isinstance(value, type) or not callable(value):
            raise ConfigurationError(f"{name}: {callback.path!r} is no function; a notifier needs {{notifier: …, arguments: …}}")
        return value
    # Only these: whoever writes definitions shall not call any class of Python while DAGs are made.
    if not isinstance(value, type) or not issubclass(value, BaseNotifier):
        raise ConfigurationError(f"{name}: {callback.path!r} is no class of notifiers")
    try:
        return value(**callback.arguments)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{name}: {callback.path!r} does not take these arguments: {error}") from error


def look_up_name(setting: str, path: str) -> Any:
    """What ``module:name`` stands for.

    :param setting: where it is named, for the message.
    :raises ConfigurationError: when it cannot be imported.
    """
    module, _, attribute = path.partition(":")
    try:
        return reduce(getattr, attribute.split("."), import_module(module))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{setting}: {path!r} cannot be imported where Airflow reads DAGs ({reason})") from error
