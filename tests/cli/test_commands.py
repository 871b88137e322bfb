"""The table of commands and the parser made of it."""

import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import iter_modules

import pytest

from airflow_dynamic_tables.cli import commands
from airflow_dynamic_tables.cli.arguments import OUTPUT
from airflow_dynamic_tables.cli.command_index import INDEX, Command, CommandGroup, all_commands, index, sections
from airflow_dynamic_tables.cli.main import main


def _commands() -> Iterator[tuple[str, Command]]:
    for entry in all_commands():
        if isinstance(entry, CommandGroup):
            yield from ((f"{entry.name} {command.name}", command) for command in entry.commands)
        else:
            yield entry.name, entry


COMMAND_LINES = dict(_commands())


def test_the_index_is_that_of_the_declarations() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run scripts/write_reference.py"


def test_every_module_of_commands_is_in_the_index() -> None:
    modules = {module.name for module in iter_modules(commands.__path__)}
    assert {command.function.split(".")[-2] for command in COMMAND_LINES.values()} == modules - {"checking"}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_has_a_function_and_debug(line: str) -> None:
    module, _, name = COMMAND_LINES[line].function.rpartition(".")
    assert list(signature(getattr(import_module(module), name)).parameters) == ["arguments"]
    assert ("--debug",) in [argument.flags for argument in COMMAND_LINES[line].arguments]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_has_help(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*line.split(), "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert COMMAND_LINES[line].description in printed
    for argument in COMMAND_LINES[line].arguments:
        assert " ".join(argument.help.split()) in printed


@pytest.mark.parametrize(
    "line",
    sorted(COMMAND_LINES.keys() - {"init", "docs", "validate", "schema", "export", "serve", "spark stop", "abort", "db upgrade"}),
)
def test_every_result_is_printed_in_every_format(line: str) -> None:
    assert OUTPUT.flags in [argument.flags for argument in COMMAND_LINES[line].arguments]


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["plan", "--schedule-time", "yesterday"],
        ["plan", "--output", "xml"],
        ["refresh"],
        ["refresh", "t", "--partition", "2024-01-01"],
        ["history", "--limit", "0"],
        ["describe"],
        ["create-database", "d", "--property", "novalue"],
        ["create-function", "f", "--language", "perl", "--as", "x"],
        ["create-function", "f", "--as", "x"],
        ["db"],
    ],
)
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "usage: dynamic-tables" in capsys.readouterr().err


def test_messages_about_values_say_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--schedule-time", "31.01.2024"])
    assert "write for example '2024-01-31 06:00:00'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "meant"), [("lst", "list"), ("Refrehs total", "refresh"), ("db upgrad", "upgrade"), ("list -o jsn", "json")]
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(line: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert f"; did you mean '{meant}'?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["xyzzy"])
    assert "choose from" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_lists_the_commands_of_every_day_apart(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    help_ = capsys.readouterr().out
    assert max(map(len, help_.splitlines())) <= int(columns)
    _, daily, others = re.split(r"^every day:\n|^all others:\n", help_, flags=re.MULTILINE)
    listed = [re.findall(r"^    (\S+) ", section, flags=re.MULTILINE) for section in (daily, others)]
    assert listed == [[command.name for command in section] for section in sections(all_commands()).values()]
    assert {"init", "validate", "plan", "refresh", "list", "show", "history"} <= set(listed[0])
    for command in all_commands():
        assert " ".join(f"{command.name} {command.help}".split()) in " ".join(help_.split())


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from airflow_dynamic_tables.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'airflow', 'sqlglot', 'pydantic', 'pyiceberg', 'sqlalchemy', 'pyspark', 'rich', 'yaml'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    helped = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "refresh" in helped.stdout


def test_the_table_becomes_commands_of_airflow() -> None:
    from airflow.cli.cli_config import Arg

    for line, command in COMMAND_LINES.items():
        names = {argument.flags for argument in command.arguments}
        assert len(names) == len(command.arguments), line
        for argument in command.arguments:
            Arg(flags=argument.flags, help=argument.help, **argument.options)


def test_arguments_reach_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Namespace] = []

    def refresh(arguments: Namespace) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr("airflow_dynamic_tables.cli.commands.refresh.refresh", refresh)
    line = (
        "refresh sales.t --definitions d --partition ds=2024-01-01/hh=03 --partition ds=a%2Fb --master spark://x --full-refresh"
    )
    assert main(line.split()) == 0
    arguments = seen[0]
    assert (arguments.table, arguments.definitions, arguments.master) == ("sales.t", "d", "spark://x")
    assert arguments.partitions == ["ds=2024-01-01/hh=03", "ds=a%2Fb"]
    assert arguments.full_refresh
