"""``airflow dynamic-tables`` has the commands of ``dynamic-tables``, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.cli import cli_parser
from airflow.cli.cli_config import DefaultHelpParser, GroupCommand

from airflow_dynamic_tables.cli.command_table import COMMANDS
from airflow_dynamic_tables.plugins.commands import get_cli_commands


@pytest.fixture
def parser() -> DefaultHelpParser:
    parser = DefaultHelpParser(prog="airflow")
    (group,) = get_cli_commands()
    cli_parser._add_command(parser.add_subparsers(dest="command"), group)
    return parser


def test_every_command_is_there() -> None:
    (group,) = get_cli_commands()
    assert [command.name for command in group.subcommands] == [command.name for command in COMMANDS]
    assert [command.name for command in group.subcommands if isinstance(command, GroupCommand)] == ["db"]


def test_a_mistake_in_the_definitions_is_exit_code_1(
    parser: DefaultHelpParser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("dynamic_tables:\n- name: a\n  freshness: 1 day\n  query: SELEC 1\n")
    arguments = parser.parse_args(["dynamic-tables", "validate", "--definitions", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        arguments.func(arguments)
    assert exit_.value.code == 1
    assert f"{tmp_path}/broken.yaml:4:16: bad SQL" in capsys.readouterr().out


def test_success_returns(parser: DefaultHelpParser, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parser.parse_args(["dynamic-tables", "schema"])
    assert arguments.func(arguments) is None
    assert '"$schema"' in capsys.readouterr().out
