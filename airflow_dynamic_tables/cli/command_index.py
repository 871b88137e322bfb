"""The rows of the commands: declared beside their functions, and read from an index that imports none of them.

Airflow builds the parser of all commands whenever its command line starts; importing the functions would take a second.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from airflow_dynamic_tables.cli import arguments as shared
from airflow_dynamic_tables.cli.arguments import Argument

SUMMARY = "Tables that keep themselves fresh: SQL plus a freshness in YAML, refreshed atomically."

INDEX = Path(__file__).with_suffix(".json")
"""Written by ``scripts/write_reference.py``."""

_GROUPS = {
    "spark": "a warm Spark server on this machine, and faster starts of Spark",
    "db": "the databases of ledger and catalogs",
}

_PACKAGE = "airflow_dynamic_tables.cli.commands"
_MODULES = (
    "definitions",
    "query_tests",
    "deployments",
    "refresh",
    "tables",
    "statements",
    "ctas",
    "catalogs",
    "serving",
    "spark",
    "schema",
)
"""In the order of the help."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command; ``function`` is the dotted path of its function, see :func:`~airflow_dynamic_tables.cli.running.execute`.

    ``is_daily`` puts it into the first of the two sections of the help.
    """

    name: str
    help: str
    description: str
    function: str
    arguments: tuple[Argument, ...]
    is_daily: bool = False


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command with subcommands."""

    name: str
    help: str
    commands: tuple[Command, ...]


_Function = TypeVar("_Function", bound=Callable[[Namespace], int])

_declared: list[Command] = []


def command(name: str, help_: str, arguments: Iterable[Argument], *, is_daily: bool = False) -> Callable[[_Function], _Function]:
    """Declare a function as a command; its docstring is the description.

    :param name: in two words for a command of a group, ``spark start``.
    """

    def declare(function: _Function) -> _Function:
        description = " ".join((function.__doc__ or "").split())
        path = f"{function.__module__}.{function.__qualname__}"
        _declared.append(Command(name, help_, description, path, tuple(arguments), is_daily))
        return function

    return declare


def index() -> str:
    """Return the text of the index, from the declarations of all modules: shared arguments once, and each row on one line."""
    for module in _MODULES:
        import_module(f"{_PACKAGE}.{module}")
    place = {f"{_PACKAGE}.{module}": number for number, module in enumerate(_MODULES)}
    rows = sorted(_declared, key=lambda row: place[row.function.rpartition(".")[0]])
    arguments = list({id(argument): argument for row in rows for argument in row.arguments}.values())
    numbered = [{**asdict(row), "arguments": [arguments.index(argument) for argument in row.arguments]} for row in rows]
    return f"{{{_lines('arguments', map(asdict, arguments))},\n{_lines('commands', numbered)}}}\n"


def _lines(key: str, records: Iterable[dict[str, Any]]) -> str:
    lines = ",\n".join(json.dumps(record, ensure_ascii=False, default=lambda function: function.__name__) for record in records)
    return f'"{key}": [\n{lines}\n]'


@cache
def all_commands() -> tuple[Command | CommandGroup, ...]:
    """Return all commands and groups of commands, in the order of the help."""
    read = json.loads(INDEX.read_text(encoding="utf-8"))
    arguments = [_argument(**fields) for fields in read["arguments"]]
    rows = [Command(**{**row, "arguments": tuple(arguments[number] for number in row["arguments"])}) for row in read["commands"]]
    commands: list[Command | CommandGroup] = []
    for group, members in groupby(rows, lambda row: row.name.rpartition(" ")[0]):
        if group:
            within = (replace(row, name=row.name.removeprefix(f"{group} ")) for row in members)
            commands.append(CommandGroup(group, _GROUPS[group], tuple(within)))
        else:
            commands += members
    return tuple(command for section in sections(commands).values() for command in section)


def _argument(flags: list[str], help: str, options: dict[str, Any]) -> Argument:  # noqa: A002 - the field's name
    if "type" in options:
        options["type"] = getattr(shared, options["type"])
    return Argument(tuple(flags), help, options)


def sections(commands: Iterable[Command | CommandGroup]) -> dict[str, list[Command | CommandGroup]]:
    """Return the commands by section title, as the help lists them."""
    titles: dict[str, list[Command | CommandGroup]] = {"every day": [], "all others": []}
    for command in commands:
        is_daily = isinstance(command, Command) and command.is_daily
        titles["every day" if is_daily else "all others"].append(command)
    return titles
