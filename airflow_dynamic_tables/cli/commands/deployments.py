"""``diff``: what is declared beside what is deployed; ``export``: what is deployed as declarations."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, find_definitions, identifier, named_tables
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.results import items, plain
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.printing.declaring import hidden_settings
from airflow_dynamic_tables.definitions.printing.statement_text import statement_of
from airflow_dynamic_tables.definitions.printing.yaml_text import yaml_of
from airflow_dynamic_tables.schedulers.registry import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.exporting import definition_of, deployed_table, deployed_tables
from airflow_dynamic_tables.services.deployments.values import Change, Difference, Touched
from airflow_dynamic_tables.services.registered import find_entry, why_suspended
from airflow_dynamic_tables.services.tables.workflows import paused_workflows
from airflow_dynamic_tables.services.workspace import Workspace

_COLUMNS = ("table", "change", "rows", "bytes", "partitions", "downstream")
_NO_TEXT = ("query", "original_query", "expanded_query", "resolved.query")
"""Fields that are shown line by line."""


def diff(arguments: Namespace) -> int:
    """Print how each table differs, those that nobody declares any more among them."""
    defined, sound = definitions(arguments)
    named = named_tables(defined, arguments.tables) if arguments.tables else None
    with workspace_of(arguments, "Comparing the definitions with the catalogs") as workspace:
        found = differences(workspace, defined, named, is_complete=sound)
        say_paused(workspace, named or defined.tables.values())
    show(found, arguments.output)
    is_wrong = not (sound or arguments.tables) or any(one.claimed or one.change is Change.UNKNOWN for one in found)
    differs = arguments.exit_code and any(one.change is not Change.UNCHANGED for one in found)
    return FAILED if is_wrong or differs else OK


def export(arguments: Namespace) -> int:
    """Print what catalogs keep of tables as a file of definitions."""
    with workspace_of(arguments) as workspace:
        tables = [deployed_table(workspace, identifier(arguments, name)) for name in arguments.tables]
        if not arguments.tables:
            catalogs = {name.catalog for name in _declared(arguments)} | set(workspace.catalogs.names())
            tables = [definition_of(name, entry) for name, entry in deployed_tables(workspace, catalogs)]
    text = yaml_of(tables) if arguments.form == "yaml" else "\n\n".join(map(statement_of, tables))
    print(text.rstrip("\n"))
    for table in tables:
        for setting in hidden_settings(table):
            print(f"{table.identifier}: {setting} is a secret, which catalogs do not keep; write it yourself", file=sys.stderr)
    return OK


def _declared(arguments: Namespace) -> Iterable[TableIdentifier]:
    """The tables of the definitions, if there are any here: they name catalogs that no file names."""
    return definitions(arguments)[0].tables if find_definitions(arguments) is not None else ()


def say_paused(workspace: Workspace, tables: Iterable[DynamicTable]) -> None:
    """Say on stderr which tables have a DAG that is paused though they are not suspended, where Airflow can be asked."""
    by_dag = {table.workflow_id: table.identifier for table in tables if table.scheduler in (None, DEFAULT_SCHEDULER)}
    for dag, paused in sorted(paused_workflows(workspace, by_dag.keys()).items()):
        if paused and not why_suspended(by_dag[dag], find_entry(workspace, by_dag[dag])):
            print(f"The DAG {dag} is paused: no schedule refreshes {by_dag[dag]}. airflow dags unpause {dag}", file=sys.stderr)


def show(found: Sequence[Difference], form: str) -> None:
    """Print differences; as a table, those that are some, each with what is behind it. Claims and a summary go to stderr."""
    if form != "table":
        output.listing(found, form)
    else:
        some = [one for one in found if one.change is not Change.UNCHANGED]
        output.listing([_at_a_glance(one) for one in some], "table", _COLUMNS)
        for one in some:
            _print(one)
    for one in found:
        if one.claimed:
            print(one.claimed, file=sys.stderr)
    counts = Counter(one.change.words for one in found)
    print(f"{output.counted(len(found), 'table')}: {output.summed(counts)}.", file=sys.stderr)


def _at_a_glance(one: Difference) -> dict[str, Any]:
    cost = items(one.cost) if one.cost is not None else {}
    return {
        "table": one.identifier,
        "change": one.change.words,
        **{name: cost.get(name) for name in ("rows", "bytes", "partitions")},
        "downstream": [touched.table for touched in one.downstream],
    }


def _print(one: Difference) -> None:
    print(f"\n{one.identifier}: {one.change.words}")
    for line in (one.place and f"declared in {one.place}", one.reason, one.next):
        if line:
            print(f"  {line}")
    for field in one.fields:
        if field.name not in _NO_TEXT:
            print(f"  {field.name}: {_short(field.deployed)} -> {_short(field.declared)}")
    for column in one.columns:
        print(f"  column {column.name}: {column.deployed or 'none'} -> {column.declared or 'none'}")
    for touched in one.downstream:
        print(f"  touches {touched.table}: {_columns(touched)}")
    for line in one.query.splitlines():
        print(f"  {line}")


def _columns(touched: Touched) -> str:
    return "all columns" if touched.columns is None else ", ".join(touched.columns)


def _short(value: Any) -> str:
    return "none" if value is None else str(plain(value))
