"""The shell asks for statements, carries them out, and survives what goes wrong."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from airflow_dynamic_tables.cli import shell
from airflow_dynamic_tables.cli.shell import NameCompleter
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from tests.cli.commands.statements.conftest import CTRL_C, CTRL_D, ENTER, Typed

CREATE = f"CREATE DYNAMIC TABLE lake.sales.t{ENTER}FRESHNESS = '1 day'{ENTER}AS SELECT 1 AS x;{ENTER}"


def test_a_statement_goes_over_several_lines_until_its_semicolon(typed: Typed) -> None:
    ran = typed(f"{CREATE}USE lake.sales; SHOW DYNAMIC TABLES LIKE 't';{ENTER}{CTRL_D}")
    assert (ran.code, "created" in ran.out) == (0, True)
    assert re.search(r"^ *lake\.sales\.t +yes +NO_VERSION +FULL +1 day +INITIALIZING", ran.out, re.MULTILINE)


def test_an_error_ends_a_text_and_not_the_shell(typed: Typed) -> None:
    ran = typed(f"SHOW TABELS;{ENTER}DROP DYNAMIC TABLE lake.sales.missing;{ENTER}{CREATE}{CTRL_D}")
    assert ran.code == 0
    assert "<input>:1:6: expected" in ran.err
    assert "       ^" in ran.err
    assert "There is no dynamic table lake.sales.missing." in ran.err
    assert "created" in ran.out


def test_ctrl_c_gives_up_what_is_typed_and_a_word_ends(typed: Typed) -> None:
    ran = typed(f"CREATE DYNAMIC{ENTER}TABLE{CTRL_C}{ENTER}?{ENTER}\\q{ENTER}")
    assert (ran.code, "expected" in ran.err, "Tab completes" in ran.out) == (0, False, True)


def test_ctrl_c_stops_what_runs_and_not_the_shell(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "execute", interrupted)
    ran = typed(f"SHOW TABLES;{ENTER}quit;{ENTER}")
    assert (ran.code, "Interrupted." in ran.err) == (0, True)


def test_the_history_is_kept_for_its_owner_and_without_secrets(typed: Typed, project: Path) -> None:
    typed(f"CREATE FUNCTION lake.sales.f AS 'a.B' WITH ('url' = 'jdbc:x://u:geheim@host/db');{ENTER}{CTRL_D}")
    typed(f"SHOW CATALOGS;{ENTER}{CTRL_D}")
    file = project / "state" / "airflow-dynamic-tables" / "sql_history"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "CREATE FUNCTION" in file.read_text()
    assert "SHOW CATALOGS" in file.read_text()
    assert "geheim" not in file.read_text()


def test_a_history_that_cannot_be_kept_is_in_nobodys_way(typed: Typed, project: Path) -> None:
    (project / "state").write_text("a file")
    assert typed(f"SHOW CATALOGS;{ENTER}{CTRL_D}").code == 0


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("SHOW DATA", ["DATABASE", "DATABASES"]),
        ("select * from o", ["orders", "ON", "OR", "ORDER"]),
        ("select rev", []),
        ("select sum(rev", []),
        ("select * from orders where rev", ["revenue"]),
        ("select * from orders where f(x,rev", ["revenue"]),
        ("", []),
    ],
)
def test_keywords_tables_and_columns_of_the_tables_that_are_named_are_completed(text: str, completed: list[str]) -> None:
    names = {name: TableIdentifier("lake", "sales", name) for name in ("orders", "visits")}
    completer = NameCompleter(lambda: names, lambda table: {"orders": ("revenue", "ds")}.get(table.table, ("rev",)))
    found = completer.get_completions(Document(text), CompleteEvent())
    assert [item.text for item in found] == completed


def test_on_a_real_terminal(project: Path) -> None:
    keyboard, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(project / "state")}
    command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", "sql"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, close_fds=True) as process:
        os.close(terminal)
        screen = _Screen(keyboard)
        try:
            for shown, keys in (
                ("default.default>", b"SELECT * FROM lake.sales.dai\t"),
                ("lake.sales.daily_revenue", b" WHERE reve\t"),
                ("revenue", b"\x03"),
                ("default.default>", b"SHOW\r"),
                ("...", b"CATALOGS;\r"),
                ("lake", b""),
                ("default.default>", b"\x04"),
            ):
                screen.wait_for(shown)
                os.write(keyboard, keys)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(keyboard)


class _Screen:
    """What a terminal was told to show and nobody has waited for yet, without what moves and colours it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._printed = ""

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + 300
        while text not in self._printed:
            readable, _, _ = select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))
            assert readable, f"{text!r} is not in {self._printed!r}"
            new = os.read(self._terminal, 65_536).decode(errors="replace")
            self._printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._printed + new)
        self._printed = self._printed.partition(text)[2]
