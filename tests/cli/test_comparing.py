"""``plan --compare`` warns on stderr; what it prints stays as it is, and so does how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.cli.conftest import Run
from tests.support.pyarrow_job import write_numbers

YAML = "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS %s}]"


def test_a_change_that_would_be_refused_is_a_warning(project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(YAML % "x")
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    assert dynamic_tables("refresh", "numbers").code == 0
    assert dynamic_tables("plan", "--compare").err == ""

    file.write_text(YAML % "y")
    plain = dynamic_tables("plan", "-o", "json")
    compared = dynamic_tables("plan", "--compare", "-o", "json")
    assert (compared.code, compared.out, plain.err) == (0, plain.out, "")
    place = f"{file.relative_to(project)}:1:1: warning: lake.sales.numbers: "
    assert compared.err.startswith(f"{place}Column 1 was x bigint, but the query returns y")
    assert "--full-refresh" in compared.err
