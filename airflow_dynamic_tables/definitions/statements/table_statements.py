"""Parsers of the statements about dynamic tables: CREATE, ALTER, DROP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_dynamic_tables.definitions.statements.grammar import Cursor, GrammarError
from airflow_dynamic_tables.definitions.statements.lexing import TokenKind
from airflow_dynamic_tables.definitions.statements.values import (
    AlterDynamicTable,
    AlterQuery,
    ColumnItem,
    CreateDynamicTable,
    DropDynamicTable,
    PairList,
    Piece,
    RefreshTable,
    RenameTo,
    ResetOptions,
    Resume,
    SetFreshness,
    SetOptions,
    SetRefreshMode,
    Suspend,
)

DYNAMIC = ("DYNAMIC", "MATERIALIZED")
"""Accepted words before TABLE; MATERIALIZED is Flink's."""

_TABLE = "a dynamic table"
_UNITS = ("WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_MODES = ("AUTO", "FULL", "INCREMENTAL", "CONTINUOUS")


def if_exists(cursor: Cursor) -> bool:
    """Consume ``IF EXISTS``, and return whether it was present."""
    return cursor.take("IF") and bool(cursor.expect("EXISTS"))


def if_not_exists(cursor: Cursor) -> bool:
    """Consume ``IF NOT EXISTS``, and return whether it was present."""
    return cursor.take("IF") and bool(cursor.expect("NOT")) and bool(cursor.expect("EXISTS"))


def create_table(cursor: Cursor, start: int, *, or_alter: bool) -> CreateDynamicTable:
    """Parse ``… TABLE [IF NOT EXISTS] name clauses AS query``, from TABLE on."""
    cursor.expect("TABLE")
    at_condition = cursor.current.start
    conditional = if_not_exists(cursor)
    if conditional and or_alter:
        raise GrammarError(at_condition, "OR ALTER and IF NOT EXISTS contradict each other; take one of them away")
    name = cursor.name(_TABLE)
    parts: dict[str, Any] = {}
    if cursor.at("("):
        parts["columns"] = _columns(cursor)
    while not cursor.at(*_CLAUSES, "AS"):
        raise cursor.unexpected()
    while cursor.at(*_CLAUSES):
        token = cursor.advance()
        field, parse = _CLAUSES[token.word]
        if field in parts:
            raise GrammarError(token.start, f"{token.word} stands here twice")
        parts[field] = parse(cursor, token.start)
    keyword = cursor.expect("AS")
    query = cursor.query(keyword.end)
    return CreateDynamicTable(
        start=start,
        end=query.end,
        name=name,
        query=query,
        as_at=keyword.start,
        or_alter=or_alter,
        if_not_exists=conditional,
        **parts,
    )


def _columns(cursor: Cursor) -> tuple[ColumnItem, ...]:
    columns = cursor.listed(lambda: _column(cursor))
    cursor.once([column.name for column in columns])
    return columns


def _column(cursor: Cursor) -> ColumnItem:
    name = cursor.word_or_quoted("the name of a column")
    comment = cursor.string("the comment in quotes") if cursor.take("COMMENT") else None
    if not cursor.at(",", ")"):
        problem = cursor.unexpected()
        is_type = comment is None and cursor.current.kind is TokenKind.WORD and not cursor.at("AS")
        hint = "; a column has the type that the query gives it: CAST it there" if is_type else ""
        raise GrammarError(problem.offset, f"{problem.message}{hint}")
    return ColumnItem(name, comment)


def partition_keys(cursor: Cursor) -> tuple[Piece, ...]:
    """Parse ``BY (column, day(column), …)``, from behind PARTITIONED."""
    cursor.expect("BY")
    keys = cursor.listed(lambda: _partition_key(cursor))
    cursor.once(list(keys))
    return keys


def _partition_key(cursor: Cursor) -> Piece:
    """Parse a column or a transform of one: ``bucket(16, id)``."""
    name = cursor.word_or_quoted("the name of a column")
    if not cursor.at("("):
        return name
    arguments = cursor.listed(lambda: cursor.word_or_quoted("the name of a column"))
    return Piece(f"{name.value}({', '.join(argument.value for argument in arguments)})", name.start, cursor.previous_end)


def freshness(cursor: Cursor) -> Piece:
    """Parse ``= INTERVAL '1' DAY`` or ``= '1 day'``; the value is validated later."""
    cursor.expect("=")
    start = cursor.current.start
    if not cursor.take("INTERVAL"):
        return cursor.string("a length of time in quotes")
    if cursor.current.kind is TokenKind.WORD and cursor.current.text.isdecimal():
        number = cursor.advance().text
    else:
        number = cursor.string("a number").value
    for unit in _UNITS:
        if cursor.at(unit, f"{unit}S", told_as=unit):
            cursor.advance()
            return Piece(f"INTERVAL '{number}' {unit}", start, cursor.previous_end)
    raise cursor.unexpected()


def refresh_mode(cursor: Cursor) -> Piece:
    """Parse ``= FULL``."""
    cursor.expect("=")
    token = cursor.expect(*_MODES)
    return Piece(token.word.lower(), token.start, token.end)


_OWN_PLACES = {
    "name": "behind TABLE",
    "query": "behind AS",
    "query_file": "behind AS",
    "columns": "in a column list",
    "partitioned_by": "as PARTITIONED BY (…)",
    "comment": "as COMMENT '…'",
    "freshness": "as FRESHNESS = …",
    "refresh_mode": "as REFRESH_MODE = …",
}
"""Keys that are not options of WITH, and where to declare them instead."""


def table_options(cursor: Cursor, start: int) -> PairList:
    """Parse the ``('key' = 'value', …)`` of a dynamic table, and reject keys that belong elsewhere."""
    group = cursor.options(start)
    for pair in group.pairs:
        if place := _OWN_PLACES.get(pair.key.value):
            raise GrammarError(pair.key.start, f"{pair.key.value!r} is no option; say it {place}")
    return group


_Clause = tuple[str, Callable[[Cursor, int], object]]
_CLAUSES: dict[str, _Clause] = {
    "PARTITIONED": ("partitioned_by", lambda cursor, _: partition_keys(cursor)),
    "COMMENT": ("comment", lambda cursor, _: cursor.string("the comment in quotes")),
    "WITH": ("options", table_options),
    "FRESHNESS": ("freshness", lambda cursor, _: freshness(cursor)),
    "REFRESH_MODE": ("refresh_mode", lambda cursor, _: refresh_mode(cursor)),
}
"""Clauses between name and AS, in any order: the field, and the parser of the rest of the clause."""


def alter_table(cursor: Cursor, start: int) -> AlterDynamicTable:
    """Parse ``… TABLE name action``, from TABLE on."""
    cursor.expect("TABLE")
    name = cursor.name(_TABLE)
    token = cursor.expect(*_ACTIONS)
    made, fields = _ACTIONS[token.word](cursor, token.start)
    return made(start=start, end=cursor.previous_end, name=name, **fields)


_Action = tuple[type[AlterDynamicTable], dict[str, Any]]


def _resume(cursor: Cursor, _: int) -> _Action:
    at_with = cursor.current.start
    return Resume, {"options": cursor.options(at_with)} if cursor.take("WITH") else {}


def _refresh(cursor: Cursor, _: int) -> _Action:
    fields = {}
    for field, keyword in (("partition", "PARTITION"), ("until", "TO")):
        start = cursor.current.start
        if not cursor.take(keyword):
            break
        fields[field] = cursor.group(start, lambda: cursor.word_or_quoted("a partition key"), lambda: _partition_value(cursor))
    return RefreshTable, fields


def _partition_value(cursor: Cursor) -> Piece:
    token = cursor.current
    if token.kind is TokenKind.WORD and token.text.isdecimal():
        cursor.advance()
        return Piece(token.text, token.start, token.end)
    return cursor.string("its value in quotes")


def _set(cursor: Cursor, start: int) -> _Action:
    if cursor.take("FRESHNESS"):
        return SetFreshness, {"freshness": freshness(cursor)}
    if cursor.take("REFRESH_MODE"):
        return SetRefreshMode, {"refresh_mode": refresh_mode(cursor)}
    return SetOptions, {"options": table_options(cursor, start)}


def _reset(cursor: Cursor, _: int) -> _Action:
    keys = cursor.listed(lambda: cursor.string("an option in quotes"))
    cursor.once(list(keys))
    return ResetOptions, {"keys": keys}


def _rename(cursor: Cursor, _: int) -> _Action:
    cursor.expect("TO")
    return RenameTo, {"new_name": cursor.name(_TABLE)}


def _as(cursor: Cursor, _: int) -> _Action:
    return AlterQuery, {"query": cursor.query(cursor.previous_end)}


_ACTIONS: dict[str, Callable[[Cursor, int], _Action]] = {
    "SUSPEND": lambda _cursor, _start: (Suspend, {}),
    "RESUME": _resume,
    "REFRESH": _refresh,
    "SET": _set,
    "RESET": _reset,
    "RENAME": _rename,
    "AS": _as,
}


def drop_table(cursor: Cursor, start: int) -> DropDynamicTable:
    """Parse ``… TABLE [IF EXISTS] name [PURGE]``, from TABLE on."""
    cursor.expect("TABLE")
    conditional = if_exists(cursor)
    name = cursor.name(_TABLE)
    purge = cursor.take("PURGE")
    return DropDynamicTable(start=start, end=cursor.previous_end, name=name, if_exists=conditional, purge=purge)
