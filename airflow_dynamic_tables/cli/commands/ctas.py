"""``ctas``: create or replace a table from a query."""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, Argument, flag
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.commands.refresh import with_spark
from airflow_dynamic_tables.cli.project import definitions, find_definitions, read_argument
from airflow_dynamic_tables.cli.running import OK, USAGE
from airflow_dynamic_tables.cli.state import owner_of, workspace_of
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.services.ctas.planning import Decision, decide, planned
from airflow_dynamic_tables.services.ctas.running import make
from airflow_dynamic_tables.services.ctas.wanted import (
    Created,
    CtasOutcome,
    QueryPlace,
    WantedTable,
    keys_in,
    named_new_table,
    purpose_of,
)
from airflow_dynamic_tables.services.workspace import Workspace

_COLUMNS = ("table", "outcome", "version", "rows", "files", "bytes", "seconds")


@command(
    "ctas",
    "create a table from a query, once",
    (
        Argument(("table",), "its name: catalog.database.table, or less", {"metavar": "NAME"}),
        Argument(("--query",), "the query that returns its rows", {"metavar": "SQL"}),
        Argument(("--query-file",), "a file with the query", {"metavar": "PATH"}),
        flag("--if-not-exists", "keep an existing table; this is no error"),
        flag("--replace", "replace the rows of a table that ctas created"),
        Argument(("--format",), "format of the table (default: iceberg, or as it was)", {"metavar": "FORMAT"}),
        Argument(
            ("--partitioned-by",),
            "its partition keys, separated by commas: columns, or transforms such as day(ts), bucket(16, id)",
            {"metavar": "KEYS"},
        ),
        Argument(("--comment",), "its description", {"metavar": "TEXT"}),
        Argument(("--timezone",), "time zone of the query (default: UTC)", {"metavar": "ZONE", "default": "UTC"}),
        Argument(
            ("--conf",),
            "a setting of Spark; may be repeated",
            {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append"},
        ),
        Argument(("--token",), "unique name of this try", {"metavar": "TOKEN", "type": argument_types.token}),
        flag("--dry-run", "only print what it would do, or why it would refuse"),
        MASTER,
        *STATE,
        OUTPUT,
    ),
)
def create_table(arguments: Namespace) -> int:
    """CREATE TABLE AS: run a query and create a table from its rows, in one step.

    Readers see the table only when it is complete. Ctrl-C or a failure leaves no table, or with --replace the previous
    one.
    """
    if problem := _contradiction(arguments):
        print(problem, file=sys.stderr)
        return USAGE
    with workspace_of(arguments) as workspace:
        defined = definitions(arguments)[0] if find_definitions(arguments) is not None else Definitions()
        wanted = _wanted(arguments, workspace)
        decision = decide(workspace, defined, wanted)
        if not arguments.dry_run:
            token = arguments.token or str(uuid4())
            made = make_here(workspace, wanted, decision, arguments, (token, owner_of("ctas", token)))
    if arguments.dry_run:
        output.record(planned(wanted, decision), arguments.output)
    else:
        _print(made, arguments.output)
    return OK


def make_here(
    workspace: Workspace, wanted: WantedTable, decision: Decision, arguments: Namespace, by: tuple[str, str]
) -> Created:
    """Carry out the decided action with the Spark that the arguments name; Ctrl-C and SIGTERM stop it."""
    if decision.read is None:
        return Created(wanted.identifier, decision.outcome)
    work = partial(make, workspace, wanted, decision, by)
    return with_spark(workspace, wanted.identifier, wanted.spark, arguments, work)


def _contradiction(arguments: Namespace) -> str | None:
    if arguments.if_not_exists and arguments.replace:
        return "--if-not-exists and --replace contradict each other; give one of them."
    if (arguments.query is None) == (arguments.query_file is None):
        return "Give the query by --query or by --query-file, and not by both."
    return None


def _wanted(arguments: Namespace, workspace: Workspace) -> WantedTable:
    scope = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)
    path = Path(arguments.query_file or "--query")
    keys, keys_place = keys_in(arguments.partitioned_by or "", "--partitioned-by")
    query = read_argument(path) if arguments.query_file else arguments.query
    return WantedTable(
        identifier=named_new_table(arguments.table, scope),
        query=query,
        scope=scope,
        place=QueryPlace(path, query),
        purpose=purpose_of(if_not_exists=arguments.if_not_exists, replace=arguments.replace),
        format=arguments.format,
        partition_keys=keys,
        keys_place=keys_place,
        comment=arguments.comment,
        timezone=arguments.timezone,
        spark=SparkSettings(conf=dict(arguments.conf or ())),
    )


def _print(made: Created, form: str) -> None:
    if form != "table":
        output.record(made, form)
    elif made.outcome is CtasOutcome.EXISTS:
        print(f"{made.table} is there already; it stays as it is.")
    else:
        output.lines({name: items(made)[name] for name in _COLUMNS})
