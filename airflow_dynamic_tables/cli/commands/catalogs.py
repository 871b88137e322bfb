"""Commands that read and change catalogs: ``catalogs``, ``tables``, ``describe``, ``create-view`` and others."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import OUTPUT, STATE, TABLE, Argument, flag
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.project import definitions, definitions_if_any, find_definitions, identifier, read_argument
from airflow_dynamic_tables.cli.running import OK, USAGE
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.partitions import describe as describe_partition
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services import catalogs
from airflow_dynamic_tables.services.catalogs import ObjectChange, ObjectDetails
from airflow_dynamic_tables.services.refresh.partition_status import list_partitions as partition_status
from airflow_dynamic_tables.services.workspace import Workspace

_COMMON = (*STATE, OUTPUT)

_CATALOG = Argument(("catalog",), "a catalog (default: the default catalog)", {"metavar": "CATALOG", "nargs": "?"})
_DATABASE = Argument(
    ("database",), "a database: catalog.database or database (default: the default one)", {"metavar": "DATABASE", "nargs": "?"}
)
_NAME = Argument(
    ("name",), "its name; a shorter name than the full one is in the default catalog and database", {"metavar": "NAME"}
)
_COMMENT = Argument(("--comment",), "its description", {"metavar": "TEXT"})
_PROPERTY = Argument(
    ("--property",),
    "a property; may be repeated",
    {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
)
_REPLACE = flag("--replace", "replace an existing one of this name")
_IF_EXISTS = flag("--if-exists", "do nothing when it is missing")
_IF_NOT_EXISTS = flag("--if-not-exists", "do nothing when the name is taken")

_STATUS = ("name", "exists", "version", "refreshed_at", "rows", "dirty", "compared_at", "frozen", "quarantined")
_COLUMNS = ("name", "type", "comment", "nulls", "minimum", "maximum")


@command("catalogs", "list the catalogs", _COMMON)
def list_catalogs(arguments: Namespace) -> int:
    """List the catalogs that the catalogs file names or, without one, that the definitions mention. Connects to none."""
    defined = definitions(arguments)[0] if find_definitions(arguments) else None
    mentioned = {identifier.catalog for identifier in (*defined.tables, *defined.sources)} if defined else set()
    with workspace_of(arguments) as workspace:
        embedded = workspace.settings.catalogs_file is None
        found = catalogs.catalogs(workspace, mentioned if embedded else ())
    output.listing(found, arguments.output)
    return OK


@command("databases", "list the databases of a catalog", (_CATALOG, *_COMMON))
def list_databases(arguments: Namespace) -> int:
    """List the databases of a catalog."""
    return _list(arguments, lambda workspace: catalogs.databases(workspace, arguments.catalog))


@command("tables", "list the tables, dynamic tables and views of a database", (_DATABASE, *_COMMON))
def list_tables(arguments: Namespace) -> int:
    """List everything in a database that can be read as a table, of any engine."""
    return _list(arguments, lambda workspace: catalogs.tables(workspace, arguments.database))


@command("views", "list the views of a database", (_DATABASE, *_COMMON))
def list_views(arguments: Namespace) -> int:
    """List the views of a database."""
    return _list(arguments, lambda workspace: catalogs.views(workspace, arguments.database))


@command("functions", "list the functions of a database", (_DATABASE, *_COMMON))
def list_functions(arguments: Namespace) -> int:
    """List the functions of a database."""
    return _list(arguments, lambda workspace: catalogs.functions(workspace, arguments.database))


@command(
    "partitions",
    "list the partitions of a table: rows, bytes, files",
    (
        TABLE,
        Argument(
            ("--partition",),
            "only those that agree with this spec, e.g. ds=2024-01-01",
            {"metavar": "SPEC", "type": argument_types.partition},
        ),
        flag(
            "--status",
            "of a dynamic table: show instead the version that made each, and whether it is dirty, frozen or in quarantine",
        ),
        *_COMMON,
    ),
)
def list_partitions(arguments: Namespace) -> int:
    """List the partitions of a table with their sizes, as the table's own metadata or its catalog has them."""
    if arguments.status:
        return _partition_status(arguments)
    with workspace_of(arguments) as workspace:
        partitions = catalogs.partitions(workspace, arguments.table, arguments.partition)
    if arguments.output == "table":
        rows = [{"partition": describe_partition(item.spec), **asdict(item.statistics)} for item in partitions]
        output.rows(rows)
    else:
        output.listing(partitions, arguments.output)
    return OK


def _partition_status(arguments: Namespace) -> int:
    name = identifier(arguments, arguments.table)
    defined, _ = definitions_if_any(arguments)
    wanted = (arguments.partition or {}).items()
    with workspace_of(arguments) as workspace:
        found = partition_status(workspace, name, defined.tables.get(name))
    listed = [one for one in found if wanted <= one.values.items()]
    output.listing(listed, arguments.output, _STATUS)
    if not listed:
        print(f"{name} has no such partition, or is not partitioned.", file=sys.stderr)
    return OK


