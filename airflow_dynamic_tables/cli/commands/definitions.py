"""``init``, ``validate`` and ``plan``: commands that need definitions only."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import (
    DEBUG,
    INTO,
    MASTER,
    OUTPUT,
    SCHEDULE_TIME,
    STATE,
    TABLES,
    WITHOUT_SPARK,
    Argument,
    flag,
)
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.new_project import COMMANDS, write_project
from airflow_dynamic_tables.cli.project import definitions, named_tables, project_of, schedule_time
from airflow_dynamic_tables.cli.running import FAILED, OK, execute, progress_of
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services.project import Project, load_tests
from airflow_dynamic_tables.services.refresh.preview import TablePlan, not_schedulable, preview, refusal_of_servers, warnings

_WITH_SPARK = "airflow_dynamic_tables.cli.commands.checking.validate"
_COMPARED = "airflow_dynamic_tables.cli.commands.deployments.compared_plan"
_SAMPLED = "airflow_dynamic_tables.cli.commands.refresh.sampled_change"
_LIVE = "airflow_dynamic_tables.cli.commands.deployments.live_plans"
"""Dotted paths instead of imports, because most runs need neither catalogs nor Spark's parser."""


@command("init", "create a sample project: a table, its source, a DAG file", (INTO, DEBUG), is_daily=True)
def init(arguments: Namespace) -> int:
    """Write a project that runs: a dynamic table and its source as YAML, the catalogs, the DAG file for Airflow, and a week
    of data that ends yesterday.

    Prints the next commands. If one of its files already exists, it writes nothing.
    """
    folder = Path(arguments.into)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    print("Wrote:", *write_project(folder, yesterday), sep="\n  ")
    change = () if folder.resolve() == Path.cwd() else (f"cd {shlex.quote(str(folder))}",)
    print("", "Next:", *(f"  {command}" for command in (*change, *COMMANDS)), sep="\n")
    print(f"\n{folder / 'README.md'} says what is what, and how it comes into Airflow.")
    return OK


_EXPLAIN = flag("--explain", "also list what makes every change of a source one of all partitions, and what to write instead")


@command("validate", "check the definitions and print every mistake", (WITHOUT_SPARK, _EXPLAIN, *STATE), is_daily=True)
def validate(arguments: Namespace) -> int:
    """Check every definition.

    Prints every mistake of every file as path:line:column: message, and exits with 1 if there is one. Needs no catalog,
    no Spark and no Airflow: right for a pre-commit hook or CI. If PySpark and Java are installed, Spark checks the syntax
    of each query once, and the columns of the queries that changed since they were deployed. With --explain, it also prints
    every place of a query that hides which partitions of a source its partitions are made of.
    """
    return validate_without_spark(arguments) if arguments.without_spark else execute(_WITH_SPARK, arguments)


def validate_without_spark(arguments: Namespace) -> int:
    """Print every mistake of every file, one per line, without Spark and without catalogs."""
    project = project_of(arguments)
    return print_mistakes(arguments, project, lambda: (checked(project), "Spark did not parse the queries."))


def print_mistakes(arguments: Namespace, project: Project, load: Callable[[], tuple[Definitions, str]]) -> int:
    """Print every mistake of every file, one per line, and warnings of tables without mistakes.

    :param load: returns the definitions, and a sentence on which parser read their queries.
    """
    try:
        with progress_of(arguments).step("Checking the definitions and their queries"):
            defined, judge = load()
    except DefinitionError as error:
        print(error)
        return FAILED
    if misplaced := [*_unscheduled(defined.tables.values()), *_misplaced(arguments, defined.tables.values(), defined)]:
        print(*misplaced, sep="\n")
        return FAILED
    for table in defined.tables.values():
        for told in warnings(table):
            print(Mistake(table.path, table.line, 1, f"warning: {table.identifier}: {told}"), file=sys.stderr)
    if arguments.explain:
        for obstacle in project.obstacles():
            print(obstacle)
    counts = f"{output.counted(len(defined.tables), 'table')}, {output.counted(len(defined.sources), 'source')}"
    print(f"OK: {counts} in {project.path}. {judge}", file=sys.stderr)
    return OK


def checked(project: Project, spark: SparkParser | None = None, columns: ReturnedColumns | None = None) -> Definitions:
    """Load the definitions.

    :param columns: determines which columns the queries return.
    :raises DefinitionError: with every mistake of the definitions and of their tests.
    """
    defined, _, mistakes = load_tests(project, spark, columns)
    if mistakes:
        raise DefinitionError(mistakes)
    return defined


