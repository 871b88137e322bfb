"""From a text to the statements in it, and to what is wrong with it: every statement is read, whatever the others are like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_dynamic_tables.core.limits import MISTAKES_PER_FILE
from airflow_dynamic_tables.core.mistakes import Mistake, shown
from airflow_dynamic_tables.definitions.statements import other_statements as others
from airflow_dynamic_tables.definitions.statements import table_statements as tables
from airflow_dynamic_tables.definitions.statements.grammar import QUERY_BEGINNINGS, Cursor, GrammarError
from airflow_dynamic_tables.definitions.statements.lexing import tokens_in, tokens_of
from airflow_dynamic_tables.definitions.statements.one_off import create_table_as
from airflow_dynamic_tables.definitions.statements.values import (
    AlterQuery,
    CreateDynamicTable,
    Explain,
    Query,
    Refresh,
    Statement,
)
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.yaml_files.texts import line_and_column

_CARET_ROOM = 120
"""Characters of a line that are shown around a caret: a query may be one line of kilobytes."""


@dataclass(frozen=True, slots=True)
class Script:
    """A text, the statements that are sound, in order, and the mistakes of the others.

    ``path`` stands in the mistakes: the file of the text, or what it is called.
    """

    path: Path
    text: str
    statements: tuple[Statement, ...]
    mistakes: tuple[Mistake, ...]

    def mistake(self, offset: int, message: str) -> Mistake:
        """A mistake at an offset of the text."""
        return Mistake(self.path, *line_and_column(self.text, offset), message)


def parse_script(text: str, path: Path) -> Script:
    """Read statements, separated by semicolons; the last one needs none. Of very many mistakes the first are told."""
    cursor = Cursor(text, tokens_of(text))
    statements: list[Statement] = []
    problems: list[GrammarError] = []
    while not cursor.is_over:
        if cursor.ends_statement:
            cursor.advance()
            continue
        try:
            statement = _statement(cursor)
            if not cursor.is_over:
                cursor.expect(";")
            statements.append(statement)
        except GrammarError as problem:
            # Nobody reads more, and to find the place of each takes a look at the whole text.
            problems += [problem] if len(problems) <= MISTAKES_PER_FILE else []
            while not cursor.ends_statement:
                cursor.advance()
    mistakes = tuple(Mistake(path, *line_and_column(text, problem.offset), problem.message) for problem in problems)
    return Script(path, text, tuple(statements), mistakes)


def is_complete(text: str) -> bool:
    """Whether a text that is being typed ends with a semicolon, outside of quotes and comments; nothing is complete, too."""
    *tokens, _ = tokens_of(text)
    return not tokens or tokens[-1].word == ";"


def is_query(text: str) -> bool:
    """Whether a text is a query and no other statement: by its first word."""
    return next(tokens_in(text)).word in QUERY_BEGINNINGS


def pointed(text: str, mistake: Mistake) -> str:
    """A mistake for a terminal: under the message its line of the text, and a caret under the place.

    Secrets in that line are hidden.
    """
    lines = text.split("\n")
    line = lines[mistake.line - 1] if mistake.line <= len(lines) else ""
    before = line[: mistake.column - 1]
    first = max(0, len(before) - _CARET_ROOM // 2)
    start = without_secrets(line[first : len(before)])
    whole = without_secrets(line[first : first + _CARET_ROOM])
    margin = "".join("\t" if sign == "\t" else " " for sign in start)
    return f"{mistake}\n  {_one_line(whole)}\n  {margin}^"


def _one_line(line: str) -> str:
    return "\t".join(map(shown, line.split("\t"))).rstrip()


def _statement(cursor: Cursor) -> Statement:
    start = cursor.current.start
    if cursor.at_query():
        return others.query(cursor)
    return _BEGINNINGS[cursor.expect(*_BEGINNINGS).word](cursor, start)


def _create(cursor: Cursor, start: int) -> Statement:
    changed = cursor.expect("ALTER", "REPLACE").word if cursor.take("OR") else ""
    if changed == "REPLACE":
        cursor.expect("TABLE")
        return create_table_as(cursor, start, or_replace=True)
    or_alter = changed == "ALTER"
    word = cursor.expect(*tables.DYNAMIC, *(() if or_alter else _CREATED)).word
    return _CREATED[word](cursor, start) if word in _CREATED else tables.create_table(cursor, start, or_alter=or_alter)


def _alter(cursor: Cursor, start: int) -> Statement:
    cursor.expect(*tables.DYNAMIC)
    return tables.alter_table(cursor, start)


def _drop(cursor: Cursor, start: int) -> Statement:
    word = cursor.expect(*tables.DYNAMIC, *_DROPPED).word
    return _DROPPED[word](cursor, start) if word in _DROPPED else tables.drop_table(cursor, start)


def _explain(cursor: Cursor, start: int) -> Statement:
    at_explained = cursor.current.start
    if cursor.at_query():
        explained: Statement = others.query(cursor)
    else:
        explained = _BEGINNINGS[cursor.expect("CREATE", "ALTER").word](cursor, at_explained)
    if not isinstance(explained, CreateDynamicTable | AlterQuery | Refresh | Query):
        raise GrammarError(at_explained, "expected CREATE DYNAMIC TABLE, ALTER … AS, ALTER … REFRESH or a query to explain")
    return Explain(start=start, end=explained.end, explained=explained)


_Parse = Callable[[Cursor, int], Statement]

_CREATED: dict[str, _Parse] = {
    "TABLE": create_table_as,
    "DATABASE": others.create_database,
    "VIEW": others.create_view,
    "FUNCTION": others.create_function,
}
_DROPPED: dict[str, _Parse] = {
    "DATABASE": others.drop_database,
    "VIEW": others.drop_view,
    "FUNCTION": others.drop_function,
}
_BEGINNINGS: dict[str, _Parse] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "SHOW": others.show,
    "DESCRIBE": others.describe,
    "DESC": others.describe,
    "EXPLAIN": _explain,
    "USE": others.use,
}
"""What stands behind the first word of a statement."""