@command("describe", "show a table, view, function or database in full", (_NAME, *_COMMON))
def describe(arguments: Namespace) -> int:
    """Show the table, dynamic table, view, function or database of that name, the first that exists, with its statistics."""
    with workspace_of(arguments) as workspace:
        details = catalogs.describe(workspace, arguments.name)
    if arguments.output == "table":
        _describe(details)
    else:
        output.record(details, arguments.output)
    return OK


def _describe(details: ObjectDetails) -> None:
    fields = dict(items(details.value))
    fields.pop("definition", None)  # intended for programs; it repeats at length what is printed here
    columns = fields.pop("columns", ())
    statistics = dict(details.statistics or {})
    of_columns = statistics.pop("columns", {})
    output.lines({"identifier": details.identifier, "kind": details.kind, **fields, **statistics})
    if columns:
        print("\ncolumns:")
        unknown = dict.fromkeys(_COLUMNS)
        rows = [{**unknown, **asdict(column), **of_columns.get(column.name, {})} for column in columns]
        output.rows(rows, _COLUMNS)


@command("create-database", "create a database", (_NAME, _COMMENT, _PROPERTY, _IF_NOT_EXISTS, *_COMMON))
def create_database(arguments: Namespace) -> int:
    """Create a database in a catalog."""
    value = CatalogDatabase(arguments.comment, dict(arguments.properties or ()))
    return _change(
        arguments,
        "created",
        lambda workspace: catalogs.create_database(workspace, arguments.name, value, ignore_if_exists=arguments.if_not_exists),
    )


@command(
    "drop-database",
    "drop a database",
    (
        _NAME,
        flag("--cascade", "drop what it holds, too; data files stay"),
        _IF_EXISTS,
        *_COMMON,
    ),
)
def drop_database(arguments: Namespace) -> int:
    """Drop a database that is empty or, with --cascade, with everything in it. Data files are not deleted."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: catalogs.drop_database(
            workspace, arguments.name, ignore_if_not_exists=arguments.if_exists, cascade=arguments.cascade
        ),
    )


@command(
    "create-view",
    "create a view that definitions can read",
    (
        _NAME,
        Argument(("--query",), "the SELECT", {"metavar": "SQL"}),
        Argument(("-f", "--file"), "file with the SELECT", {"metavar": "FILE"}),
        _COMMENT,
        _REPLACE,
        *_COMMON,
    ),
)
def create_view(arguments: Namespace) -> int:
    """Create a view.

    Short names in its query mean tables and functions of the view's own database. Definitions read it as a source of
    format 'view'.
    """
    if (arguments.query is None) == (arguments.file is None):
        print("A view needs either --query or --file; give one of them.", file=sys.stderr)
        return USAGE

    def create(workspace: Workspace) -> str:
        query = read_argument(Path(arguments.file)) if arguments.file else arguments.query
        view = workspace.catalogs.resolve(arguments.name)
        try:
            catalogs.create_view(workspace, view, query, arguments.comment, replace=arguments.replace)
        except DefinitionError as error:
            raise DefinitionError(tuple(f"{arguments.file or 'query'}:{mistake}" for mistake in error.mistakes)) from error
        return str(view)

    return _change(arguments, "created", create)


@command("drop-view", "drop a view", (_NAME, _IF_EXISTS, *_COMMON))
def drop_view(arguments: Namespace) -> int:
    """Drop a view, and nothing else."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: catalogs.drop_view(workspace, arguments.name, ignore_if_not_exists=arguments.if_exists),
    )


@command(
    "create-function",
    "create a function that queries can call",
    (
        _NAME,
        Argument(("--language",), "what it is written in", {"choices": ("python", "java"), "required": True}),
        Argument(("--as",), "module:callable (python) or class (java)", {"metavar": "CODE", "required": True, "dest": "code"}),
        Argument(("--returns",), "type of its result as Spark DDL; python needs it", {"metavar": "TYPE"}),
        Argument(
            ("--property",),
            "a property; py_files and jars name the code by URIs, separated by commas; may be repeated",
            {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
        ),
        _REPLACE,
        *_COMMON,
    ),
)
def create_function(arguments: Namespace) -> int:
    """Create a function. A refresh whose query calls it registers it in its Spark session."""
    properties = dict(arguments.properties or ())
    if arguments.returns is not None:
        properties["returns"] = arguments.returns
    function = CatalogFunction(arguments.code, arguments.language, properties)
    return _change(
        arguments,
        "created",
        lambda workspace: catalogs.create_function(workspace, arguments.name, function, replace=arguments.replace),
    )


@command("drop-function", "drop a function", (_NAME, _IF_EXISTS, *_COMMON))
def drop_function(arguments: Namespace) -> int:
    """Drop a function."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: catalogs.drop_function(workspace, arguments.name, ignore_if_not_exists=arguments.if_exists),
    )


def _list(arguments: Namespace, look: Callable[[Workspace], Sequence[Any]]) -> int:
    with workspace_of(arguments) as workspace:
        found = look(workspace)
    output.listing(found, arguments.output)
    return OK


def _change(arguments: Namespace, outcome: str, change: Callable[[Workspace], str]) -> int:
    with workspace_of(arguments) as workspace:
        identifier = change(workspace)
    output.listing([ObjectChange(identifier, outcome)], arguments.output)
    return OK
