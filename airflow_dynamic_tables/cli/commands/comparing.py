"""``plan --compare``: a module of its own, because plain ``plan`` loads no catalog."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from airflow_dynamic_tables.cli.commands.definitions import plan_and_look
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.refresh.catching_up import with_catch_up
from airflow_dynamic_tables.services.refresh.preview import TablePlan
from airflow_dynamic_tables.services.workspace import Workspace


def plan(arguments: Namespace) -> int:
    """As without ``--compare``, with what a refresh would make up for; warn of every table whose next one would be refused."""
    with quiet_workspace_of(arguments) as workspace:
        return plan_and_look(arguments, partial(_completed, workspace), partial(_warn, workspace))


def _completed(workspace: Workspace, planned: TablePlan, table: DynamicTable, defined: Definitions) -> TablePlan:
    return with_catch_up(workspace, planned, table, defined.sources)


def _warn(workspace: Workspace, tables: Sequence[DynamicTable]) -> None:
    found = differences(workspace, Definitions({table.identifier: table for table in tables}), tables)
    for one, table in zip(found, tables, strict=True):
        if told := _obstacle(one):
            print(Mistake(table.path, table.line, 1, f"warning: {table.identifier}: {told}"), file=sys.stderr)


def _obstacle(found: Difference) -> str | None:
    """Why an ordinary refresh would surely be refused."""
    if found.change is Change.UNKNOWN:
        return f"its table cannot be read: {found.reason}"
    return found.reason if found.change is Change.REBUILD else None
