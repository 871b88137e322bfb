"""``sql``: executing statements, and printing their results and errors on a terminal."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, Argument
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.commands.ctas import make_here
from airflow_dynamic_tables.cli.commands.refresh import run_here, spark_runner, stopped_like_ctrl_c
from airflow_dynamic_tables.cli.project import project_of
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE, message, progress_of
from airflow_dynamic_tables.cli.running import execute as execute_command
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.definitions.statements.parsing import pointed
from airflow_dynamic_tables.exceptions import DefinitionError, DynamicTableError
from airflow_dynamic_tables.services.ctas.planning import Decision
from airflow_dynamic_tables.services.ctas.wanted import Created, WantedTable
from airflow_dynamic_tables.sql.executing import Done, execute, read_script
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult, StatementRows
from airflow_dynamic_tables.yaml_files.documents import read_text


def print_answer(answer: StatementResult) -> None:
    """Print the rows of a result, and its note on stderr; an empty cell is an empty text, not NULL."""
    columns = answer.shown or answer.columns
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    output.table(columns, [["NULL" if row[name] is None else row[name] for name in columns] for row in rows])
    if answer.note:
        print(answer.note, file=sys.stderr)


def told(error: DynamicTableError, text: str, path: Path) -> str:
    """Format an error for a terminal; mistakes of the text with their line and a caret."""
    if not isinstance(error, DefinitionError):
        return message(error)
    mistakes = error.mistakes
    return "\n".join(
        pointed(text, each) if isinstance(each, Mistake) and each.path == path else message(DefinitionError((each,)))
        for each in mistakes
    )


@contextmanager
def session_of(arguments: Namespace) -> Iterator[SqlSession]:
    """Open a session on what the arguments name; mistakes of the definitions are printed on stderr.

    The default folder of definitions does not have to exist: the first statement that declares a table creates it.
    """
    project = project_of(arguments, may_be_new=True)
    with progress_of(arguments).step("Reading the definitions"):
        mistakes = project.load()[1]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    owner = f"{getpass.getuser()}@{socket.gethostname()} (dynamic-tables sql, process {os.getpid()})"
    with quiet_workspace_of(arguments) as workspace:
        refresh = partial(run_here, workspace, arguments=arguments)

        def create(wanted: WantedTable, decision: Decision) -> Created:
            token = str(uuid4())
            return make_here(workspace, wanted, decision, arguments, (token, f"{owner} (statement {token})"))

        yield SqlSession.opened(project, workspace, refresh, create, partial(_query_here, arguments), owner)


def _query_here(arguments: Namespace, plans: QueryTestPlans, environment: Mapping[str, str]) -> QueryTestOutcomes:
    """Run queries with the Spark that the arguments name; Ctrl-C and SIGTERM stop them."""
    with progress_of(arguments).step("Starting Spark"), stopped_like_ctrl_c():
        runner = spark_runner(SparkSettings(), arguments)
        return runner.run_query_tests(plans, environment)


_STANDARD_INPUT = "-"

_SHELL = "airflow_dynamic_tables.cli.shell.shell"
"""Dotted path instead of an import, because the libraries of the shell take half a second to import."""


@command(
    "sql",
    "run SQL statements, or open a SQL shell",
    (
        Argument(("-f", "--file"), "file of statements, or - for standard input", {"metavar": "FILE"}),
        Argument(("-e", "--execute"), "the statements", {"metavar": "STATEMENTS", "dest": "statements"}),
        MASTER,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def sql(arguments: Namespace) -> int:
    """Run statements, separated by semicolons: CREATE, ALTER and DROP DYNAMIC TABLE, SHOW, DESCRIBE, EXPLAIN, SELECT, USE,
    CREATE TABLE AS, CREATE and DROP of databases, views and functions.

    Declarations are written to the folder of the definitions. It stops at the first statement that fails and names those
    that ran; after a syntax error no statement runs. Without -f and -e it opens a shell on a terminal, or reads standard
    input.
    """
    if arguments.file is not None and arguments.statements is not None:
        print("-f and -e exclude each other; give one of them.", file=sys.stderr)
        return USAGE
    if arguments.file is None and arguments.statements is None and sys.stdin.isatty():
        return execute_command(_SHELL, arguments)
    text, path = _text(arguments)
    done: list[Done] = []
    try:
        script = read_script(text, path)
        with session_of(arguments) as session:
            for outcome in progress_of(arguments).each(execute(session, script), "Running the statement"):
                done.append(outcome)
                if arguments.output == "table":
                    print(end="\n" if len(done) > 1 else "")
                    print_answer(outcome.answer)
    except BaseException as error:
        _finish(done, arguments.output)
        if done:
            print(_kept(done), file=sys.stderr)
        if not isinstance(error, DefinitionError):
            raise
        print(told(error, text, path), file=sys.stderr)
        return FAILED
    _finish(done, arguments.output)
    return OK


def _text(arguments: Namespace) -> tuple[str, Path]:
    if arguments.statements is not None:
        return arguments.statements, Path("-e")
    if arguments.file in (None, _STANDARD_INPUT):
        return sys.stdin.read(), Path("<stdin>")
    path = Path(arguments.file)
    text, mistakes = read_text(path)
    if text is None:
        raise DefinitionError(tuple(mistakes))
    return text, path


def _kept(done: list[Done]) -> str:
    lines = list(dict.fromkeys(str(outcome.line) for outcome in done))
    many = "1 statement had already run and was" if len(done) == 1 else f"{len(done)} statements had already run and were"
    return f"{many} kept ({'line' if len(lines) == 1 else 'lines'} {', '.join(lines)})."


@dataclass(frozen=True, slots=True)
class _Executed:
    line: int
    statement: str
    answer: StatementRows


def _finish(done: list[Done], form: str) -> None:
    """Print the results as one document, unless each was printed when it arrived."""
    if form != "table":
        output.listing([_Executed(one.line, one.statement, one.answer.answer) for one in done], form)
