"""CREATE TABLE AS as a task: what it makes, what becomes of it when it fails or is stopped, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.operators.one_off.create_table_as import CreateTableAsOperator
from airflow_dynamic_tables.operators.reconcilers import abort_refresh, complete_refresh
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_numbers

FIGURES = TableIdentifier("default", "shop", "figures")


def run(
    operator: CreateTableAsOperator, job: Callable[[RefreshPlan], None], monkeypatch: pytest.MonkeyPatch, token: str = "t1"
) -> dict[str, Any]:
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: job(plan))
    return operator.execute(context(operator, token))


def context(operator: CreateTableAsOperator, token: str = "t1") -> dict[str, Any]:
    return {"ti": SimpleNamespace(id=token, dag_id="dag", run_id="run", task_id="make"), "task": operator}


def opened(home: Path) -> Workspace:
    return open_workspace(embedded_settings({"AIRFLOW_HOME": str(home)}))


def operator_of(**options: Any) -> CreateTableAsOperator:
    return CreateTableAsOperator(task_id="make", **{"table": "shop.figures", "query": "SELECT 1 AS x", **options})


def test_the_table_is_there_and_the_task_tells_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run(operator_of(comment="three"), write_numbers, monkeypatch)
    assert (told["table"], told["outcome"], told["version"], told["rows"]) == ("default.shop.figures", "created", 1, 3)
    with opened(home) as workspace:
        assert [row["x"] for row in sample(workspace, FIGURES, 5)] == [1, 2, 3]
    told = run(operator_of(if_not_exists=True), lambda _: pytest.fail("Spark was started"), monkeypatch, "t2")
    assert told["outcome"] == "exists"
    assert run(operator_of(replace=True), write_numbers, monkeypatch, "t3")["outcome"] == "replaced"


def test_a_task_that_fails_leaves_no_table_and_another_try_makes_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: RefreshPlan) -> None:
        raise JobFailedError("DIVIDE_BY_ZERO")

    with pytest.raises(AirflowException, match="DIVIDE_BY_ZERO"):
        run(operator_of(), fail, monkeypatch)
    with opened(home) as workspace:
        assert not workspace.catalog("default").table_exists(FIGURES.path)
    assert run(operator_of(), write_numbers, monkeypatch, "t2")["outcome"] == "created"


def test_a_task_that_is_stopped_leaves_no_table(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_of()

    def stopped(plan: RefreshPlan) -> None:
        write_numbers(plan)
        operator.on_kill()

    with pytest.raises(AirflowException):
        run(operator, stopped, monkeypatch)
    with opened(home) as workspace:
        assert workspace.catalog("default").list_tables("shop") == []
        assert [stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))] == [StageState.ABORTED]


def test_its_callbacks_reconcile_and_never_take_a_table_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_of(on_failure_callback=print)
    assert operator.on_failure_callback == [print, abort_refresh]
    assert operator.on_success_callback == [complete_refresh]
    run(operator, write_numbers, monkeypatch)
    abort_refresh(context(operator))
    complete_refresh(context(operator))
    with opened(home) as workspace:
        assert [row["x"] for row in sample(workspace, FIGURES, 5)] == [1, 2, 3]


def test_table_query_and_how_are_templates_and_queries_may_be_files() -> None:
    assert {"table", "query", "format", "partitioned_by", "comment"} <= set(CreateTableAsOperator.template_fields)
    assert CreateTableAsOperator.template_ext == (".sql",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "a.b.c.d"}, "'a.b.c.d' has 4 parts; a table name has at most three: catalog.database.table."),
        ({"query": "SELECT x FROM nowhere"}, "query:1:15: unknown table 'nowhere'; "),
        ({"partitioned_by": "y"}, "partitioned_by:1:1: the query returns no column 'y'"),
        ({"format": "parkuet"}, "unknown format 'parkuet'; did you mean 'parquet'?"),
    ],
)
def test_wrong_uses_are_told(home: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], message: str) -> None:
    assert home.is_dir()
    with pytest.raises(AirflowException) as caught:
        run(operator_of(**options), lambda _: pytest.fail("Spark was started"), monkeypatch)
    assert str(caught.value).startswith(message)


def test_two_purposes_are_refused_when_the_dag_is_made() -> None:
    with pytest.raises(ConfigurationError, match="if_not_exists and replace contradict each other; give one of them"):
        operator_of(if_not_exists=True, replace=True)
