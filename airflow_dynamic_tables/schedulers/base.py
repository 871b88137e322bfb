"""The interface of workflow schedulers, which refresh tables at their ticks, and their registry.

The registry has the built-in schedulers, and those of installed packages by entry point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Self, cast

from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean, shown
from airflow_dynamic_tables.exceptions import ConfigurationError

Handler = Mapping[str, str]
"""Plain data by which a scheduler finds a workflow; the catalog stores it with the table (seed: RefreshHandler).

It has ``schedulerType``, ``endpoint`` and ``workflowId``; other keys are internal to the scheduler. It never contains a
secret.
"""


DAG_TAG = "dynamic-table"
"""Tag of all Airflow DAGs generated from definitions."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow that refreshes a table at the ticks of ``cron``, a five-field Unix expression, in ``timezone``.

    ``workflow_id`` is the id that the table defines.
    """

    table: TableIdentifier
    workflow_id: str
    cron: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change of a workflow: the new handler for the catalog, and a sentence for users."""

    handler: Handler
    told: str


class WorkflowScheduler(ABC):
    """Creates, suspends, resumes and deletes the workflows of tables; a context manager that closes its connections.

    Every method takes bounded time and is idempotent, so that an interrupted call can be repeated. All of them raise
    :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when the scheduler cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when access is denied, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when it rejects the request.
    """

    @classmethod
    @abstractmethod
    def from_connections(cls, connections: Connections) -> Self:
        """Return the scheduler of this installation; connects to nothing yet.

        :param connections: looks up address and credentials by connection id.
        :raises ConfigurationError: when they are missing, or wrong.
        """

    @abstractmethod
    def create(self, workflow: Workflow) -> Outcome:
        """Create the workflow of a table; an existing one is updated to the cron expression and time zone.

        :raises UnsupportedScheduleError: when this scheduler does not support the schedule.
        """

    @abstractmethod
    def suspend(self, handler: Handler) -> Outcome:
        """Stop starting refreshes; running ones are not interrupted.

        :raises WorkflowNotFoundError: when there is no such workflow.
        """

    @abstractmethod
    def resume(self, handler: Handler) -> Outcome:
        """Start refreshes again; missed ticks are not caught up individually.

        :raises WorkflowNotFoundError: as of :meth:`suspend`.
        """

    @abstractmethod
    def delete(self, handler: Handler) -> Outcome:
        """Delete a workflow; does nothing if it does not exist."""

    def paused(self, workflow_ids: Collection[str]) -> Mapping[str, bool]:  # noqa: ARG002
        """Return whether each workflow is paused, without missing workflows; empty if the scheduler cannot tell."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


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
        raise ConfigurationError(f"There is no scheduler {shown(name)}{hint}.")
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
