"""test: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Ran, Run
from tests.support.connect_server import ConnectServer

TESTS = """\
tests:
  - table: daily_revenue
    name: sums
    given: {orders: {rows: [{ds: a, amount: 1}, {ds: a, amount: 2}]}}
    expect: {rows: [{ds: a, revenue: 3}]}
  - table: daily_revenue
    name: another sum
    given: {orders: {rows: [{ds: a, amount: 1}, {ds: b, amount: 2}]}}
    expect: {rows: [{ds: a, revenue: null}, {ds: c, revenue: 2}], key: [ds]}
  - table: total
    name: no number
    given: {daily_revenue: {sql: SELECT 1L AS revenue}}
    expect: {rows: [{revenue: x}]}
"""


@pytest.fixture
def definitions(project: Path) -> Path:
    path = project / "dags" / "definitions" / "tests.yaml"
    path.write_text(TESTS)
    return path


@pytest.fixture
def run(dynamic_tables: Run, connect_server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.setenv("SPARK_REMOTE", connect_server.url)
    return dynamic_tables


@pytest.mark.large
def test_what_differs_is_shown_and_where_it_is_expected(run: Run, definitions: Path) -> None:
    ran = run("test", "--junit-xml", "results.xml")
    place = definitions.relative_to(Path.cwd())
    lines = [line.rpartition("  ")[0] if line.endswith(" s") else line.strip() for line in ran.out.splitlines()]
    assert lines == [
        "passed  lake.sales.daily_revenue::sums",
        "failed  lake.sales.daily_revenue::another sum",
        f"{place}:7:11",
        "missing {ds: c, revenue: 2}",
        "extra   {ds: b, revenue: 2}",
        "changed {ds: a}  revenue: expected NULL, got 1",
        "error   lake.sales.total::no number",
        f"{place}:13:31: 'revenue': 'x' is no bigint; write a whole number",
    ]
    assert (ran.code, "1 passed, 1 failed, 1 error" in ran.err) == (1, True)
    suite = ElementTree.parse("results.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"sums": [], "another sum": ["failure"], "no number": ["error"]}
    assert not (Path(os.environ["AIRFLOW_HOME"]) / "dynamic_tables").exists()


@pytest.mark.large
def test_tables_that_are_named(run: Run, definitions: Path) -> None:
    definitions.write_text(TESTS.replace("null}", "1}").replace("ds: c", "ds: b"))
    ran = run("test", "daily_revenue", "--output", "json")
    assert ran.code == 0, ran.out
    results = json.loads(ran.out)
    assert [(result["table"], result["name"], result["verdict"]) for result in results] == [
        ("lake.sales.daily_revenue", "sums", "passed"),
        ("lake.sales.daily_revenue", "another sum", "passed"),
    ]
    assert run("test", "nowhere").code == 1


def test_a_new_projects_test_passes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "shop")
    monkeypatch.chdir("shop")
    ran = run("test")
    assert (ran.code, ran.out.split()[0]) == (0, "passed"), ran.out


def test_without_tests_no_spark_is_started(dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    ran = dynamic_tables("test")
    assert (ran.code, ran.out) == (0, "")
    assert "There are no tests." in ran.err


def test_mistakes_are_told_and_other_tests_run_on(run: Run, definitions: Path) -> None:
    text = TESTS.partition("  - table: daily_revenue\n    name: another sum")[0]
    definitions.write_text(text + "  - {table: total, name: t, expect: {rows: []}}\n")
    ran = run("test")
    assert (ran.code, ran.out.split()[0]) == (1, "passed")
    assert "tests.yaml:6:13: the query reads lake.sales.daily_revenue, too; give the rows" in ran.err
    assert run("test", "daily_revenue").code == 0
    checked = run("validate", "--without-spark")
    assert (checked.code, checked.out.count("\n")) == (1, 1)
    assert "tests.yaml:6:13: the query reads" in checked.out
