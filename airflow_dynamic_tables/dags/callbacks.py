"""Callbacks named in definitions, imported when DAGs are created, so that a wrong name is reported early.

SystemExit is handled like other exceptions, because a module that calls ``sys.exit`` would break the DAG file of all tables.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow import __version__ as airflow_version
from airflow.executors.executor_loader import ExecutorLoader
from airflow.providers.common.compat.sdk import BaseNotifier
from airflow.providers.common.compat.version_compat import get_base_airflow_version_tuple
from airflow.sdk import get_parsing_context
from airflow.sdk.definitions.callback import AsyncCallback, SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_dynamic_tables.definitions.model import AirflowPart, Callback, DynamicTable, settings_of
from airflow_dynamic_tables.exceptions import ConfigurationError

Callbacks = dict[str, list[Callable[..., Any]]]

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


def late_callbacks_of(table: DynamicTable) -> dict[str, Callable[..., Any]]:
    """Return the callbacks to call when the table is late, each by a digest that identifies it.

    Notifiers are new ones at each call, because rendering changes them.

    :raises ConfigurationError: if a function or notifier does not exist, or cannot be called without being awaited.
    """
    callbacks: dict[str, Callable[..., Any]] = {}
    for named in table.on_late_callback or ():
        called = imported("on_late_callback", named)
        if _is_async(called):
            raise ConfigurationError(f"on_late_callback: {named.path!r} is async, and a task calls it; name a function")
        text = json.dumps([named.path, named.arguments], sort_keys=True)
        callbacks[hashlib.sha256(text.encode()).hexdigest()] = called
    return callbacks


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


_REFERENCES = {"queued_at": DeadlineReference.DAGRUN_QUEUED_AT, "logical_date": DeadlineReference.DAGRUN_LOGICAL_DATE}


def deadlines_of(table: DynamicTable) -> list[DeadlineAlert]:
    """Return an alert for each callback of the deadline; empty if the table has no deadline, or where a task runs.

    Only the scheduler watches deadlines, and workers need not be able to import the callbacks.

    :raises ConfigurationError: if a callback does not exist, or Airflow could not call it.
    """
    if table.deadline is None or get_parsing_context().dag_id is not None:
        return []
    reference = _REFERENCES[table.deadline.reference]
    interval = table.deadline.after or table.freshness.period
    return [DeadlineAlert(reference, interval, _callback(table, named)) for named in table.deadline.callback]


def _callback(table: DynamicTable, named: Callback) -> AsyncCallback | SyncCallback:
    module, _, attribute = named.path.partition(":")
    if "." in attribute:
        raise _mistake(named, "is not at the top of its module, where Airflow looks for it")
    if "context" in (named.arguments or {}):
        raise _mistake(named, "gets 'context' from Airflow; take it out of its arguments")
    called = imported("deadline", named)
    if named.arguments is None and not _takes_context(called):
        raise _mistake(named, "cannot be called with the one argument 'context'")
    path, arguments = f"{module}.{attribute}", dict(named.arguments or {})
    if _is_async(called):
        _check_triggerer_finds(table, named, module)
        return AsyncCallback(path, arguments)
    if incapable := _incapable_of_calling():
        raise _mistake(named, f"cannot be called by {incapable}; only an async one can, which the triggerer calls")
    return SyncCallback(path, arguments)


def _incapable_of_calling() -> str | None:
    """Return what prevents calls in an executor: Airflow 3.2 does not store the run of such a call, and then skips it."""
    if get_base_airflow_version_tuple() < (3, 3, 0):
        return f"Airflow {airflow_version}"
    executor = ExecutorLoader.import_default_executor_cls()[0]
    return None if getattr(executor, "supports_callbacks", False) else f"the {executor.__name__}"


def _takes_context(called: Callable[..., Any]) -> bool:
    """Return whether a callable can be called as Airflow does, with the keyword argument context only."""
    try:
        inspect.signature(called).bind(context={})
    except TypeError:
        return False
    return True


def _is_async(called: Callable[..., Any]) -> bool:
    """Return whether a callable is awaited. A notifier that supports both is not, because its templates then have the run."""
    if isinstance(called, BaseNotifier):
        return type(called).notify is BaseNotifier.notify
    return inspect.iscoroutinefunction(called)


def _check_triggerer_finds(table: DynamicTable, named: Callback, module: str) -> None:
    """Reject imports from the DAG folder that contains the definitions, which Airflow adds to the path for DAGs only."""
    top = sys.modules[module.partition(".")[0]]
    place = next(iter(getattr(top, "__path__", ())), None) or getattr(top, "__file__", None)
    folder = Path(place).parent if place else None
    if folder and table.path.is_relative_to(folder) and str(folder) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        raise _mistake(named, "is async, and the triggerer imports nothing from folders of DAGs; move it to the plugins folder")


def _mistake(named: Callback, what: str) -> ConfigurationError:
    return ConfigurationError(f"deadline: {named.path!r} {what}")
