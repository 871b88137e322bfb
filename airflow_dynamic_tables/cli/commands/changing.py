"""Commands that change dynamic tables: ``suspend``, ``resume``, ``rename``, ``recover``, ``drop``."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import identifier, is_defined
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.lifecycle.dropping import check_droppable, drop, drop_if_exists
from airflow_dynamic_tables.services.lifecycle.renaming import rename, renamed
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.maintenance.recovering import recover
from airflow_dynamic_tables.services.registered import look_up
from airflow_dynamic_tables.services.workspace import Workspace


def suspend_table(arguments: Namespace) -> int:
    """Suspend a table, and print its former and current state."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = suspend(workspace, name, arguments.reason)
    _print(change, arguments.output)
    return OK


def resume_table(arguments: Namespace) -> int:
    """Resume a suspended table, and print its former and current state."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = resume(workspace, name)
    _print(change, arguments.output)
    return OK


def _print(change: StateChange, style: str) -> None:
    output.record(change, style)
    if change.workflow:
        print(change.workflow, file=sys.stderr)


def rename_table(arguments: Namespace) -> int:
    """Rename a table, and print what is left to do."""
    name = identifier(arguments, arguments.table)
    new = renamed(name, arguments.new)
    with workspace_of(arguments) as workspace:
        done = rename(workspace, name, new)
    output.record(done, arguments.output)
    if is_defined(arguments, name):
        print(f"The definitions still say {name}: change the name there, or its next refresh makes a new table.", file=sys.stderr)
    return OK


def recover_table(arguments: Namespace) -> int:
    """Finish or undo interrupted refreshes, and print what is left."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        recovered = recover(workspace, name)
    output.record(recovered, arguments.output)
    return FAILED if recovered.left else OK


def drop_table(arguments: Namespace) -> int:
    """Drop a dynamic table, and print what is kept."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        if not arguments.yes:
            return _would_drop(workspace, name, if_exists=arguments.if_exists)
        dropped = (drop_if_exists if arguments.if_exists else drop)(workspace, name, purge=arguments.purge)
    output.record(dropped, arguments.output)
    if not dropped.dropped:
        print(f"There is no {name}; nothing to do.", file=sys.stderr)
        return OK
    if dropped.location is not None:
        when = "before a new table of this name finds their rows" if dropped.is_still_read else "when they are no longer needed"
        print(f"The maintenance leaves the files in {dropped.location} alone: delete them {when}.", file=sys.stderr)
    if is_defined(arguments, name) is not False:
        print("If the table is still defined, its next refresh will recreate it.", file=sys.stderr)
    return OK


def _would_drop(workspace: Workspace, name: TableIdentifier, *, if_exists: bool) -> int:
    if if_exists and not workspace.catalog(name.catalog).table_exists(name.path):
        print(f"There is no {name}; nothing to do.", file=sys.stderr)
        return OK
    check_droppable(workspace, look_up(workspace, name))
    print(f"{name} would be dropped with all its versions; say --yes to do it.", file=sys.stderr)
    return USAGE
