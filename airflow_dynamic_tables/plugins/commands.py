"""``airflow dynamic-tables``: the one table of commands, as Airflow's command line wants it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

from airflow_dynamic_tables.cli.arguments import Argument, Command, Group
from airflow_dynamic_tables.cli.command_table import COMMANDS, SUMMARY


def get_cli_commands() -> list[GroupCommand]:
    """What the provider adds to ``airflow``; called by every ``airflow`` command, so nothing heavy is imported."""
    return [GroupCommand(name="dynamic-tables", help=SUMMARY, subcommands=[_converted(command) for command in COMMANDS])]


def _converted(command: Command | Group) -> ActionCommand | GroupCommand:
    if isinstance(command, Group):
        return GroupCommand(name=command.name, help=command.help, subcommands=[_converted(inner) for inner in command.commands])
    return ActionCommand(
        name=command.name,
        help=command.help,
        description=command.description,
        func=_runner(command.function),
        args=[_argument(argument) for argument in command.arguments],
    )


def _argument(argument: Argument) -> Arg:
    return Arg(flags=argument.flags, help=argument.help, **argument.options)  # type: ignore[no-untyped-call]


def _runner(function: str) -> Callable[[Any], None]:
    def run(arguments: Any) -> None:
        from airflow_dynamic_tables.cli.running import execute
        from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook

        arguments.connections = DynamicTableCatalogHook().find_connection
        if code := execute(function, arguments):
            sys.exit(code)

    return run
