"""Several tables as tasks of one DAG, in the order in which they read each other."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import TaskGroup
from airflow.sdk import TriggerRule, get_parsing_context

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dags_support.declared import load_every, refreshable
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DefinitionError, TableNotFoundError
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.settings import find_catalogs_file

_WILDCARDS = frozenset("*?[")


def dynamic_table_task_group(
    group_id: str,
    definitions: str | Path,
    tables: str | Iterable[str] | None = None,
    *,
    catalogs_file: Path | None = None,
    conn_id: str | None = None,
    **kwargs: Any,
) -> TaskGroup:
    """A task group for a DAG of yours with a task for each of the tables; each comes after those that it reads.

    A table that it reads and that is not in the group is waited for, as in any refresh.

    :param group_id: its id; the tasks have the full names of the tables below it.
    :param definitions: a definitions file or folder, read while the DAG is made.
    :param tables: names, and patterns of full names such as ``lake.sales.*``; default: every table.
    :param catalogs_file: default: the one in the folder of the definitions or beside it.
    :param conn_id: connection of type ``dynamic_tables``; default: option ``connection`` of section ``dynamic_tables``.
    :param kwargs: what else a task group takes, ``default_args`` for example.
    :raises DynamicTableError: when one of the tables is not there or cannot be refreshed, or, if they are not all named, a
        definitions file has mistakes.
    """
    catalogs_file = catalogs_file or find_catalogs_file(Path(definitions))
    every, mistakes = load_every(definitions, catalogs_file)
    names = None if tables is None else [tables] if isinstance(tables, str) else list(tables)
    try:
        chosen = _chosen(every, names)
        is_sure = names is not None and not any(map(_is_pattern, names))
    except TableNotFoundError:
        if not mistakes:
            raise
        is_sure = False
    # A mistake may hide one of the tables. A task that runs needs but its own.
    if mistakes and not is_sure and get_parsing_context().dag_id is None:
        raise DefinitionError(mistakes)
    group = TaskGroup(group_id, **kwargs)
    common = {"catalogs_file": catalogs_file, "catalog_conn_id": conn_id, "task_group": group, "dag": group.dag}
    put_in_order([refresh_task(refreshable(table), every, **common) for table in chosen])
    return group


def refresh_task(table: DynamicTable, definitions: Definitions, **arguments: Any) -> DynamicTableRefreshOperator:
    """The task of a table in a DAG that has more than that one.

    :param definitions: where its parents and sources are looked up.
    """
    return DynamicTableRefreshOperator(
        task_id=table.identifier.task_id, table=table, definitions=definitions.part_for([table]), **arguments
    )


def put_in_order(tasks: Iterable[DynamicTableRefreshOperator]) -> None:
    """Let each table come after those that it reads."""
    by_table = {task.table.identifier: task for task in tasks}
    for task in by_table.values():
        parents = [by_table[name] for name in task.table.upstream if name in by_table]
        if parents:
            # A parent that was skipped may be as fresh as it should be: the refresh looks for itself.
            task.trigger_rule = TriggerRule.NONE_FAILED
            task.set_upstream(parents)


def _chosen(definitions: Definitions, names: Iterable[str] | None) -> list[DynamicTable]:
    """The tables of those names and patterns, each after those that it reads.

    :raises TableNotFoundError: when one is no table's.
    """
    if names is None:
        return definitions.topological()
    chosen: set[TableIdentifier] = set()
    for name in names:
        if not _is_pattern(name):
            chosen.add(named_table(definitions, name).identifier)
            continue
        matching = [identifier for identifier in definitions.tables if fnmatchcase(str(identifier), name)]
        if not matching:
            raise TableNotFoundError(f"No dynamic table has a name like {name}; patterns are of full names, as lake.sales.*.")
        chosen.update(matching)
    return [table for table in definitions.topological() if table.identifier in chosen]


def _is_pattern(name: str) -> bool:
    return not _WILDCARDS.isdisjoint(name)
