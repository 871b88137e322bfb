"""Tests are loaded with the definitions of their project, and by its rules."""

from __future__ import annotations

from pathlib import Path

from airflow_dynamic_tables.services.project import load_tests, open_project

DEFINITIONS = """\
dynamic_tables:
- {name: lake.sales.one, freshness: 1 day, query: SELECT 1 AS n}
tests:
- {table: one, name: fine, expect: {rows: [{n: 1}]}}
- {table: one, name: java, expect: {sql: "SELECT reflect('java.lang.Math', 'abs', -1) AS n"}}
"""


def test_the_sql_of_a_test_may_do_what_queries_may_do(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(DEFINITIONS)
    _, tests, mistakes = load_tests(open_project(str(file), environ={}))
    assert ([test.name for test in tests], mistakes) == (["fine", "java"], ())
    closed = {"DYNAMIC_TABLES_ALLOW": "java_calls: false"}
    _, tests, mistakes = load_tests(open_project(str(file), environ=closed))
    assert [test.name for test in tests] == ["fine"]
    assert [str(mistake).removeprefix(str(tmp_path)).startswith("/sales.yaml:5:50: ") for mistake in mistakes] == [True]


def test_mistakes_of_definitions_and_of_tests_come_together_and_in_order(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(DEFINITIONS.replace("- {table: one, name: java", "- {table: two, name: java") + "views: [{name: v}]\n")
    _, _, mistakes = load_tests(open_project(str(file), environ={}))
    assert [mistake.line for mistake in mistakes] == [5, 6]


def test_a_key_with_escapes_is_found(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(DEFINITIONS.replace("tests:", '"te\\x73ts":'))
    _, tests, mistakes = load_tests(open_project(str(file), environ={}))
    assert ([test.name for test in tests], mistakes) == (["fine", "java"], ())
