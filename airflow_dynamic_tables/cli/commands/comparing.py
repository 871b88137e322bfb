"""``plan --compare``: a module of its own, because plain ``plan`` loads no catalog."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from airflow_dynamic_tables.cli.commands.definitions import plan_and_look
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError
from airflow_dynamic_tables.services.tables.comparing import misfit


def plan(arguments: Namespace) -> int:
    """As without ``--compare``, and warn of every table whose next refresh would be refused."""
    return plan_and_look(arguments, lambda tables: _warn(arguments, tables))


def _warn(arguments: Namespace, tables: Sequence[DynamicTable]) -> None:
    with workspace_of(arguments) as workspace:
        for table in tables:
            try:
                told = misfit(workspace, table)
            except CatalogError as error:
                told = f"its table cannot be looked at: {error}"
            if told is not None:
                print(Mistake(table.path, table.line, 1, f"warning: {table.identifier}: {told}"), file=sys.stderr)
