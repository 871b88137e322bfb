"""Unit tests of queries give the same verdicts, whoever runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.query_test_values import Changed
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.services.project import load_tests, open_project
from airflow_dynamic_tables.services.query_tests import QueryTestResult, run_tests
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.runners.conftest import Bench

pytestmark = pytest.mark.spark

DEFINITIONS, SEVERAL = ((Path(__file__).parent / name).read_text() for name in ("definitions.yaml", "query_tests.yaml"))

EVERYTHING = """
      b: true
      i: -128
      n: 9223372036854775807
      f: 0.1
      d: .nan
      m: 12345678901234567890.123456789012345678
      s: "it's ${NAME} \\\\ \\"quoted\\"\\n"
      v: abcde
      x: CAFE
      day: 2024-02-29
      t: 2024-10-27T02:30:00+01:00
      w: 2024-03-31 02:30:00.000001
      a: [[1, null], [], null]
      p: {b: null, a: 2024-01-01}
      c: {a b: 1, y: [x, null]}
"""


@pytest.fixture
def run(tmp_path: Path, quick_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, QueryTestResult]]:
    """Runs tests of these definitions; the results by their names. Nothing but their files is there."""
    monkeypatch.delenv("DYNAMIC_TABLES_CATALOGS", raising=False)

    def run(tests: str) -> dict[str, QueryTestResult]:
        definitions = tmp_path / "definitions.yaml"
        definitions.write_text(DEFINITIONS + tests)
        defined, loaded, mistakes = load_tests(open_project(str(definitions)))
        assert [str(mistake) for mistake in mistakes] == []
        with _workspace(tmp_path) as workspace:
            results = run_tests(workspace, loaded, defined.sources, _as_json(quick_bench))
        assert not (tmp_path / "state").exists()  # no catalog was asked
        return {result.name: result for result in results}

    return run


def _workspace(folder: Path) -> Workspace:
    environ = {"AIRFLOW_HOME": str(folder / "state"), "DYNAMIC_TABLES_DATABASE_URL": f"sqlite:///{folder}/state/state.db"}
    return open_workspace(embedded_settings(environ))


def _as_json(bench: Bench) -> Callable[[QueryTestPlans], QueryTestOutcomes]:
    def run(plans: QueryTestPlans) -> QueryTestOutcomes:
        sent = QueryTestPlans.from_json(plans.to_json())
        assert sent == plans
        outcomes = bench.runner().run_query_tests(sent)
        return QueryTestOutcomes.from_json(outcomes.to_json())

    return run


def passed(results: dict[str, QueryTestResult]) -> dict[str, str]:
    return {name: f"{result.message} {result.difference}" for name, result in results.items() if result.verdict != "passed"}


@pytest.mark.sampled
def test_every_type_keeps_its_values(run: Callable[[str], dict[str, QueryTestResult]]) -> None:
    row = EVERYTHING.strip()
    case = "- table: copy\n  name: {}\n  given:\n    raw.all: {{rows: [{}]}}\n  expect: {{rows: [{}]}}\n"
    nested = "{" + ", ".join(line.strip() for line in row.splitlines()) + "}"
    zeros = "{d: -0.0, f: 0.0}"
    tests = case.format("all", nested, nested) + case.format("nulls", "{}", "{b: null}")
    tests += case.format("zeros", zeros, "{d: 0, f: -0.0}") + case.format("infinite", "{d: -.inf}", "{d: -Infinity}")
    tests += case.format("maps", "{p: {a: 2024-01-01, b: 2024-01-02}}", "{p: {b: 2024-01-02, a: 2023-12-31T23:00:00Z}}")
    tests += case.format("arrays", "{a: [[1], [2]]}", "{a: [[2], [1]]}")
    results = run(tests)
    assert list(passed(results)) == ["arrays"]
    changed = results["arrays"].difference
    assert changed is not None
    assert changed.changed[0].expected == {"a": [["2"], ["1"]]}


@pytest.mark.sampled
def test_types_are_compared_where_they_are_expected(run: Callable[[str], dict[str, QueryTestResult]]) -> None:
    case = "- {{table: copy, name: {}, given: {{raw.all: {{rows: [{{i: 1}}]}}}}, expect: {{rows: [{{i: 1}}], types: {{{}}}}}}}\n"
    right = "i: TINYINT, m: 'DECIMAL(38, 18)', v: 'VARCHAR(5)', w: timestamp_ntz, c: 'STRUCT<`a b`: INT, y: ARRAY<STRING>>'"
    results = run(case.format("right", right) + case.format("wrong", "m: DOUBLE, n: INT, s: STRING"))
    assert passed(results).keys() == {"wrong"}, passed(results)
    assert results["wrong"].message == "column 'm' is decimal(38,18), not double; column 'n' is bigint, not int"
    assert results["wrong"].verdict == "failed"


WRONG = {
    "settings of another test are gone": "[CAST_INVALID_INPUT]",
    "no value of the type": "'revenue': '1.5' is no bigint; write a whole number",
    "rows of another type": "lake.raw.orders: 'amount' is int, and the rows have decimal(2,1) in it; cast it in their query",
    "rows of a column that is not there": "lake.raw.orders has no column 'amont'; did you mean 'amount'?",
    "too many rows": "the query returns more than 10,000 rows; give its sources fewer",
    "an unknown column": "the query returns no column 'c'; it returns b",
    "SQL of another type": "'d' is date, and the rows of 'sql' have string in it; cast it there",
}


@pytest.mark.sampled
def test_verdicts(run: Callable[[str], dict[str, QueryTestResult]]) -> None:
    results = run(SEVERAL)
    assert {name: result.verdict for name, result in results.items() if result.verdict != "passed"} == {
        "another value": "failed",
        **dict.fromkeys(WRONG, "error"),
    }, json.dumps(passed(results), indent=1)
    for name, message in WRONG.items():
        assert (results[name].message or "").startswith(message), results[name].message
    found = results["another value"].difference
    assert found is not None
    assert found.changed == (Changed({"ds": "a"}, {"revenue": "2"}, {"revenue": "1"}),)
    assert found.missing == ({"ds": "c", "country": "DE", "revenue": "2"},)
    assert found.extra == ({"ds": "b", "country": "DE", "revenue": "2"},)
    place = (DEFINITIONS + SEVERAL).splitlines()
    path, line, column = results["no value of the type"].place.rsplit(":", 2)
    assert path.endswith("definitions.yaml")
    assert place[int(line) - 1][int(column) - 1 :].startswith("1.5")


FUNCTIONS = """\
defaults: {catalog: lake, database: sales}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders, schema: "ds STRING, amount INT"}
  - {name: recent, format: view}
