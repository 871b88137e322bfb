"""What a scheduler of workflows is: it has tables refreshed at their ticks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.core.identifiers import TableIdentifier

Handler = Mapping[str, str]
"""How a scheduler finds a workflow again, as plain data: the catalog keeps it with the table (seed: RefreshHandler).

It has ``schedulerType``, ``endpoint`` and ``workflowId``; what else is in it is the scheduler's own affair. Never a secret.
"""


DAG_TAG = "dynamic-table"
"""Tag of all DAGs in Airflow that are made of definitions."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """What a scheduler is to do: have a table refreshed at the ticks of ``cron``, five fields of Unix, in ``timezone``.

    ``workflow_id`` is the name that its table gives it.
    """

    table: TableIdentifier
    workflow_id: str
    cron: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a workflow: the handler that the catalog is to keep from now on, and a sentence for people."""

    handler: Handler
    told: str


class WorkflowScheduler(ABC):
    """Makes, suspends, resumes and deletes the workflows of tables; a context manager that closes its connections.

    Every method takes bounded time and is idempotent, so that one that a kill cut short is simply called again. All of them raise
    :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when the scheduler cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when it does not let us in, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when it said no.
    """

    @classmethod
    @abstractmethod
    def from_connections(cls, connections: Connections) -> Self:
        """The scheduler of this installation; connects to nothing yet.

        :param connections: where address and credentials are found, by the id of a connection.
        :raises ConfigurationError: when they are missing, or wrong.
        """

    @abstractmethod
    def create(self, workflow: Workflow) -> Outcome:
        """Have a table refreshed from now on; one that is there already is brought to this cron expression and time zone.

        :raises UnsupportedScheduleError: when this scheduler has no such schedule.
        """

    @abstractmethod
    def suspend(self, handler: Handler) -> Outcome:
        """Begin no refresh any more; what runs goes on to its end.

        :raises WorkflowNotFoundError: when there is no such workflow.
        """

    @abstractmethod
    def resume(self, handler: Handler) -> Outcome:
        """Begin refreshes again; ticks that were missed are not made up for one by one.

        :raises WorkflowNotFoundError: as of :meth:`suspend`.
        """

    @abstractmethod
    def delete(self, handler: Handler) -> Outcome:
        """Take a workflow away; nothing happens to one that is gone."""

    def paused(self, workflow_ids: Collection[str]) -> Mapping[str, bool]:  # noqa: ARG002
        """Whether each of these workflows is paused; without those that do not exist, and empty where a scheduler cannot tell."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
