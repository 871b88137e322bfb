"""Commands of ``airflow dynamic-tables``, converted from the common command table."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

from airflow_dynamic_tables.cli.arguments import Argument
from airflow_dynamic_tables.cli.command_index import SUMMARY, Command, CommandGroup, all_commands, sections

if TYPE_CHECKING:
    from airflow_dynamic_tables.clients.connections import Connections
    from airflow_dynamic_tables.core.schedule import Freshness
    from airflow_dynamic_tables.schedulers.base import WorkflowScheduler
    from airflow_dynamic_tables.services.settings import WorkspaceSettings


def get_cli_commands() -> list[GroupCommand]:
    """Return the commands added to ``airflow``; imports nothing heavy, because every ``airflow`` command calls it."""
    listed = (f"{title}: {', '.join(command.name for command in section)}" for title, section in sections(all_commands()).items())
    description = "\n".join((SUMMARY, *(textwrap.fill(line, break_on_hyphens=False) for line in listed)))
    return [
        GroupCommand(name="dynamic-tables", help=SUMMARY, description=description, subcommands=_all_converted(all_commands())),
    ]


class _Name(str):
    """A name that sorts by its position, because Airflow's help sorts commands by name, and ours are ordered by use."""

    place: int

    def __lt__(self, other: str) -> bool:
        return self.place < other.place if isinstance(other, _Name) else super().__lt__(other)


def _all_converted(commands: Sequence[Command | CommandGroup]) -> list[ActionCommand | GroupCommand]:
    converted = []
    for place, command in enumerate(commands):
        name = _Name(command.name)
        name.place = place
        converted.append(_converted(command, name))
    return converted


def _converted(command: Command | CommandGroup, name: _Name) -> ActionCommand | GroupCommand:
    if isinstance(command, CommandGroup):
        return GroupCommand(name=name, help=command.help, subcommands=_all_converted(command.commands))
    return ActionCommand(
        name=name,
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
        from airflow_dynamic_tables.runners.spark_home import variables_set

        _log_to_stderr()
        arguments.installed_settings = _settings_of_the_dags
        arguments.installed_threshold = _threshold_of_the_dags
        arguments.installed_servers = _leads_to_server
        arguments.installed_schedulers = _open_scheduler
        # As Airflow's own commands do; otherwise connections in Airflow's database are not found.
        with variables_set({"_AIRFLOW_PROCESS_CONTEXT": "server"}):
            code = execute(function, arguments)
        if code:
            sys.exit(code)

    return run


def _log_to_stderr() -> None:
    """Move Airflow's log off stdout, which is reserved for the output of the command; Airflow 3.3 does so for ``--output``."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)


def _settings_of_the_dags(catalogs_file: Path | None) -> WorkspaceSettings:
    """Return the settings of the DAGs, so that commands read the same ledger."""
    from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook, configured_connection

    # Airflow logs to stdout, which is reserved for the output of the command.
    with redirect_stdout(sys.stderr):
        return DynamicTableCatalogHook(configured_connection(), catalogs_file).settings()


def _leads_to_server(conn_id: str) -> bool:
    from airflow_dynamic_tables.hooks.spark import leads_to_server

    with redirect_stdout(sys.stderr):
        return leads_to_server(conn_id)


def _open_scheduler(name: str, connections: Connections) -> WorkflowScheduler:
    """Return a workflow scheduler; this Airflow is accessed by its metadata database."""
    from airflow_dynamic_tables.plugins.metadata import open_here

    return open_here(name, connections)


def _threshold_of_the_dags() -> Freshness:
    """Return the threshold of the DAGs, so that commands show the same refresh modes."""
    from airflow_dynamic_tables.dags.declared import configured_threshold

    with redirect_stdout(sys.stderr):
        return configured_threshold()