dynamic_tables:
  - {name: doubled, freshness: 1 day, query: SELECT twice(amount) AS n FROM raw.orders}
  - {name: lately, freshness: 1 day, query: SELECT twice(r.amount) AS n FROM recent r}
tests:
  - {table: doubled, name: once, given: {orders: {rows: [{amount: 2}, {}]}}, expect: {rows: [{n: 4}, {}]}}
  - {table: doubled, name: again, given: {orders: {rows: [{amount: 3}]}}, expect: {rows: [{n: 6}]}}
  - table: lately
    name: through a view
    given: {lake.raw.orders: {rows: [{ds: "2", amount: 3}, {ds: "0", amount: 7}]}}
    expect: {rows: [{n: 6}]}
"""


@pytest.mark.sampled
def test_views_and_functions_are_those_of_the_catalog(quick_bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def twice(x):\n    return None if x is None else 2 * x\n")
    (tmp_path / "definitions.yaml").write_text(FUNCTIONS)
    defined, tests, mistakes = load_tests(open_project(str(tmp_path / "definitions.yaml"), environ={}))
    assert mistakes == ()
    query = "SELECT amount FROM lake.raw.orders WHERE ds > '1'"
    code = {"returns": "bigint", "py_files": (tmp_path / "doubling.py").as_uri()}
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path / "state")})) as workspace:
        catalog = workspace.catalog("lake")
        catalog.create_database("sales", CatalogDatabase())
        catalog.create_function(ObjectPath("sales", "twice"), CatalogFunction("doubling:twice", "python", code))
        catalog.create_table(ObjectPath("sales", "recent"), CatalogView(query, query, (Column("amount", "int"),)))
        results = run_tests(workspace, tests, defined.sources, _as_json(quick_bench))
    assert passed({result.name: result for result in results}) == {}
    assert len(results) == 3
