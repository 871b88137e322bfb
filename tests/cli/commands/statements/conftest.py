"""Keys that are typed into the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.cli.conftest import Ran, Run

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"

Typed = Callable[[str], Ran]


@pytest.fixture
def typed(project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def run(keys: str) -> Ran:
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            keyboard.send_text(keys)
            return dynamic_tables("sql")

    return run
