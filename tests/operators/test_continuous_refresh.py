"""The task of a table in continuous mode, where Airflow has something to say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DagResult, DRCount, ErrorResponse, GetDag
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_dynamic_tables.dags.schedules import CONTINUOUS_TAG
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.operators.continuous_refresh import ContinuousRefreshOperator
from airflow_dynamic_tables.operators.run_arguments import OF_CONTINUOUS
from airflow_dynamic_tables.services.continuous.loop import Halt
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.pyarrow_job import write_numbers

GONE = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "gone"}))
BEGIN = datetime(2024, 1, 2, 10, 30, 7, tzinfo=UTC)
TOKEN = "0190b2f4-0000-7000-8000-000000000001"


class AirflowDags:
    """Answers as the supervisor of a task does: no run waits, and the DAG has those tags."""

    def __init__(self, *answers: list[str] | Exception) -> None:
        self.answers = list(answers)

    def send(self, msg: object) -> DagResult | DRCount:
        if not isinstance(msg, GetDag):
            return DRCount(count=0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        none: dict[str, Any] = dict.fromkeys(("bundle_name", "bundle_version", "relative_fileloc", "owners", "next_dagrun"))
        return DagResult(dag_id=msg.dag_id, is_paused=False, tags=answer, **none)


def run_with(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    *answers: list[str] | Exception,
    last_run: SimpleNamespace | None = None,
    tries: int = 1,
    kill: bool = False,
) -> tuple[dict[str, Any], int]:
    """What a run that the schedule made returns, and how many jobs it began.

    :param last_run: the run before it.
    :param kill: stop the task right after its first job.
    """
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", AirflowDags(*answers), raising=False)
    (home / "tables.yaml").write_text("dynamic_tables: [{name: lake.sales.live, freshness: 1 minute, query: SELECT 1 AS x}]")
    definitions = load_definitions(home / "tables.yaml", cache=Cache(None))
    (table,) = definitions.tables.values()
    operator = ContinuousRefreshOperator(task_id="refresh", table=table, definitions=definitions, runs=OF_CONTINUOUS)
    jobs: list[object] = []

    def submit(_context: object, _workspace: object, plan: Any) -> None:
        jobs.append(plan)
        write_numbers(plan)
        if kill:
            operator.on_kill()

    monkeypatch.setattr("airflow_dynamic_tables.services.continuous.loop._ASKED", 0.05)  # seconds
    monkeypatch.setattr(operator, "_find_spark", lambda: None)
    monkeypatch.setattr(operator, "_submit", submit)
    ti = SimpleNamespace(
        id=TOKEN,
        dag_id="dag",
        run_id="run",
        task_id="refresh",
        try_number=tries,
        get_previous_dagrun=lambda: last_run,
        xcom_push=lambda **_: None,
    )
    run = SimpleNamespace(conf={}, run_type="scheduled", start_date=BEGIN)
    context = {"ti": ti, "dag_run": run, "params": {}, "logical_date": BEGIN, "outlet_events": OutletEventAccessors()}
    return operator.execute(context), len(jobs)


def test_a_loop_ends_when_its_dag_has_a_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    continuous = ["dynamic-table", CONTINUOUS_TAG]
    ended, jobs = run_with(tmp_path, monkeypatch, continuous, continuous, ["dynamic-table"])
    assert (ended["turns"], ended["ended"], jobs) == (1, "its DAG has a schedule now", 1)
    assert [commit["version"] for commit in ended["commits"]] == [1]


@pytest.mark.parametrize("tags", [["dynamic-table"], []])
def test_a_worker_that_alone_takes_a_table_for_continuous_refreshes_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: list[str]
) -> None:
    report, jobs = run_with(tmp_path, monkeypatch, tags)
    assert (report["version"], report["refresh"], jobs) == (1, TOKEN, 1)


def test_an_airflow_that_does_not_answer_ends_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended, jobs = run_with(tmp_path, monkeypatch, GONE, GONE, [])
    assert (ended["turns"], ended["ended"], jobs) == (1, "its DAG has a schedule now", 1)
    assert "Airflow does not say which schedule dag has: API_SERVER_ERROR" in caplog.text


CONTINUOUS = ["dynamic-table", CONTINUOUS_TAG]


@pytest.mark.parametrize(
    ("kind", "state", "ago", "tries", "turns"),
    [
        ("scheduled", "failed", 1, 1, 0),
        ("scheduled", "failed", 301, 1, 1),  # its delay is over
        ("scheduled", "failed", 1, 2, 1),  # a worker died, and Airflow waited before this try
        ("scheduled", "success", 1, 1, 1),
        ("manual", "failed", 1, 1, 1),
    ],
)
def test_after_a_run_that_failed_the_next_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str, ago: int, tries: int, turns: int
) -> None:
    last_run = SimpleNamespace(run_type=kind, state=state, end_date=datetime.now(UTC) - timedelta(seconds=ago))
    ended, jobs = run_with(tmp_path, monkeypatch, CONTINUOUS, CONTINUOUS, [], last_run=last_run, tries=tries)
    assert (ended["turns"], jobs) == (turns, turns)


def test_a_task_that_is_stopped_ends_green_without_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _ = run_with(tmp_path, monkeypatch, CONTINUOUS, kill=True)
    assert (ended["ended"], ended["commits"]) == ("the task was stopped", [])
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        (refresh,) = workspace.ledger.list_refreshes()
        assert (refresh.state, workspace.ledger.list_stages()) == (RefreshState.ABORTED, [])


STREAM = """\
sources: [{name: raw.events, format: json, path: events, schema: id BIGINT}]
dynamic_tables:
- name: lake.web.seen
  freshness: 1 minute
  continuous: {strategy: stream}
  spark: {conn_id: warm}
  query: SELECT id FROM raw.events
