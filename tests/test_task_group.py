"""Tables as tasks of a DAG of one's own, in the order in which they read each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup
from airflow.serialization.serialized_objects import DagSerialization

from airflow_dynamic_tables.exceptions import DefinitionError, TableNotFoundError
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.task_group import dynamic_table_task_group

TABLES = """
defaults: {catalog: lake, database: sales}
sources: [{name: orders, format: parquet, path: /orders, schema: "x INT"}]
dynamic_tables:
- {name: a_total, freshness: 1 hour, query: SELECT x FROM daily JOIN lake.crm.customers USING (x)}
- {name: daily, freshness: 1 day, query: SELECT x FROM orders}
- {name: lake.crm.customers, freshness: 1 day, query: SELECT x FROM daily}
- {name: alone, freshness: 1 day, query: SELECT 1 AS x}
"""

DAILY, TOTAL, CUSTOMERS, ALONE = "lake.sales.daily", "lake.sales.a_total", "lake.crm.customers", "lake.sales.alone"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNAMIC_TABLES_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tables.yaml").write_text(TABLES)
    return tmp_path


def tasks_of(group: TaskGroup) -> list[DynamicTableRefreshOperator]:
    return [task for task in group.children.values() if isinstance(task, DynamicTableRefreshOperator)]


def edges(group: TaskGroup) -> dict[str, set[str]]:
    return {task.task_id: set(task.upstream_task_ids) for task in tasks_of(group)}


def test_each_table_comes_after_those_that_it_reads(folder: Path) -> None:
    with DAG("own"):
        group = dynamic_table_task_group("tables", folder)
    names = {name: f"tables.{name}" for name in (DAILY, CUSTOMERS, TOTAL, ALONE)}
    assert edges(group) == {
        names[ALONE]: set(),
        names[DAILY]: set(),
        names[CUSTOMERS]: {names[DAILY]},
        names[TOTAL]: {names[DAILY], names[CUSTOMERS]},
    }
    rules = {task.task_id: task.trigger_rule for task in tasks_of(group)}
    assert rules[names[DAILY]] == "all_success", "whoever skips the group skips its first tables"
    assert rules[names[TOTAL]] == "none_failed", "a parent that had nothing to do skips no child"
    assert DagSerialization.to_dict(group.dag)


def test_some_tables_and_what_they_wait_for(folder: Path) -> None:
    with DAG("own"):
        group = dynamic_table_task_group(
            "some", folder, [TOTAL, "lake.crm.*"], default_args={"retries": 9}, prefix_group_id=False
        )
    assert edges(group) == {CUSTOMERS: set(), TOTAL: {CUSTOMERS}}
    total = group.children[TOTAL]
    assert isinstance(total, DynamicTableRefreshOperator)
    assert {str(parent.identifier) for parent in total.parents} == {DAILY, CUSTOMERS}, "those outside are waited for"
    assert total.retries == 9


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["dayly"], "did you mean lake.sales.daily"),
        ("lake.web.*", "No dynamic table has a name like lake.web.*"),
        ([DAILY, "nothing"], "No dynamic table nothing"),
    ],
)
def test_names_that_are_no_tables(folder: Path, tables: Any, message: str) -> None:
    with DAG("own"), pytest.raises(TableNotFoundError) as error:
        dynamic_table_task_group("tables", folder, tables)
    assert message in str(error.value)


def test_a_mistake_that_may_hide_a_table_is_an_error_where_the_dag_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables:\n- {name: lake.sales.broken, freshnes: 1 day, query: SELECT 1 AS x}\n")
    for tables in (None, "lake.sales.*", ["lake.sales.broken"]):
        with DAG("own"), pytest.raises(DefinitionError, match=r"broken\.yaml:2:29: unknown key 'freshnes'"):
            dynamic_table_task_group("tables", folder, tables)
    with DAG("own"):
        assert set(edges(dynamic_table_task_group("tables", folder, [DAILY]))) == {f"tables.{DAILY}"}
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "own")
    with DAG("own"):
        group = dynamic_table_task_group("tables", folder)
    assert len(group.children) == 4, "a task that runs needs but its own table"
