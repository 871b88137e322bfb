"""Tables that share a DAG: where that may be said, and in what they have to agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import Cache, normalised, restored
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import Definitions

FIRST = "{name: first, freshness: 1 day, dag: sales, query: SELECT 1 AS x}"


def _load(folder: Path, *tables: str, more: str = "") -> tuple[Definitions, tuple[Mistake, ...]]:
    folder.mkdir(exist_ok=True)
    (folder / "t.yaml").write_text("\n".join([more, "dynamic_tables:", *(f"- {table}" for table in tables)]) + "\n")
    return load_sound_definitions(folder, cache=Cache(None))


def test_the_nearest_word_counts(tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "defaults.yaml").write_text("defaults: {dag: far}\n")
    definitions, mistakes = _load(folder, FIRST, "{name: second, freshness: 1 day, query: SELECT 2 AS x}")
    assert mistakes == ()
    first, second = definitions.tables.values()
    assert (first.dag, first.workflow_id) == ("sales", "dynamic_table_group__sales")
    assert (second.dag, second.workflow_id) == ("far", "dynamic_table_group__far")
    assert [table.dag for table in definitions.of_workflow(second.workflow_id)] == ["far"]
    assert restored(normalised(first)).dag == "sales"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("timezone", "Europe/Berlin"),
        ("start_date", "2024-01-01"),
        ("end_date", "2034-01-01"),
        ("is_paused_upon_creation", "true"),
        ("dagrun_timeout", "1 hour"),
        ("dag_display_name", "Sales"),
        ("access_control", "{ops: [can_read]}"),
        ("max_consecutive_failed_dag_runs", "3"),
        ("dag_on_failure_callback", "os:getcwd"),
        ("deadline", "{callback: 'os:getcwd'}"),
    ],
)
def test_tables_of_one_dag_agree_in_what_concerns_a_dag(tmp_path: Path, key: str, value: str) -> None:
    other = f"{{name: other, freshness: 1 hour, dag: sales, query: SELECT 1 AS x,\n   {key}: {value}}}"
    definitions, mistakes = _load(tmp_path, FIRST, other)
    assert [str(name) for name in definitions.tables] == ["default.default.first"], "the others stay"
    (mistake,) = mistakes
    assert (mistake.line, mistake.column) == (5, 6 + len(key))
    assert mistake.message.startswith(f"{key!r} is not as in default.default.first (t.yaml, line 3), which is in the same DAG")
    same = FIRST.replace("first", "other").replace("dag: sales", f"dag: sales, {key}: {value}")
    assert _load(tmp_path, FIRST.replace("dag: sales", f"dag: sales, {key}: {value}"), same)[1] == ()
    assert _load(tmp_path, FIRST, other, more=f"defaults: {{{key}: {value}}}")[1] == (), "both take it from the defaults"


def test_a_table_may_have_its_own_dag_all_the_same(tmp_path: Path) -> None:
    first, own = FIRST.replace("dag: sales", "on: [a://b]"), FIRST.replace("first", "own").replace("sales", "none, on: [a://b]")
    definitions, (mistake,) = _load(tmp_path, first, own, more="defaults: {dag: sales}")
    assert [(str(name), table.dag) for name, table in definitions.tables.items()] == [("default.default.own", None)]
    assert (mistake.line, mistake.message[:35]) == (3, "updates refresh one table, so it ha")


@pytest.mark.parametrize("name", ["a b", "größe", "a/b", "''", "x" * 201])
def test_what_is_no_name_of_a_dag(tmp_path: Path, name: str) -> None:
    (mistake,) = _load(tmp_path, f"{{name: t, freshness: 1 day, query: SELECT 1 AS x, dag: {name}}}")[1]
    assert (mistake.line, mistake.column) == (3, 58)
