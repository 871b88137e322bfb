"""``plan --compare`` and ``--live``, ``apply``, ``diff``, ``export``: commands that load catalogs, as plain ``plan`` does not."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, TABLES, Argument, flag
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.commands.definitions import plan_and_look
from airflow_dynamic_tables.cli.commands.refresh import run_here
from airflow_dynamic_tables.cli.project import definitions, find_definitions, identifier, named_tables, project_of
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import owner_of, quiet_workspace_of, workspace_of
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.results import items, plain
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.printing import hidden_settings, statement_of, yaml_of
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.deployments import diffing as applying
from airflow_dynamic_tables.services.deployments.comparing import DeployedColumns, refined
from airflow_dynamic_tables.services.deployments.declaring import definition_of, deployed_table, deployed_tables
from airflow_dynamic_tables.services.deployments.diffing import Applied, ApplyOutcome, differences
from airflow_dynamic_tables.services.deployments.values import Change, Difference, Touched
from airflow_dynamic_tables.services.refresh.cascading import whole_table_time
from airflow_dynamic_tables.services.refresh.catching_up import with_catch_up
from airflow_dynamic_tables.services.refresh.live_plans import live_plan
from airflow_dynamic_tables.services.refresh.preview import TablePlan
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.upstream import parents_of
from airflow_dynamic_tables.services.tables.workflows import paused_workflows
from airflow_dynamic_tables.services.workspace import Workspace, why_suspended


def compared_plan(arguments: Namespace) -> int:
    """Print plans with the ticks that a refresh would make up for, and warn of tables whose next refresh would be refused."""
    with quiet_workspace_of(arguments) as workspace:
        return plan_and_look(arguments, partial(_completed, workspace), partial(_warn, workspace))


def live_plans(arguments: Namespace) -> int:
    """Print plans with the work that is due now."""
    with quiet_workspace_of(arguments) as workspace:
        look = partial(_warn, workspace) if arguments.compare else lambda _tables: None
        return plan_and_look(arguments, partial(live_plan, workspace), look)


def _completed(workspace: Workspace, planned: TablePlan, table: DynamicTable, defined: Definitions) -> TablePlan:
    return with_catch_up(workspace, planned, table, defined.sources)


def _warn(workspace: Workspace, tables: Sequence[DynamicTable]) -> None:
    found = differences(workspace, Definitions({table.identifier: table for table in tables}), tables)
    for one, table in zip(found, tables, strict=True):
        if told := _obstacle(one):
            print(Mistake(table.path, table.line, 1, f"warning: {table.identifier}: {told}"), file=sys.stderr)


def _obstacle(found: Difference) -> str | None:
    if found.change is Change.UNKNOWN:
        return f"its table cannot be read: {found.reason}"
    return found.reason if found.change is Change.REBUILD else None


_COLUMNS = ("table", "change", "rows", "bytes", "partitions", "downstream")
_NO_TEXT = ("query", "original_query", "expanded_query", "resolved.query")
"""Fields shown as a line diff."""


@command(
    "diff",
    "compare what is declared with what is deployed",
    (
        TABLES,
        flag("--exit-code", "also exit with 1 if a table differs"),
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def diff(arguments: Namespace) -> int:
    """Compare the definitions with what is deployed, without Spark: what changes of each table (nothing, metadata, new
    nullable columns, the data, or all of it), how its query differs, which columns of other tables read it, and how much
    must be computed again.

    It also names tables that are no longer declared. Exits with 1 on a wrong definition, a catalog that does not answer,
    or two deployments that claim one table.
    """
    defined, sound = definitions(arguments)
    named = named_tables(defined, arguments.tables) if arguments.tables else None
    with workspace_of(arguments, "Comparing the definitions with the catalogs") as workspace:
        found = differences(workspace, defined, named, is_complete=sound)
        _say_paused(workspace, named or defined.tables.values())
    show(found, arguments.output)
    is_wrong = not (sound or arguments.tables) or any(one.claimed or one.change is Change.UNKNOWN for one in found)
    differs = arguments.exit_code and any(one.change is not Change.UNCHANGED for one in found)
    return FAILED if is_wrong or differs else OK


_SHOWN = ("identifier", "change", "outcome", "version", "detail")


@command(
    "apply",
    "deploy the definitions: register new tables, alter changed ones",
    (
        TABLES,
        flag("--refresh", "also recompute all rows of tables whose query changed; a rebuild needs this"),
        flag("--without-spark", "do not ask Spark which columns the changed queries return"),
        flag("--take-over", "take over tables that another deployment has declared"),
        MASTER,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def apply(arguments: Namespace) -> int:
    """Apply the differences that diff shows.

    Unchanged tables and their DAGs are not touched. Rows are recomputed by later refreshes, or at once with --refresh; a
    rebuild needs --refresh. Tables that are no longer declared keep their data until drop. Exits with 1 if a change was
    not applied.
    """
    defined, sound = definitions(arguments)
    named = named_tables(defined, arguments.tables) if arguments.tables else None
    with workspace_of(arguments, "Deploying the definitions") as workspace:
        found = _asked(arguments, workspace, defined, differences(workspace, defined, named, is_complete=sound))

        def refresh(table: DynamicTable) -> Version | Skipped:
            return run_here(workspace, _request(workspace, defined, table), arguments)

        done = [
            applying.apply(
                workspace,
                one,
                defined.tables[one.identifier],
                takes_over=arguments.take_over,
                refresh=refresh if arguments.refresh else None,
            )
            for one in found
            if one.change is not Change.REMOVED
        ]
        _say_paused(workspace, named or defined.tables.values())
    _print(done, arguments.output)
    for one in found:
        if one.change is Change.REMOVED:
            print(f"{one.identifier} is no longer declared; {one.next}.", file=sys.stderr)
    is_done = all(one.outcome is not ApplyOutcome.NOT_DONE for one in done)
    return OK if is_done and (sound or arguments.tables) else FAILED


def _asked(arguments: Namespace, workspace: Workspace, defined: Definitions, found: list[Difference]) -> list[Difference]:
    """Refine the differences by the columns that Spark derives from changed queries, if Spark is installed."""
    changed = {one.identifier for one in found if one.change is Change.NEW or one.change.makes_other_rows or one.query}
    spark = SparkParser.installed() if changed and not arguments.without_spark else None
    if spark is None:
        return found
    returned = ReturnedColumns(spark, Cache.of_user(), DeployedColumns(workspace).known, lambda _: changed)
    try:
        with spark:
            project_of(arguments).load(returned)
    except ConfigurationError:
        if spark.failure is None:
            raise
        print(f"{spark.failure} Columns are not checked.", file=sys.stderr)
        return found
    return [
        refined(workspace, one, defined.tables[one.identifier], returned) if one.identifier in changed else one for one in found
    ]


def _request(workspace: Workspace, defined: Definitions, table: DynamicTable) -> RefreshRequest:
    token = str(uuid4())
    return RefreshRequest(
        table=table,
        sources=defined.sources,
        schedule_time=whole_table_time(workspace, table),
        token=token,
        owner=owner_of("apply", token),
        full_refresh=True,
        waits=False,
        parents=parents_of(table, defined),
    )


def _print(done: list[Applied], form: str) -> None:
    if form != "table":
        output.listing(done, form)
        return
    some = [one for one in done if one.outcome is not ApplyOutcome.UNCHANGED]
    output.listing(some, "table", _SHOWN)
    counts = Counter(one.outcome.words for one in done)
    print(f"{output.counted(len(done), 'table')}: {output.summed(counts)}.", file=sys.stderr)


@command(
    "export",
    "export deployed tables as YAML or SQL definitions",
    (
        TABLES,
        Argument(
            ("--as",),
            "output language: yaml (default) or sql, the statements of dynamic-tables sql",
            {"choices": ("yaml", "sql"), "default": "yaml", "dest": "form"},
        ),
        *STATE,
    ),
)
def export(arguments: Namespace) -> int:
    """Print the deployed dynamic tables as a file of definitions.

    Loading it gives the same tables, in a folder without defaults that has their sources. Queries have full names, and
    views of the definitions are written out.
    """
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
    """Return the tables of the definitions, if there are any. They may name catalogs that are listed nowhere else."""
    return definitions(arguments)[0].tables if find_definitions(arguments) is not None else ()


def _say_paused(workspace: Workspace, tables: Iterable[DynamicTable]) -> None:
    by_dag = {table.workflow_id: table.identifier for table in tables if table.scheduler in (None, DEFAULT_SCHEDULER)}
    for dag, paused in sorted(paused_workflows(workspace, by_dag.keys()).items()):
        if paused and not why_suspended(by_dag[dag], workspace.find_entry(by_dag[dag])):
            print(f"The DAG {dag} is paused: no schedule refreshes {by_dag[dag]}. airflow dags unpause {dag}", file=sys.stderr)


def show(found: Sequence[Difference], form: str) -> None:
    """Print differences. A table shows only the changed tables, with their details; claims and a summary go to stderr."""
    if form != "table":
        output.listing(found, form)
    else:
        some = [one for one in found if one.change is not Change.UNCHANGED]
        output.rows([_at_a_glance(one) for one in some], _COLUMNS)
        for one in some:
            _print_difference(one)
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


def _print_difference(one: Difference) -> None:
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
