"""``validate`` with Spark; a separate module, because ``validate`` without Spark loads no catalog."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow_dynamic_tables.cli.commands import definitions
from airflow_dynamic_tables.cli.project import project_of
from airflow_dynamic_tables.cli.state import settings_of
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, DynamicTableError
from airflow_dynamic_tables.services.deployments.comparing import DeployedColumns
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import Workspace, has_state, open_workspace

_SHOWN = 5
"""Maximum number of tables listed by name whose columns were not checked."""


def validate(arguments: Namespace) -> int:
    """Print every mistake of every file, one per line; Spark parses the queries and determines the columns of changed ones."""
    spark = SparkParser.installed()
    if spark is None:
        return definitions.validate_without_spark(arguments)
    project = project_of(arguments)
    with _catalogs(arguments) as workspace:
        return definitions.print_mistakes(arguments, project, lambda: _read(project, workspace, spark))


def _read(project: Project, workspace: Workspace | None, spark: SparkParser) -> tuple[Definitions, str]:
    deployed = DeployedColumns(workspace)
    returned = ReturnedColumns(spark, Cache.of_user(), deployed.known, deployed.changed)
    try:
        with spark:
            defined = definitions.checked(project, spark, returned)
    except (ConfigurationError, DefinitionError):
        if spark.failure is None:
            raise
        print(f"{spark.failure} Queries are checked without it.", file=sys.stderr)
        return definitions.checked(project), "Spark did not parse the queries."
    for catalog, failure in deployed.failures.items():
        print(f"Columns are checked without catalog {catalog}: {failure}", file=sys.stderr)
    warnings = (*deployed.misfits(defined.tables, returned), *_collations(defined, returned))
    print(*_unchecked(returned), *sorted(warnings), sep="\n", end="", file=sys.stderr)
    return defined, f"Spark {spark.version} can parse their queries."


@contextmanager
def _catalogs(arguments: Namespace) -> Iterator[Workspace | None]:
    """Open the catalogs of the installation; ``None`` if it has no state yet, because validation must not create it."""
    try:
        settings = settings_of(arguments)
        is_there = has_state(settings)
    except DynamicTableError as error:
        print(f"Columns are checked without catalogs: {error}", file=sys.stderr)
        is_there = False
    if not is_there:
        yield None
        return
    with open_workspace(settings) as workspace:
        yield workspace


def _collations(defined: Definitions, returned: ReturnedColumns) -> Iterator[Mistake]:
    for identifier, found in returned.returned.items():
        table = defined.tables[identifier]
        for column, collations in found.collations.items():
            told = f"column {column!r} has collation {collations}, which no table keeps: a query of the table compares its texts"
            yield Mistake(
                table.path, table.line, 1, f"warning: {identifier}: {told} letter by letter, unless it says COLLATE again"
            )


def _unchecked(returned: ReturnedColumns) -> Sequence[str]:
    """Return a line with the reason for each table whose columns were not checked, and one line for those beyond the limit."""
    lines = [f"The columns of {table} were not checked: {why}." for table, why in sorted(returned.unchecked.items())]
    rest = len(lines) - _SHOWN
    return lines if rest <= 1 else [*lines[:_SHOWN], f"Nor were those of {rest} other tables."]
