"""Task groups that refresh several tables in one DAG, in topological order."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import TaskGroup
from airflow.sdk import TriggerRule, get_parsing_context

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dags.declared import load_every, refreshable
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
    """Create a task group for a user DAG, with a task for each table, after those that it reads.

    Refreshes wait for parents outside of the group as usual.

    :param group_id: its id; the task ids below it are the full table names.
    :param definitions: a definitions file or folder, read while the DAG is created.
    :param tables: names, and patterns of full names such as ``lake.sales.*``; default: every table.
    :param catalogs_file: default: the one in the folder of the definitions or beside it.
    :param conn_id: connection of type ``dynamic_tables``; default: option ``connection`` of section ``dynamic_tables``.
    :param kwargs: other arguments of the task group, for example ``default_args``.
    :raises DynamicTableError: if a table does not exist or cannot be refreshed, or, unless all tables are named, if a definitions
        file has mistakes.
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
    # A mistake may hide a table of the group. A running task only needs its own table.
    if mistakes and not is_sure and get_parsing_context().dag_id is None:
        raise DefinitionError(mistakes)
    group = TaskGroup(group_id, **kwargs)
    common = {"catalogs_file": catalogs_file, "catalog_conn_id": conn_id, "task_group": group, "dag": group.dag}
    put_in_order([refresh_task(refreshable(table), every, **common) for table in chosen])
    return group


def refresh_task(table: DynamicTable, definitions: Definitions, **arguments: Any) -> DynamicTableRefreshOperator:
    """Create the task of a table in a DAG with several tables.

    :param definitions: the definitions with its parents and sources.
    """
    return DynamicTableRefreshOperator(
        task_id=table.identifier.task_id, table=table, definitions=definitions.part_for([table]), **arguments
    )


def put_in_order(tasks: Iterable[DynamicTableRefreshOperator]) -> None:
    """Set each task downstream of the tables that it reads, or waits for to check its expectations."""
    by_table = {task.table.identifier: task for task in tasks}
    for task in by_table.values():
        needed = dict.fromkeys((*task.table.upstream, *task.table.awaited_references))
        parents = [by_table[name] for name in needed if name in by_table]
        if parents:
            # A skipped parent may be fresh enough: the refresh checks this itself.
            task.trigger_rule = TriggerRule.NONE_FAILED
            task.set_upstream(parents)


def _chosen(definitions: Definitions, names: Iterable[str] | None) -> list[DynamicTable]:
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
