"""The tasks of the verification DAG: what makes one fail, what makes one skip."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.verification import VerifyOperator
from tests.operators.test_dynamic_table_refresh import TICK, context
from tests.support.jobs import refresh

TABLE = """
dynamic_tables:
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  verify_every: 1 day
  spark: {conn_id: local}
  query: SELECT ds, ds AS n FROM VALUES 'a', 'b' AS given(ds)
"""

pytestmark = pytest.mark.spark


@pytest.fixture
def definitions(home: Path) -> Definitions:
    path = home / "tables.yaml"
    path.write_text(TABLE)
    return load_definitions(path)


def verification(definitions: Definitions, job: Any, monkeypatch: pytest.MonkeyPatch) -> VerifyOperator:
    (table,) = definitions.tables.values()
    operator = VerifyOperator(task_id="days", table=table, definitions=definitions)
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: job(plan))
    return operator


def test_a_drift_fails_the_task_and_the_history_has_it(
    definitions: Definitions, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    def job(plan: Any) -> object:
        return refresh(spark, plan)

    operator = verification(definitions, job, monkeypatch)
    with pytest.raises(AirflowSkipException, match="days does not exist"):
        operator.execute(context())
    first = DynamicTableRefreshOperator(task_id="refresh", table=operator.table, definitions=definitions)
    monkeypatch.setattr(first, "_submit", lambda _context, _workspace, plan: job(plan))
    first.execute(context())
    assert operator.execute(context()) == {"verified": ["ds=a", "ds=b"], "not_verified": {}}
    with operator.catalog_hook().get_conn() as workspace:
        store: Any = workspace.catalog("default").stores()[0]
        store.tables.load_table(("default", "days")).delete("ds = 'b'")
    next_day: Any = {**context(), "logical_date": TICK + timedelta(days=1)}
    with pytest.raises(AirflowFailException, match="ds=b: rows missing: 1, extra: 0"):
        operator.execute(next_day)
    with operator.catalog_hook().get_conn() as workspace:
        record = workspace.ledger.list_refreshes(operator.table.identifier)[0]
        assert (record.action, record.reason_code) == (RefreshAction.VERIFY, ReasonCode.DRIFT)
        assert record.reason == "partitions verified for 2024-01-03: equal: 1, drift: 1"
        assert workspace.ledger.list_stages() == []

    def failing(_: object) -> None:
        raise JobFailedError("no Spark")

    with pytest.raises(AirflowException, match="is not verified: no Spark") as failure:
        verification(definitions, failing, monkeypatch).execute(context())
    assert not isinstance(failure.value, AirflowFailException), "Airflow tries again"
