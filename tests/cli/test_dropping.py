"""``drop`` asks to be told so, and says what stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.support.pyarrow_job import write_numbers


def test_a_table_is_dropped_when_somebody_says_yes(project: Path, dynamic_tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS x}]"
    )
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    assert dynamic_tables("refresh", "numbers").code == 0

    asked = dynamic_tables("drop", "numbers")
    assert (asked.code, asked.out) == (2, "")
    assert asked.err == "lake.sales.numbers would be dropped with all its versions; say --yes to do it.\n"
    assert dynamic_tables("show", "numbers").code == 0

    mistyped = dynamic_tables("drop", "lake.sales.number", "--yes")
    assert (mistyped.code, "Did you mean 'lake.sales.numbers'?" in mistyped.err) == (1, True)

    dropped = dynamic_tables("drop", "numbers", "--yes", "-o", "json")
    assert dropped.code == 0
    told = json.loads(dropped.out)
    assert (told["identifier"], told["is_still_read"]) == ("lake.sales.numbers", False)
    assert "If the table is still defined, its next refresh will recreate it." in dropped.err
    assert f"The maintenance leaves the files in {told['location']} alone" in dropped.err
    assert Path(told["location"].removeprefix("file://")).is_dir()
    assert dynamic_tables("show", "numbers").code == 1
    again = dynamic_tables("drop", "numbers", "--yes")
    assert again.code == 1
    assert "numbers" in again.err
