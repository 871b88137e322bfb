"""What statements give back, and what is wrong with them, for a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.running import message
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.statements.parsing import pointed
from airflow_dynamic_tables.exceptions import DefinitionError, DynamicTableError
from airflow_dynamic_tables.sql.session import StatementResult


def print_answer(answer: StatementResult) -> None:
    """Print the rows of an answer, and its note on stderr; nothing in a cell is an empty text, and not NULL."""
    columns = answer.shown or answer.columns
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    output.table(columns, [["NULL" if row[name] is None else row[name] for name in columns] for row in rows])
    if answer.note:
        print(answer.note, file=sys.stderr)


def told(error: DynamicTableError, text: str, path: Path) -> str:
    """An error for a terminal; mistakes of the text with their line and a caret."""
    if not isinstance(error, DefinitionError):
        return message(error)
    mistakes = error.mistakes
    return "\n".join(
        pointed(text, each) if isinstance(each, Mistake) and each.path == path else message(DefinitionError((each,)))
        for each in mistakes
    )
