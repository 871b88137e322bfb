"""Registry of schedulers: built-in ones, and those of installed packages by entry point."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.core.mistakes import did_you_mean, shown
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.schedulers.base import WorkflowScheduler

ENTRY_POINTS = "airflow_dynamic_tables.schedulers"
"""The entry point group: names of schedulers, and their :class:`WorkflowScheduler` classes."""

DEFAULT_SCHEDULER = "airflow"

_HERE = "airflow_dynamic_tables.schedulers"

_OURS = {
    "airflow": ("dynamic_tables_airflow", f"{_HERE}.airflow:AirflowScheduler"),
    "dolphinscheduler": ("dynamic_tables_dolphinscheduler", f"{_HERE}.dolphinscheduler:DolphinScheduler"),
}
"""The connection of each built-in scheduler. It is looked up before the import, because HTTP clients import slowly."""


def open_scheduler(name: str, connections: Connections) -> WorkflowScheduler:
    """Return the scheduler of that name, to be used as a context manager; connects to nothing yet.

    :raises ConfigurationError: when it does not exist, when two packages provide it, or when its connection is missing or
        wrong.
    """
    if name in _OURS:
        connections(_OURS[name][0])
    return _class_of(name).from_connections(connections)


def known_schedulers() -> tuple[str, ...]:
    """Return the names of all schedulers, sorted."""
    return tuple(sorted({*_OURS, *(entry.name for entry in entry_points(group=ENTRY_POINTS))}))


def _class_of(name: str) -> type[WorkflowScheduler]:
    if name in _OURS:
        module, _, class_name = _OURS[name][1].partition(":")
        return cast(type[WorkflowScheduler], getattr(import_module(module), class_name))
    brought = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.name == name]
    if not brought:
        known = known_schedulers()
        hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
        raise ConfigurationError(f"Nobody brings a scheduler {shown(name)}{hint}.")
    if len({entry.value for entry in brought}) > 1:
        values = " and ".join(sorted(entry.value for entry in brought))
        raise ConfigurationError(f"Scheduler {shown(name)} is brought twice, by {values}; uninstall one of the packages.")
    return _loaded(brought[0])


def _loaded(entry: EntryPoint) -> type[WorkflowScheduler]:
    try:
        scheduler = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"Scheduler {entry.name} cannot be imported from {entry.value}: {error}") from error
    if not (isinstance(scheduler, type) and issubclass(scheduler, WorkflowScheduler)):
        raise ConfigurationError(f"Scheduler {entry.name} is {entry.value}, which is no WorkflowScheduler.")
    return scheduler
