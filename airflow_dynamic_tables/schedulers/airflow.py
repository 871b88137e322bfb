"""Airflow as the scheduler. The DAG factory makes its workflows; here they are paused, unpaused and forgotten."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, Self

from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.schedulers.airflow_api import AirflowApi, Dag
from airflow_dynamic_tables.schedulers.base import Handler, Outcome, Workflow, WorkflowScheduler
from airflow_dynamic_tables.schedulers.http import address_of

CONNECTION = "dynamic_tables_airflow"
"""The connection by which Airflow's REST API is reached."""


_FEW = 5
"""DAGs up to which each is asked for by itself."""


class Airflow(Protocol):
    """What is asked of an Airflow; :class:`~airflow_dynamic_tables.schedulers.airflow_api.AirflowApi` asks by its REST API."""

    @property
    def url(self) -> str:
        """Where it is."""

    def dag(self, dag_id: str) -> Dag | None:
        """A DAG; ``None`` when Airflow has none of that id."""

    def dags(self) -> list[Dag]:
        """All DAGs that are made of definitions."""

    def set_paused(self, dag_id: str, is_paused: bool) -> None:
        """Pause a DAG, or unpause it."""

    def refreshes(self, dag_id: str) -> int:
        """How many tasks of a DAG refresh a table each."""

    def delete(self, dag_id: str) -> bool:
        """Delete what Airflow keeps of a DAG and its runs, and whether there was anything."""

    def close(self) -> None:
        """Let go of the connections."""


class AirflowScheduler(WorkflowScheduler):
    """The DAGs that :func:`~airflow_dynamic_tables.dag_factory.load_dynamic_tables` makes.

    A DAG that refreshes other tables, too, is neither paused nor unpaused: a refresh of the suspended one does nothing there.
    """

    def __init__(self, api: Airflow) -> None:
        self._api = api

    @classmethod
    def from_connections(cls, connections: Connections) -> Self:
        """That of connection ``dynamic_tables_airflow``."""
        connection = connections(CONNECTION)
        return cls(AirflowApi(address_of("Airflow", CONNECTION, connection), connection))

    def create(self, workflow: Workflow) -> Outcome:
        """Say whether Airflow has the DAG already. It makes it of the definitions, and takes the schedule from there."""
        dag_id = workflow.workflow_id
        dag = self._api.dag(dag_id)
        if dag is None or dag.is_stale:
            told = f"Airflow does not have the DAG {dag_id} yet; it makes it when it next reads the definitions."
        else:
            told = f"Airflow has the DAG {dag_id}{', which is paused' if dag.is_paused else ''}."
        return Outcome({"schedulerType": "airflow", "endpoint": self._api.url, "workflowId": dag_id}, told)

    def suspend(self, handler: Handler) -> Outcome:
        """Pause the DAG, when it is the table's alone."""
        return self._set_paused(handler, is_paused=True)

    def resume(self, handler: Handler) -> Outcome:
        """Unpause the DAG, when it is the table's alone."""
        return self._set_paused(handler, is_paused=False)

    def delete(self, handler: Handler) -> Outcome:
        """Delete what Airflow keeps of the DAG and its runs, unless it refreshes other tables, too."""
        dag_id = handler["workflowId"]
        dag = self._api.dag(dag_id)
        if dag is None:
            return Outcome(handler, f"Airflow has no DAG {dag_id}.")
        # One that the definitions make no more keeps the tasks that it had last: whose they were no matter.
        if not dag.is_stale and (others := self._api.refreshes(dag_id) - 1) > 0:
            return Outcome(handler, f"The DAG {dag_id} stays: it refreshes {_tables(others)} more.")
        self._api.delete(dag_id)
        return Outcome(handler, f"Airflow has forgotten the DAG {dag_id} and its runs.")

    def paused(self, workflow_ids: Collection[str]) -> dict[str, bool]:
        """See :meth:`WorkflowScheduler.paused`."""
        asked = map(self._api.dag, workflow_ids) if len(workflow_ids) <= _FEW else self._api.dags()
        return {dag.dag_id: dag.is_paused for dag in asked if dag is not None and dag.dag_id in workflow_ids}

    def close(self) -> None:
        """Let go of the connections."""
        self._api.close()

    def _set_paused(self, handler: Handler, *, is_paused: bool) -> Outcome:
        dag_id = handler["workflowId"]
        verb = "paused" if is_paused else "unpaused"
        if (others := self._api.refreshes(dag_id) - 1) > 0:
            return Outcome(handler, f"The DAG {dag_id} is not {verb}: it refreshes {_tables(others)} more.")
        self._api.set_paused(dag_id, is_paused)
        return Outcome(handler, f"The DAG {dag_id} is {verb}.")


def _tables(count: int) -> str:
    return "one table" if count == 1 else f"{count} tables"