"""


def test_a_stream_is_refused_by_a_server_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_WARM", '{"conn_type": "spark_connect", "host": "spark.example"}')
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", AirflowDags(CONTINUOUS), raising=False)
    (tmp_path / "tables.yaml").write_text(STREAM)
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    (table,) = definitions.tables.values()
    operator = ContinuousRefreshOperator(task_id="refresh", table=table, definitions=definitions, runs=OF_CONTINUOUS)
    run = SimpleNamespace(conf={}, run_type="scheduled", start_date=BEGIN)
    ti = SimpleNamespace(id=TOKEN, dag_id="dag", run_id="run", task_id="refresh")
    context: Any = {"ti": ti, "dag_run": run, "params": {}, "outlet_events": OutletEventAccessors()}
    with pytest.raises(AirflowFailException, match=r"seen is kept fresh by a stream .*connection 'warm' leads to a Spark"):
        operator.execute(context)
    assert not (tmp_path / "dynamic_tables").exists()


def test_a_loop_keeps_half_of_the_time_that_a_timeout_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(
        "dynamic_tables: [{name: a.b.live, freshness: 1 minute, execution_timeout: 40 minutes, query: SELECT 1 AS x}]"
    )
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    operator = ContinuousRefreshOperator(task_id="refresh", table="a.b.live", definitions=definitions)
    assert operator._hold() == timedelta(minutes=20)


def test_a_suspended_table_keeps_its_task_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", AirflowDags(CONTINUOUS), raising=False)
    (tmp_path / "tables.yaml").write_text("dynamic_tables: [{name: a.b.live, freshness: 1 minute, query: SELECT 1 AS x}]")
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    operator = ContinuousRefreshOperator(
        task_id="refresh", table="a.b.live", definitions=definitions, definitions_path=tmp_path / "tables.yaml"
    )
    (table,) = definitions.tables.values()
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        monkeypatch.setenv("DYNAMIC_TABLES_CACHE", "")
        context: Any = {"ti": SimpleNamespace(dag_id=table.workflow_id)}
        halt = operator._halt(context, workspace)
        ensure(workspace, table)
        assert halt() is None
        suspend(workspace, table.identifier)
        assert halt() == Halt("a.b.live is suspended; resume it to refresh again")
        resume(workspace, table.identifier)
        assert halt() is None
        text = (tmp_path / "tables.yaml").read_text()
        (tmp_path / "tables.yaml").write_text(text.replace("freshness", "freshnes"))
        assert halt() == Halt("the definition of a.b.live is gone, or has mistakes")
        (tmp_path / "tables.yaml").write_text(f"# moved\n{text}")
        assert halt() is None
        (tmp_path / "tables.yaml").write_text(text.replace("1 AS x", "2 AS x"))
        assert halt() == Halt("its definition changed", ends=True)
