"""``diff`` and ``apply``: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.cli.conftest import Run
from tests.support.pyarrow_job import write_numbers
from tests.support.schedulers.airflow import stand_in

YAML = """
defaults: {{catalog: lake, database: sales, freshness: 1 hour}}
dynamic_tables:
- {{name: numbers, query: SELECT 1 AS {column}{more}}}
- {{name: sums, query: SELECT sum(x) AS total FROM numbers}}
"""


@pytest.fixture
def file(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The definitions; jobs write the column ``x``."""
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(YAML.format(column="x", more=""))
    return file


@pytest.mark.large
def test_what_is_deployed_and_what_is_not(file: Path, dynamic_tables: Run) -> None:
    new = dynamic_tables("diff")
    assert (new.code, new.err) == (0, "2 tables: 2 new.\n")
    assert [line.split()[:2] for line in new.out.splitlines()[2:4]] == [["lake.sales.numbers", "new"], ["lake.sales.sums", "new"]]
    assert dynamic_tables("diff", "--exit-code").code == 1

    assert dynamic_tables("apply").code == 0
    same = dynamic_tables("diff", "--exit-code")
    assert (same.code, same.out, same.err) == (0, "", "2 tables: 2 unchanged.\n")
    again = dynamic_tables("apply")
    assert (again.code, again.out, again.err) == (0, "", "2 tables: 2 unchanged.\n")

    file.write_text(YAML.format(column="x", more=", comment: One"))
    metadata = dynamic_tables("diff", "-o", "json", "numbers")
    (found,) = json.loads(metadata.out)
    assert (found["identifier"], found["change"]) == ("lake.sales.numbers", "METADATA")
    assert found["fields"] == [{"name": "comment", "deployed": None, "declared": "One"}]
    assert "comment: none -> One" in dynamic_tables("diff").out
    assert [one["outcome"] for one in yaml.safe_load(dynamic_tables("apply", "-o", "yaml").out)] == ["REGISTERED", "UNCHANGED"]


@pytest.mark.large
def test_a_rebuild_takes_a_word(file: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dynamic_tables("refresh", "numbers").code == 0
    file.write_text(YAML.format(column="y", more=""))
    told = dynamic_tables("diff")
    assert told.code == 0
    for line in ("lake.sales.numbers: rebuild", "  column x: bigint -> none", "  touches lake.sales.sums: total"):
        assert line in told.out.splitlines()
    assert "-SELECT 1 AS x\n  +SELECT 1 AS y" in told.out
    refused = dynamic_tables("apply", "numbers")
    assert (refused.code, "It takes apply --refresh." in refused.out) == (1, True)

    def write(_: SparkSubmitRunner, plan: RefreshPlan, _environment: object) -> None:
        assert plan.partitions.is_whole
        write_numbers(plan)

    monkeypatch.setattr(SparkSubmitRunner, "run", write)
    done = dynamic_tables("apply", "numbers", "--refresh", "-o", "json")
    assert [(one["outcome"], one["version"]) for one in json.loads(done.out)] == [("REFRESHED", 2)]


def test_what_nobody_declares_any_more_is_kept_and_told(file: Path, dynamic_tables: Run) -> None:
    assert dynamic_tables("apply").code == 0
    file.write_text("dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS x}]")
    assert "lake.sales.sums: no longer declared" in dynamic_tables("diff").out
    applied = dynamic_tables("apply")
    assert applied.code == 0
    assert "lake.sales.sums is no longer declared; it keeps its rows" in applied.err
    assert "lake.sales.sums" in dynamic_tables("list").out


def test_a_mistake_hides_no_table_and_ends_with_one(file: Path, dynamic_tables: Run) -> None:
    assert dynamic_tables("apply").code == 0
    file.with_name("broken.yaml").write_text("dynamic_tables: [{name: lake.sales.sums2, query: SELECT FROM}]")
    told = dynamic_tables("diff", "-o", "json")
    assert told.code == 1
    assert "broken.yaml:1:" in told.err
    assert [one["change"] for one in json.loads(told.out)] == ["UNCHANGED", "UNCHANGED"]
    assert dynamic_tables("diff", "numbers").code == 0


@pytest.mark.usefixtures("file")
def test_a_paused_dag_is_named_until_it_is_unpaused(dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = "dynamic_table__lake__sales__numbers"
    with stand_in() as airflow:
        airflow.add(numbers, "DynamicTableRefreshOperator", is_paused=True)
        said = f"The DAG {numbers} is paused: no schedule refreshes lake.sales.numbers. airflow dags unpause {numbers}\n"
        assert said not in dynamic_tables("diff").err, "nobody can tell"
        assert "dag paused" not in dynamic_tables("list").out
        connection = {"conn_type": "http", "host": airflow.server.url, "login": "me", "password": "s3cr3t-word"}
        monkeypatch.setenv("AIRFLOW_CONN_DYNAMIC_TABLES_AIRFLOW", json.dumps(connection))
        for command in ("diff", "apply"):
            assert said in dynamic_tables(command).err
        assert "dag paused" in dynamic_tables("list").out
        (listed,) = [one for one in json.loads(dynamic_tables("list", "-o", "json").out) if one["workflow_id"] == numbers]
        assert listed["dag_paused"] is True
        assert f"waits for its first refresh, but the DAG {numbers} is paused" in dynamic_tables("show", "numbers").out
        dynamic_tables("suspend", "numbers")
        assert said not in dynamic_tables("diff").err, "it is paused because the table is suspended"
        dynamic_tables("resume", "numbers")
        assert said not in dynamic_tables("diff").err
        assert "dag paused" not in dynamic_tables("list").out
        shown = dynamic_tables("show", "numbers").out.splitlines()
        assert [line.split() for line in shown if line.startswith("dag paused")] == [["dag", "paused", "no"]]
