"""The console script ``dynamic-tables``: an argparse parser built from the table of commands."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_dynamic_tables.cli.command_index import SUMMARY, Command, CommandGroup, all_commands, sections
from airflow_dynamic_tables.cli.running import execute
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.redaction import without_secrets

if TYPE_CHECKING:
    _Children = argparse._SubParsersAction[Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: arguments without the program's name; default: those passed by the shell.
    :return: 0 on success, 1 if the definitions or the state are wrong; argparse exits with 2 on a usage error.
    """
    arguments = parser().parse_args(argv)
    _log_to_stderr(debug=arguments.debug)
    return execute(arguments.function, arguments)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    root = _Parser(
        prog="dynamic-tables",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description=textwrap.fill(SUMMARY, _width()),
        epilog="dynamic-tables COMMAND --help describes one command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_Version, help="print the version and exit")
    for title, section in sections(all_commands()).items():
        root.add_argument_group(title, _listed(section))
    # The sections list the commands, because argparse supports one section only.
    _add(root.add_subparsers(metavar="COMMAND", required=True, prog=root.prog, help=argparse.SUPPRESS), all_commands())
    return root


def _listed(commands: Sequence[Command | CommandGroup]) -> str:
    names = max(len(command.name) for command in all_commands())
    return "\n".join(
        textwrap.fill(f"  {command.name:<{names}}  {command.help}", _width() - 2, subsequent_indent=" " * (names + 4))
        for command in commands
    )


def _width() -> int:
    return max(shutil.get_terminal_size().columns - 2, 40)


def _add(children: _Children, commands: Sequence[Command | CommandGroup]) -> None:
    for command in commands:
        if isinstance(command, CommandGroup):
            group = children.add_parser(command.name, help=command.help, description=command.help)
            _add(group.add_subparsers(metavar="COMMAND", required=True, title="commands"), command.commands)
            continue
        child = children.add_parser(command.name, help=command.help, description=command.description)
        for argument in command.arguments:
            child.add_argument(*argument.flags, help=argument.help, **argument.options)
        child.set_defaults(function=command.function)


class _Parser(argparse.ArgumentParser):
    """Suggests the command or option value that was probably meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [] if action.choices is None else [str(choice) for choice in action.choices]
        hint = "" if value in known else did_you_mean(str(value), known)
        if hint:
            raise argparse.ArgumentError(action, f"{value!r} is not known{hint}")
        super()._check_value(action, value)


class _Version(argparse.Action):
    """Looks the version up only on demand."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002 - argparse's word
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"dynamic-tables {version('airflow-dynamic-tables')}")
        except PackageNotFoundError:
            print("dynamic-tables, not installed")
        parser.exit()


def _log_to_stderr(*, debug: bool) -> None:
    handler = _ToStderr()
    handler.setFormatter(_Full("%(message)s") if debug else _OneLine("%(message)s"))
    logging.basicConfig(level=logging.INFO if debug else logging.WARNING, handlers=[handler], force=True)


class _ToStderr(logging.Handler):
    """Writes records to the current stderr, so that they appear above the progress that a terminal shows."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:  # like every logging handler: a record that cannot be written must not end the command
            self.handleError(record)


class _Full(logging.Formatter):
    """Formats log records with their tracebacks, including those of other libraries."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class _OneLine(logging.Formatter):
    """Formats log records without their tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(f"{record.getMessage()} {record.exc_info[1]}" if record.exc_info else record.getMessage())


if __name__ == "__main__":
    sys.exit(main())
