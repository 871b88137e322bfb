"""``sql``: statements from the command line, a file, standard input, or typed one after the other."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.progress import progress_of
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE
from airflow_dynamic_tables.cli.running import execute as execute_command
from airflow_dynamic_tables.cli.statements.answers import print_answer, told
from airflow_dynamic_tables.cli.statements.opening import session_of
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.sql.executing import Done, execute, read_script
from airflow_dynamic_tables.sql.session import StatementResult
from airflow_dynamic_tables.yaml_files.texts import read_text

_STANDARD_INPUT = "-"

_SHELL = "airflow_dynamic_tables.cli.statements.shell.shell"
"""Named and not imported: whoever runs a file does not wait half a second for what a shell needs."""


def sql(arguments: Namespace) -> int:
    """Carry out statements up to the first that fails, or ask for them."""
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
    """The statements, and what they are called in messages."""
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


def _finish(done: list[Done], form: str) -> None:
    """Print what was done as one document, unless each answer was shown when it came."""
    if form != "table":
        output.listing([{**items(one), "answer": _without_choice(one.answer)} for one in done], form)


def _without_choice(answer: StatementResult) -> dict[str, object]:
    """All of an answer but which columns a terminal shows."""
    return {name: value for name, value in items(answer).items() if name != "shown"}
