"""Queries so simple that a table can be read for them without Spark: columns of one table, and how many rows."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.definitions.statements.grammar import Cursor, GrammarError
from airflow_dynamic_tables.definitions.statements.lexing import TokenKind, tokens_of
from airflow_dynamic_tables.definitions.statements.values import Name, Piece


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A column of the table, and what it is called in the result."""

    name: Piece
    shown_as: str


@dataclass(frozen=True, slots=True)
class SimpleSelect:
    """``SELECT {* | column [AS name], …} FROM table [LIMIT n]``; no ``columns``: all, no ``limit``: none was said."""

    table: Name
    columns: tuple[SelectedColumn, ...]
    limit: int | None


def simple_select(query: str) -> SimpleSelect | None:
    """A query as a simple one; ``None`` when it says anything more. Offsets are of the query."""
    cursor = Cursor(query, tokens_of(query))
    try:
        return _select(cursor)
    except GrammarError:
        return None


def _select(cursor: Cursor) -> SimpleSelect:
    cursor.expect("SELECT")
    columns: list[SelectedColumn] = []
    if not cursor.take("*"):
        columns.append(_column(cursor))
        while cursor.take(","):
            columns.append(_column(cursor))
    cursor.expect("FROM")
    table = cursor.name("a table")
    limit = _number(cursor) if cursor.take("LIMIT") else None
    if cursor.current.kind is not TokenKind.END:
        raise cursor.unexpected()
    return SimpleSelect(table, tuple(columns), limit)


def _column(cursor: Cursor) -> SelectedColumn:
    if cursor.current.text.isdecimal():
        raise cursor.unexpected("a column")
    name = cursor.word_or_quoted("a column")
    shown = cursor.word_or_quoted("another name") if cursor.take("AS") else name
    return SelectedColumn(name, shown.value)


def _number(cursor: Cursor) -> int:
    token = cursor.current
    if token.kind is not TokenKind.WORD or not token.text.isascii() or not token.text.isdecimal():
        raise cursor.unexpected("a number")
    cursor.advance()
    return int(token.text)
