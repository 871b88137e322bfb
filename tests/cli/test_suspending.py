"""``suspend`` and ``resume`` say what was and what is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.support.pyarrow_job import write_numbers


def test_a_table_is_suspended_and_resumed(project: Path, dynamic_tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS x}]"
    )
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    unknown = dynamic_tables("suspend", "numbers")
    assert (unknown.code, "numbers" in unknown.err) == (1, True)
    assert dynamic_tables("refresh", "numbers").code == 0

    suspended = dynamic_tables("suspend", "numbers", "-o", "json")
    assert json.loads(suspended.out) == {"table": "lake.sales.numbers", "was": "enabled", "is": "suspended"}
    assert "is suspended; resume it to refresh again" in dynamic_tables("refresh", "numbers").err
    assert "suspended" in dynamic_tables("show", "numbers").out

    resumed = dynamic_tables("resume", "numbers", "-o", "json")
    assert json.loads(resumed.out) == {"table": "lake.sales.numbers", "was": "suspended", "is": "enabled"}
