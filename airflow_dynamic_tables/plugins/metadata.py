"""DAGs of this Airflow in its metadata database, for ``airflow dynamic-tables`` without a connection to Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow import settings
from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.clients.sql_servers import reason
from airflow_dynamic_tables.exceptions import SchedulerUnavailableError, WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.airflow import REFRESHES, AirflowScheduler, Dag
from airflow_dynamic_tables.schedulers.base import DAG_TAG, DEFAULT_SCHEDULER, WorkflowScheduler, open_scheduler

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def open_here(name: str, connections: Connections) -> WorkflowScheduler:
    """Return the scheduler with a name; Airflow is the current one if its database is accessible."""
    has_database = getattr(settings, "Session", None) is not None
    is_here = name == DEFAULT_SCHEDULER and has_database
    return AirflowScheduler(AirflowMetadata()) if is_here else open_scheduler(name, connections)


class AirflowMetadata:
    """See :class:`~airflow_dynamic_tables.schedulers.airflow.Airflow`."""

    url = ""

    def dag(self, dag_id: str) -> Dag | None:
        """Return a DAG; ``None`` if it does not exist."""
        with _session() as session:
            found = session.get(DagModel, dag_id)
            return _dag(found) if found is not None else None

    def dags(self) -> list[Dag]:
        """Return all DAGs that are created from definitions."""
        with _session() as session:
            tagged = select(DagModel).where(DagModel.tags.any(name=DAG_TAG))
            return [_dag(found) for found in session.scalars(tagged)]

    def set_paused(self, dag_id: str, is_paused: bool) -> None:
        """Pause or unpause a DAG.

        :raises WorkflowNotFoundError: if Airflow has no such DAG.
        """
        with _session() as session:
            found = session.get(DagModel, dag_id)
            if found is None:
                raise _unknown(dag_id)
            found.is_paused = is_paused

    def refreshes(self, dag_id: str) -> int:
        """Return the number of refresh tasks in a DAG.

        :raises WorkflowNotFoundError: if Airflow has no such DAG.
        """
        with _session() as session:
            found = SerializedDagModel.get(dag_id, session=session)
            if found is None:
                raise _unknown(dag_id)
            return sum(task.task_type in REFRESHES for task in found.dag.tasks)

    def delete(self, dag_id: str) -> bool:
        """Delete Airflow's records of a DAG and its runs, and return whether there were any."""
        from airflow.api.common.delete_dag import delete_dag
        from airflow.exceptions import DagNotFound

        try:
            with _session() as session:
                return delete_dag(dag_id, session=session) > 0
        except DagNotFound:
            return False

    def close(self) -> None:
        """Do nothing, because no resources are held."""


@contextmanager
def _session() -> Iterator[Session]:
    try:
        with create_session() as session:
            yield session
    except DBAPIError as error:
        raise SchedulerUnavailableError(f"Airflow's metadata database cannot be asked: {reason(error)}") from error


def _dag(found: DagModel) -> Dag:
    return Dag(found.dag_id, bool(found.is_paused), bool(found.is_stale))


def _unknown(dag_id: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(
        f"Airflow has no DAG {dag_id}; it makes one when it has read the definitions, unless they are wrong or somewhere else."
    )
