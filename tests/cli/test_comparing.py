"""``plan --compare`` warns on stderr and prints what a refresh would make up for; and up to when that makes a table fresh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.refresh import catching_up
from tests.cli.conftest import Run
from tests.support.pyarrow_job import write_days, write_numbers


def test_a_change_that_would_be_refused_is_a_warning(project: Path, numbers: Path, dynamic_tables: Run) -> None:
    assert dynamic_tables("refresh", "numbers").code == 0
    assert dynamic_tables("plan", "--compare").err == ""

    numbers.write_text(numbers.read_text().replace("AS x", "AS y"))
    plain = dynamic_tables("plan", "-o", "json")
    compared = dynamic_tables("plan", "--compare", "-o", "json")
    (shown,) = json.loads(compared.out)
    assert (shown["catch_up"], shown["catch_up_reason"]) == (None, None)
    assert (compared.code, [shown], plain.err) == (0, json.loads(plain.out), "")
    place = f"{numbers.relative_to(project)}:1:1: warning: lake.sales.numbers: "
    assert compared.err.startswith(f"{place}Column 1 was x bigint, but the query returns y")
    assert "--full-refresh" in compared.err


DAYS = """
dynamic_tables:
- name: lake.sales.days
  freshness: 1 day
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT '1' AS ds, 1 AS n
"""


def test_the_ticks_that_a_refresh_would_make_up_for_are_shown(
    project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(DAYS)
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_days(plan, {"2024-01-01": [1]}))
    (new,) = json.loads(dynamic_tables("plan", "--compare", "-o", "json", "--schedule-time", "2024-01-02").out)
    assert (new["catch_up"], new["catch_up_reason"]) == ([], "it starts with all partitions of its sources (initial: all)")
    assert dynamic_tables("refresh", "days", "--schedule-time", "2024-01-02").code == 0

    at = ("--schedule-time", "2024-01-05", "-o", "json")
    (shown,) = json.loads(dynamic_tables("plan", "--compare", *at).out)
    assert (shown["partitions"], shown["catch_up"]) == ([{"ds": "2024-01-04"}], [{"ds": "2024-01-02"}, {"ds": "2024-01-03"}])
    assert shown["catch_up_reason"] == "it makes up for ds=2024-01-02 and ds=2024-01-03"
    assert json.loads(dynamic_tables("plan", *at).out)[0]["catch_up"] is None
    assert "it makes up for ds=2024-01-02 and" in dynamic_tables("plan", "--compare", "days", *at[:2]).out
    monkeypatch.setattr(catching_up, "MOST_PARTITIONS", 2)
    (shown,) = json.loads(dynamic_tables("plan", "--compare", *at).out)
    assert shown["catch_up"] == [{"ds": "2024-01-02"}, {"ds": "2024-01-03"}]
    assert shown["catch_up_reason"].endswith("; the ticks from then up to 2024-01-05T00:00:00+00:00 follow")


def test_a_refresh_by_command_is_as_fresh_as_its_parents(
    project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = "\n- {name: lake.sales.total, freshness: 1 day, query: SELECT n FROM lake.sales.days}\n"
    (project / "dags" / "definitions" / "sales.yaml").write_text(DAYS.rstrip() + child)
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_days(plan, {"2024-01-01": [1]}))
    assert dynamic_tables("refresh", "days", "--schedule-time", "2024-01-02").code == 0
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    done = dynamic_tables("refresh", "total", "-o", "json")
    assert json.loads(done.out)["data_timestamp"] == "2024-01-02T00:00:00+00:00"
    assert "lake.sales.days must be fresh up to" in done.err
