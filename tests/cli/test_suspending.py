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
    change = json.loads(suspended.out)
    assert (change["identifier"], change["before"], change["after"]) == ("lake.sales.numbers", "RUNNING", "SUSPENDED")
    assert "is suspended; resume it to refresh again" in dynamic_tables("refresh", "numbers").err
    assert dynamic_tables("suspend", "numbers", "--reason", "it moves").code == 0
    assert "is suspended (it moves)" in dynamic_tables("refresh", "numbers").err
    assert json.loads(dynamic_tables("list", "-o", "json").out)[0]["suspended_because"] == "it moves"
    forced = dynamic_tables("refresh", "numbers", "--force", "--full-refresh", "-o", "json")
    assert json.loads(forced.out)["version"] == 2
    assert "suspended" in dynamic_tables("show", "numbers").out

    resumed = dynamic_tables("resume", "numbers", "-o", "json")
    change = json.loads(resumed.out)
    assert (change["before"], change["after"], change["reason"]) == ("SUSPENDED", "RUNNING", "")


def test_a_table_is_renamed_and_dropped(project: Path, dynamic_tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS x}]"
    )
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    assert dynamic_tables("refresh", "numbers").code == 0
    renamed = dynamic_tables("rename", "numbers", "others", "-o", "json")
    assert json.loads(renamed.out) == {"before": "lake.sales.numbers", "after": "lake.sales.others"}
    assert "The definitions still say lake.sales.numbers" in renamed.err
    assert dynamic_tables("rename", "numbers", "lake.other.numbers").code == 1
    assert dynamic_tables("drop", "lake.sales.others", "--if-exists").code == 2
    assert dynamic_tables("drop", "lake.sales.others", "--yes").code == 0
    assert dynamic_tables("drop", "lake.sales.others", "--yes").code == 1
    for yes in ((), ("--yes",)):
        gone = dynamic_tables("drop", "lake.sales.others", "--if-exists", *yes)
        assert (gone.code, gone.err) == (0, "There is no lake.sales.others; nothing to do.\n")
