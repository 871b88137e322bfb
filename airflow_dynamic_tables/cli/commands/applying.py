"""``apply``: what is declared is deployed."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from uuid import uuid4

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.commands.deployments import say_paused
from airflow_dynamic_tables.cli.commands.refresh import owner_of, run_here
from airflow_dynamic_tables.cli.project import definitions, named_tables, project_of
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.deployments import applying
from airflow_dynamic_tables.services.deployments.applying import Applied, Outcome
from airflow_dynamic_tables.services.deployments.columns import DeployedColumns, refined
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.refresh.cascading import whole_table_time
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.upstream import parents_of
from airflow_dynamic_tables.services.workspace import Workspace

_SHOWN = ("identifier", "change", "outcome", "version", "detail")


def apply(arguments: Namespace) -> int:
    """Carry out every difference, parents before children, and print what became of it."""
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
        say_paused(workspace, named or defined.tables.values())
    _print(done, arguments.output)
    for one in found:
        if one.change is Change.REMOVED:
            print(f"{one.identifier} is no longer declared; {one.next}.", file=sys.stderr)
    is_done = all(one.outcome is not Outcome.NOT_DONE for one in done)
    return OK if is_done and (sound or arguments.tables) else FAILED


def _asked(arguments: Namespace, workspace: Workspace, defined: Definitions, found: list[Difference]) -> list[Difference]:
    """The differences, with what Spark says of the columns of changed queries; where it is installed."""
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
    """The refresh of the complete table."""
    token = str(uuid4())
    return RefreshRequest(
        table=table,
        sources=defined.sources,
        schedule_time=whole_table_time(workspace, table),
        token=token,
        owner=owner_of("apply", token),
        full_refresh=True,
        waits=False,
        parents=parents_of(defined.needed_by(table), defined.tables),
    )


def _print(done: list[Applied], form: str) -> None:
    if form != "table":
        output.listing(done, form)
        return
    some = [one for one in done if one.outcome is not Outcome.UNCHANGED]
    output.listing(some, "table", _SHOWN)
    counts = Counter(one.outcome.words for one in done)
    print(f"{output.counted(len(done), 'table')}: {output.summed(counts)}.", file=sys.stderr)
