"""``CREATE TABLE … AS``: a table that is made once; as a value, and how it is parsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_dynamic_tables.definitions.statements.grammar import Cursor, GrammarError
from airflow_dynamic_tables.definitions.statements.table_statements import if_not_exists, partition_keys
from airflow_dynamic_tables.definitions.statements.values import Name, Piece, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableAs(Statement):
    """``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name [USING format] [PARTITIONED BY (…)] [COMMENT '…'] AS query``."""

    name: Name
    query: Piece
    or_replace: bool = False
    if_not_exists: bool = False
    format: Piece | None = None
    partitioned_by: tuple[Piece, ...] = ()
    comment: Piece | None = None


def create_table_as(cursor: Cursor, start: int, *, or_replace: bool = False) -> CreateTableAs:
    """The statement, behind TABLE.

    :param start: where it begins.
    """
    at_condition = cursor.current.start
    conditional = if_not_exists(cursor)
    if conditional and or_replace:
        raise GrammarError(at_condition, "OR REPLACE and IF NOT EXISTS contradict each other; take one of them away")
    name = cursor.name("a table")
    if cursor.current.text == "(":
        raise GrammarError(cursor.current.start, "the query says which columns the table has; take the list away")
    parts: dict[str, Piece | tuple[Piece, ...]] = {}
    while cursor.at(*_CLAUSES):
        token = cursor.advance()
        field, parse = _CLAUSES[token.word]
        if field in parts:
            raise GrammarError(token.start, f"{token.word} stands here twice")
        parts[field] = parse(cursor)
    query = cursor.query(cursor.expect("AS").end)
    return CreateTableAs(
        start=start,
        end=query.end,
        name=name,
        query=query,
        or_replace=or_replace,
        if_not_exists=conditional,
        **parts,  # type: ignore[arg-type]  # each clause gives what its field takes
    )


_CLAUSES: dict[str, tuple[str, Callable[[Cursor], Piece | tuple[Piece, ...]]]] = {
    "USING": ("format", lambda cursor: cursor.word_or_quoted("a format")),
    "PARTITIONED": ("partitioned_by", partition_keys),
    "COMMENT": ("comment", lambda cursor: cursor.string("the comment in quotes")),
}
"""What may stand between name and AS, in any order: the field, and what parses the rest of it."""
