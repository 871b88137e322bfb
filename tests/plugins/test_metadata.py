"""Airflow's DAGs by its metadata database, as ``airflow dynamic-tables`` asks for them."""

from __future__ import annotations

import pytest
from airflow import models, settings
from airflow.models.base import Base
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbundle import DagBundleModel
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from airflow_dynamic_tables.clients.connections import environment_connections
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerUnavailableError, WorkflowNotFoundError
from airflow_dynamic_tables.plugins.metadata import AirflowMetadata, open_here
from airflow_dynamic_tables.schedulers.airflow import Dag
from airflow_dynamic_tables.schedulers.base import DAG_TAG


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> AirflowMetadata:
    """An Airflow with eight DAGs of tables, of which every other one is paused, and one of another author."""
    engine = create_engine("sqlite://")
    models.import_all_models()
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    monkeypatch.setattr(settings, "Session", sessions)
    with sessions.begin() as session:
        session.add(DagBundleModel(name="dags"))
        for number in range(8):
            dag = DagModel(dag_id=f"d{number}", is_paused=number % 2 == 0, is_stale=False, bundle_name="dags")
            dag.tags = [DagTag(name=DAG_TAG, dag_id=dag.dag_id)]
            session.add(dag)
        session.add(DagModel(dag_id="other", is_paused=True, is_stale=False, bundle_name="dags"))
    return AirflowMetadata()


@pytest.mark.usefixtures("airflow")
def test_which_dags_are_paused() -> None:
    with open_here("airflow", pytest.fail) as scheduler:
        assert scheduler.paused(["d0", "d1", "none"]) == {"d0": True, "d1": False}
        everything = {f"d{number}" for number in range(100)}
        assert scheduler.paused(everything) == {f"d{number}": number % 2 == 0 for number in range(8)}


def test_a_dag_is_paused_and_unpaused(airflow: AirflowMetadata) -> None:
    airflow.set_paused("d0", is_paused=False)
    assert airflow.dag("d0") == Dag("d0", is_paused=False, is_stale=False)
    assert airflow.dag("none") is None
    with pytest.raises(WorkflowNotFoundError, match="no DAG none"):
        airflow.set_paused("none", is_paused=True)
    with pytest.raises(WorkflowNotFoundError, match="no DAG d0"):
        airflow.refreshes("d0")  # without its serialized form


def test_a_database_without_tables_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "Session", sessionmaker(create_engine("sqlite://")))
    with pytest.raises(SchedulerUnavailableError, match="metadata database cannot be asked"):
        AirflowMetadata().dag("d0")


def test_without_a_database_airflow_is_asked_by_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "Session", None)
    with pytest.raises(ConfigurationError, match="AIRFLOW_CONN_DYNAMIC_TABLES_AIRFLOW"):
        open_here("airflow", environment_connections({}))
