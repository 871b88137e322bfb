"""Commands that read and change catalogs: ``catalogs``, ``tables``, ``describe``, ``create-view`` and others."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, find_definitions
from airflow_dynamic_tables.cli.running import OK, USAGE
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.partitions import describe as describe_partition
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError
from airflow_dynamic_tables.services import catalogs as databases
from airflow_dynamic_tables.services import catalogs as functions
from airflow_dynamic_tables.services import catalogs as listing
from airflow_dynamic_tables.services import catalogs as views
from airflow_dynamic_tables.services.catalogs import ObjectChange, ObjectDetails
from airflow_dynamic_tables.services.workspace import Workspace

_COLUMNS = ("name", "type", "comment", "nulls", "minimum", "maximum")


def list_catalogs(arguments: Namespace) -> int:
    """Print all catalogs, without connecting to them."""
    defined = definitions(arguments)[0] if find_definitions(arguments) else None
    mentioned = {identifier.catalog for identifier in (*defined.tables, *defined.sources)} if defined else set()
    with workspace_of(arguments) as workspace:
        embedded = workspace.settings.catalogs_file is None
        catalogs = listing.catalogs(workspace, mentioned if embedded else ())
    output.listing(catalogs, arguments.output)
    return OK


def list_databases(arguments: Namespace) -> int:
    """Print the databases of a catalog."""
    return _list(arguments, lambda workspace: listing.databases(workspace, arguments.catalog))


def list_tables(arguments: Namespace) -> int:
    """Print the tables, dynamic tables and views of a database."""
    return _list(arguments, lambda workspace: listing.tables(workspace, arguments.database))


def list_views(arguments: Namespace) -> int:
    """Print the views of a database."""
    return _list(arguments, lambda workspace: listing.views(workspace, arguments.database))


def list_functions(arguments: Namespace) -> int:
    """Print the functions of a database."""
    return _list(arguments, lambda workspace: listing.functions(workspace, arguments.database))


def list_partitions(arguments: Namespace) -> int:
    """Print the partitions of a table."""
    with workspace_of(arguments) as workspace:
        partitions = listing.partitions(workspace, arguments.table, arguments.partition)
    if arguments.output == "table":
        rows = [{"partition": describe_partition(item.spec), **asdict(item.statistics)} for item in partitions]
        output.listing(rows, "table")
    else:
        output.listing(partitions, arguments.output)
    return OK


def describe(arguments: Namespace) -> int:
    """Print everything about one object."""
    with workspace_of(arguments) as workspace:
        details = listing.describe(workspace, arguments.name)
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
    output.record({"identifier": details.identifier, "kind": details.kind, **fields, **statistics}, "table")
    if columns:
        print("\ncolumns:")
        unknown = dict.fromkeys(_COLUMNS)
        rows = [{**unknown, **asdict(column), **of_columns.get(column.name, {})} for column in columns]
        output.listing(rows, "table", _COLUMNS)


def create_database(arguments: Namespace) -> int:
    """Create a database."""
    value = CatalogDatabase(arguments.comment, dict(arguments.properties or ()))
    return _change(
        arguments,
        "created",
        lambda workspace: databases.create_database(workspace, arguments.name, value, ignore_if_exists=arguments.if_not_exists),
    )


def drop_database(arguments: Namespace) -> int:
    """Drop a database."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: databases.drop_database(
            workspace, arguments.name, ignore_if_not_exists=arguments.if_exists, cascade=arguments.cascade
        ),
    )


def create_view(arguments: Namespace) -> int:
    """Create a view."""
    if (arguments.query is None) == (arguments.file is None):
        print("A view needs either --query or --file; give one of them.", file=sys.stderr)
        return USAGE

    def create(workspace: Workspace) -> str:
        query = _read(Path(arguments.file)) if arguments.file else arguments.query
        view = workspace.catalogs.resolve(arguments.name)
        try:
            views.create_view(workspace, view, query, arguments.comment, replace=arguments.replace)
        except DefinitionError as error:
            raise DefinitionError(tuple(f"{arguments.file or 'query'}:{mistake}" for mistake in error.mistakes)) from error
        return str(view)

    return _change(arguments, "created", create)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}).") from error


def drop_view(arguments: Namespace) -> int:
    """Drop a view."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: views.drop_view(workspace, arguments.name, ignore_if_not_exists=arguments.if_exists),
    )


def create_function(arguments: Namespace) -> int:
    """Create a function."""
    properties = dict(arguments.properties or ())
    if arguments.returns is not None:
        properties["returns"] = arguments.returns
    function = CatalogFunction(arguments.code, arguments.language, properties)
    return _change(
        arguments,
        "created",
        lambda workspace: functions.create_function(workspace, arguments.name, function, replace=arguments.replace),
    )


def drop_function(arguments: Namespace) -> int:
    """Drop a function."""
    return _change(
        arguments,
        "dropped",
        lambda workspace: functions.drop_function(workspace, arguments.name, ignore_if_not_exists=arguments.if_exists),
    )


def _list(arguments: Namespace, look: Callable[[Workspace], Sequence[Any]]) -> int:
    with workspace_of(arguments) as workspace:
        found = look(workspace)
    output.listing(found, arguments.output)
    return OK


def _change(arguments: Namespace, outcome: str, change: Callable[[Workspace], str]) -> int:
    """Change a catalog, and print the full name of the changed object and the kind of change."""
    with workspace_of(arguments) as workspace:
        identifier = change(workspace)
    output.listing([ObjectChange(identifier, outcome)], arguments.output)
    return OK
