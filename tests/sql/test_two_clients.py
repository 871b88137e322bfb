"""Clients that change one table at once, and statements that are killed at any step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError, DynamicTableError, NotFoundError
from airflow_dynamic_tables.services.deployments import declaring, files
from airflow_dynamic_tables.services.lifecycle import dropping, registration
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import open_workspace
from airflow_dynamic_tables.sql import declarations
from airflow_dynamic_tables.sql.session import SqlSession
from tests.sql.conftest import Say

NUMBERS = "CREATE DYNAMIC TABLE numbers FRESHNESS = '1 day' AS SELECT 1 AS x"
ALTER = "ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'"
DROP = "DROP DYNAMIC TABLE IF EXISTS numbers"
NAME = TableIdentifier("lake", "sales", "numbers")


@contextmanager
def _another(session: SqlSession) -> Iterator[SqlSession]:
    with open_workspace(session.workspace.settings, session.workspace.clock) as workspace:
        yield SqlSession.opened(session.project, workspace, session.refresh, session.create, session.query, "somebody else")


@pytest.mark.parametrize(
    ("before", "statements"),
    [
        (NUMBERS, (ALTER, ALTER.replace("1 hour", "2 hours"))),
        (NUMBERS, (ALTER, DROP)),
        ("USE sales", (NUMBERS, NUMBERS.replace("1 day", "1 hour"))),
    ],
)
def test_of_two_clients_that_change_one_table_at_once_one_is_told(
    say: Say, session: SqlSession, monkeypatch: pytest.MonkeyPatch, before: str, statements: tuple[str, str]
) -> None:
    say(before)
    both_have_read = threading.Barrier(2, timeout=60)

    @contextmanager
    def after_both(folder: Path) -> Iterator[None]:
        both_have_read.wait()
        with files.only_writer(folder):
            yield

    def client(statement: str) -> str:
        with _another(session) as own:
            try:
                say(statement, own)
            except ConflictError as told:
                return str(told)
            return statement

    monkeypatch.setattr(declaring, "only_writer", after_both)
    with ThreadPoolExecutor(2) as clients:
        outcomes = list(clients.map(client, statements))
    (done,) = set(outcomes) & {*statements}
    (told,) = set(outcomes) - {*statements}
    assert told.startswith("Another process changed")
    table = session.project.load()[0].tables.get(NAME)
    if done == DROP:
        assert table is None
    else:
        assert table is not None
        assert table.freshness.text in done


WRITING = (("os.fchmod", 1), ("os.fsync", 1), ("os.replace", 1), ("os.fsync", 2), ("register", 1), ("registered", 1))
DROPPING = (("os.unlink", 1), ("os.fsync", 1), ("drop", 1), ("dropped", 1))
"""What a statement is made of, each for the nth time; ``registered`` and ``dropped``: the catalog has answered."""


def _die_at(step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    come = iter(range(1, 1_000))

    def die() -> None:
        if next(come) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly(function: Callable[..., object], *, is_before: bool) -> Callable[..., object]:
        def called(*arguments: object, **named: object) -> object:
            if is_before:
                die()
            answer = function(*arguments, **named)
            if not is_before:
                die()
            return answer

        return called

    if step.startswith("os."):
        name = step.removeprefix("os.")
        monkeypatch.setattr(os, name, deadly(getattr(os, name), is_before=True))
    elif step.startswith("register"):
        monkeypatch.setattr(declarations, "register", deadly(registration.register, is_before=step == "register"))
    else:
        monkeypatch.setattr(dropping, "drop", deadly(dropping.drop, is_before=step == "drop"))


def _killed(session: SqlSession, say: Say, statement: str, step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    child = os.fork()
    if child == 0:
        try:
            _die_at(step, number, monkeypatch)
            with _another(session) as own:
                say(statement, own)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def _state(session: SqlSession) -> tuple[str | None, str | None]:
    table = session.project.load()[0].tables.get(NAME)
    declared = table.freshness.text if table is not None else None
    with _another(session) as own:
        try:
            entry = own.workspace.readable(NAME.catalog).get_table(NAME.path)
        except NotFoundError:
            return declared, None
    assert isinstance(entry, CatalogDynamicTable)
    return declared, entry.freshness


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("before", "statement", "again", "states"),
    [
        ("USE sales", NUMBERS, NUMBERS.replace("CREATE", "CREATE OR ALTER"), [(None, None), ("1 day", None), ("1 day", "1 day")]),
        (NUMBERS, ALTER, ALTER, [("1 day", "1 day"), ("1 hour", "1 day"), ("1 hour", "1 hour")]),
        (NUMBERS, DROP, DROP, [("1 day", "1 day"), (None, "1 day"), (None, None)]),
    ],
    ids=["create", "alter", "drop"],
)
def test_a_statement_that_is_killed_at_any_step_is_done_or_not_and_saying_it_again_ends_it(
    say: Say,
    session: SqlSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    statement: str,
    again: str,
    states: list[tuple[str | None, str | None]],
) -> None:
    for step, number in DROPPING if statement == DROP else WRITING:
        say(f"{DROP}; {before}")
        assert _killed(session, say, statement, step, number, monkeypatch)
        assert _state(session) in states
        say(again)
        assert _state(session) == states[-1]
        assert [path.name for path in folder.iterdir() if path.name.startswith(".statements-")] == []


def test_what_fails_in_the_catalog_is_not_declared_either(
    say: Say, session: SqlSession, folder: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise DynamicTableError("The catalog cannot be reached.")

    say(NUMBERS)
    monkeypatch.setattr(declarations, "register", unreachable)
    monkeypatch.setattr(dropping, "drop", unreachable)
    for statement in (ALTER, DROP, NUMBERS.replace("numbers", "others")):
        with pytest.raises(DynamicTableError, match="cannot be reached"):
            say(statement)
    assert list(project.load()[0].tables) == [NAME]
    assert _state(session) == ("1 day", "1 day")
    assert [path.name for path in folder.glob("*.sql")] == ["lake.sales.numbers.sql"]
