"""What a terminal shows while a command works, and that logs and pipes get none of it."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Terminal

_Begin = Callable[..., AbstractContextManager[Terminal]]

_CLEARED = "\x1b[2K"
"""Erases a line, as the last thing that is sent of every progress."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("argv", "steps"),
    [
        (("list",), ("Starting", "Reading the definitions", "Reading the tables")),
        (("validate", "--without-spark"), ("Starting", "Checking the definitions and their queries")),
        (("plan",), ("Starting", "Reading the definitions")),
        (("sql", "-e", "SHOW DYNAMIC TABLES"), ("Starting", "Reading the definitions", "Running the statement")),
    ],
    ids=lambda value: value[0],
)
def test_a_terminal_shows_what_a_command_does_and_forgets_it(
    terminal: _Begin, argv: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    with terminal(*argv) as command:
        ran = command.ended()
    assert ran.code == 0, ran.err
    shown = [ran.err.find(f"{step} …") for step in steps]
    assert shown == sorted(shown)
    assert min(shown) >= 0, ran.err
    assert _CLEARED in ran.err[shown[-1] :]
    assert "…" not in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.sampled
@pytest.mark.parametrize("argv", [("list", "-o", "json"), ("plan", "-o", "yaml")])
def test_a_program_that_asks_for_json_or_yaml_sees_none(terminal: _Begin, argv: tuple[str, ...]) -> None:
    with terminal(*argv) as command:
        ran = command.ended()
    assert (ran.code, ran.err) == (0, "")


def test_a_log_or_pipe_gets_none(dynamic_tables: Run) -> None:
    assert dynamic_tables("list").err == ""


@pytest.mark.large
def test_what_is_said_meanwhile_comes_above_it(terminal: _Begin, project: Path) -> None:
    file = project / "dags" / "definitions" / "broken.yaml"
    file.write_text("dynamic_tables: [{name: broken}]\n")
    with terminal("list") as command:
        ran = command.ended()
    assert ran.code == 1
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rpartition("\r")[2] for line in ran.err.split("\r\n")]
    assert any(line.startswith("dags/definitions/broken.yaml:1:") for line in lines), ran.err
