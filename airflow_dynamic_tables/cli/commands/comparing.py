"""``plan --compare``: a module of its own, because plain ``plan`` loads no catalog."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from airflow_dynamic_tables.cli.commands.definitions import plan_and_look
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change, Difference


def plan(arguments: Namespace) -> int:
    """As without ``--compare``, and warn of every table whose next refresh would be refused."""
    return plan_and_look(arguments, lambda tables: _warn(arguments, tables))


def _warn(arguments: Namespace, tables: Sequence[DynamicTable]) -> None:
    with workspace_of(arguments, "Comparing the definitions with the catalogs") as workspace:
        found = differences(workspace, Definitions({table.identifier: table for table in tables}), tables)
    for one, table in zip(found, tables, strict=True):
        if told := _obstacle(one):
            print(Mistake(table.path, table.line, 1, f"warning: {table.identifier}: {told}"), file=sys.stderr)


def _obstacle(found: Difference) -> str | None:
    """Why an ordinary refresh would surely be refused."""
    if found.change is Change.UNKNOWN:
        return f"its table cannot be read: {found.reason}"
    return found.reason if found.change is Change.REBUILD else None