def _unscheduled(tables: Iterable[DynamicTable]) -> list[Mistake]:
    """Report tables that their scheduler cannot refresh, or whose scheduler is not installed."""
    refusals = ((table, not_schedulable(table)) for table in tables)
    return [Mistake(table.path, table.line, 1, f"{table.identifier}: {why}") for table, why in refusals if why]


def _misplaced(arguments: Namespace, tables: Iterable[DynamicTable], defined: Definitions) -> list[Mistake]:
    """Report tables whose Spark connection cannot keep them fresh; none without Airflow, which knows the connections."""
    leads_to_server: Callable[[str], bool] | None = getattr(arguments, "installed_servers", None)
    if leads_to_server is None:
        return []
    refusals = ((table, refusal_of_servers(table, defined.sources)) for table in tables)
    return [Mistake(table.path, table.line, 1, why) for table, why in refusals if why and leads_to_server(table.spark.conn_id)]


_COLUMNS = ("identifier", "refresh_mode", "cron", "timezone", "schedule_time", "partitions")
_LIVE_COLUMNS = ("identifier", "schedule_time", "action", "reason_code", "replaced", "expected_seconds", "reason")


@command(
    "plan",
    "show what a scheduled refresh would do",
    (
        TABLES,
        SCHEDULE_TIME,
        flag(
            "--compare",
            "also read the tables: show missed ticks that it would make up for, and warn of changes that it would refuse",
        ),
        flag("--live", "also compare the tables with their sources: show which partitions a refresh would replace now, and why"),
        Argument(
            ("--sample",),
            "of one table: run the deployed query and the new one on this partition, e.g. ds=2024-01-01, on a range, or on all "
            "rows, and show the difference",
            {"metavar": "SPEC", "type": argument_types.partitions_or_all},
        ),
        Argument(
            ("--rows",),
            "with --sample, how many of the rows that differ to show (default: 10)",
            {"metavar": "N", "type": argument_types.positive, "default": 10},
        ),
        flag("--exit-code", "with --sample, also exit with 1 if rows or columns differ"),
        MASTER,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def plan(arguments: Namespace) -> int:
    """Show what a scheduled refresh would do: refresh mode and why, cron, partitions, upstream tables and the statement.

    It needs neither Spark nor Airflow, and a catalog only with --compare and --live. The table output shows the statement
    of named tables only. With --sample, Spark shows what a change of the definition does to the rows of some partitions;
    nothing is published.
    """
    if arguments.sample is not None:
        return execute(_SAMPLED, arguments)
    if arguments.live:
        return execute(_LIVE, arguments)
    if arguments.compare:
        return execute(_COMPARED, arguments)
    return plan_and_look(arguments, lambda planned, _table, _defined: planned, lambda _tables: None)


def plan_and_look(
    arguments: Namespace,
    completed: Callable[[TablePlan, DynamicTable, Definitions], TablePlan],
    look: Callable[[Sequence[DynamicTable]], None],
) -> int:
    """Print what a scheduled refresh of each table would do, and pass the tables on."""
    defined, sound = definitions(arguments)
    tables = named_tables(defined, arguments.tables)
    now = datetime.now(UTC)
    times = [schedule_time(table, arguments.schedule_time, now) for table in tables]
    plans = [completed(preview(table, at, defined.sources), table, defined) for table, at in zip(tables, times, strict=True)]
    if arguments.output != "table":
        output.listing(plans, arguments.output)
    elif not arguments.tables:
        output.listing(plans, "table", _LIVE_COLUMNS if arguments.live else _COLUMNS)
    else:
        for number, planned in enumerate(plans):
            print(end="\n" if number else "")
            output.lines(_for_people(planned))
    look(tables)
    misplaced = _misplaced(arguments, tables, defined)
    for mistake in misplaced:
        print(mistake, file=sys.stderr)
    return OK if (sound or arguments.tables) and not misplaced else FAILED


def _for_people(planned: TablePlan) -> dict[str, Any]:
    """Return a plan without empty fields, in which the name of ``unchanged`` states when it applies."""
    shown = {name: value for name, value in items(planned).items() if value is not None or name == "cron"}
    return {"when no input changed" if name == "unchanged" else name: value for name, value in shown.items()}
