"""Commands that change dynamic tables: ``suspend``, ``resume``, ``rename``, ``recover``, ``drop``."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import OUTPUT, STATE, TABLE
from airflow_dynamic_tables.cli.command_index import Argument, command
from airflow_dynamic_tables.cli.project import identifier, is_defined
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.lifecycle.dropping import check_droppable, drop, drop_if_exists
from airflow_dynamic_tables.services.lifecycle.registration import rename, renamed
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.maintenance.sweeping import recover
from airflow_dynamic_tables.services.workspace import Workspace


@command(
    "suspend",
    "stop refreshing a table",
    (
        TABLE,
        Argument(("--reason",), "the reason, which the history and list show", {"metavar": "TEXT", "default": ""}),
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def suspend_table(arguments: Namespace) -> int:
    """Stop refreshing a table, by schedule, by hand and in continuous mode.

    A running refresh is completed. Versions and history stay, and readers are not affected. Five failures of scheduled
    refreshes in a row do the same.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = suspend(workspace, name, arguments.reason)
    _print(change, arguments.output)
    return OK


@command("resume", "refresh a suspended table again", (TABLE, *STATE, OUTPUT), is_daily=True)
def resume_table(arguments: Namespace) -> int:
    """Refresh a suspended table again, from the next run of its DAG on. Earlier failures no longer count."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = resume(workspace, name)
    _print(change, arguments.output)
    return OK


def _print(change: StateChange, style: str) -> None:
    output.record(change, style)
    if change.workflow:
        print(change.workflow, file=sys.stderr)


@command(
    "rename",
    "give a dynamic table another name",
    (TABLE, Argument(("new",), "its new name; the database stays", {"metavar": "NEW"}), *STATE, OUTPUT),
)
def rename_table(arguments: Namespace) -> int:
    """Give a dynamic table another name within its database; data, versions and history follow.

    Refused while it is being refreshed, or when a refresh of it is in quarantine. Change the name in its definition, too:
    if the former name is still defined, its next refresh creates a new table of that name.
    """
    name = identifier(arguments, arguments.table)
    new = renamed(name, arguments.new)
    with workspace_of(arguments) as workspace:
        done = rename(workspace, name, new)
    output.record(done, arguments.output)
    if is_defined(arguments, name):
        print(f"The definitions still say {name}: change the name there, or its next refresh makes a new table.", file=sys.stderr)
    return OK


@command("recover", "finish or undo refreshes that were interrupted", (TABLE, *STATE, OUTPUT))
def recover_table(arguments: Namespace) -> int:
    """Finish or undo each refresh of a table whose process is gone, and finish an interrupted rename, as the next refresh
    and gc do.

    Running refreshes are not touched. Prints what was done, and what is left and why; exits with 1 if something is left.
    Safe to run at any time.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        recovered = recover(workspace, name)
    output.record(recovered, arguments.output)
    return FAILED if recovered.left else OK


@command(
    "drop",
    "drop a dynamic table",
    (
        TABLE,
        Argument(("--yes",), "drop it; without this, only check that it could be dropped", {"action": "store_true"}),
        Argument(("--if-exists",), "a missing table is no error", {"action": "store_true"}),
        Argument(("--purge",), "also delete its files", {"action": "store_true"}),
        *STATE,
        OUTPUT,
    ),
)
def drop_table(arguments: Namespace) -> int:
    """Drop a dynamic table from its catalog, with all its versions.

    Refused while it is being refreshed, or when a refresh of it is in quarantine. Data files stay without --purge, its
    history in any case. If it is still defined, its next refresh creates it again.
    """
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
    check_droppable(workspace, workspace.look_up(name))
    print(f"{name} would be dropped with all its versions; say --yes to do it.", file=sys.stderr)
    return USAGE
