"""Parsing statements about databases, views and functions, and those that look at something."""

from __future__ import annotations

from airflow_dynamic_tables.definitions.statements.grammar import Cursor
from airflow_dynamic_tables.definitions.statements.table_statements import DYNAMIC, if_exists, if_not_exists
from airflow_dynamic_tables.definitions.statements.values import (
    CreateDatabase,
    CreateFunction,
    CreateView,
    Describe,
    DropDatabase,
    DropFunction,
    DropView,
    Group,
    Kind,
    Piece,
    Query,
    Show,
    ShowCreate,
    Use,
)

_DATABASE = "a database"
_KINDS = {kind.value: kind for kind in Kind if kind is not Kind.DYNAMIC_TABLES}


def create_database(cursor: Cursor, start: int) -> CreateDatabase:
    """``… DATABASE [IF NOT EXISTS] name [COMMENT '…'] [WITH (…)]``, behind DATABASE."""
    conditional = if_not_exists(cursor)
    name = cursor.name(_DATABASE, longest=2)
    comment = _comment(cursor)
    options = _options(cursor)
    return CreateDatabase(
        start=start, end=cursor.previous_end, name=name, if_not_exists=conditional, comment=comment, options=options
    )


def create_view(cursor: Cursor, start: int) -> CreateView:
    """``… VIEW [IF NOT EXISTS] name [COMMENT '…'] AS query``, behind VIEW."""
    conditional = if_not_exists(cursor)
    name = cursor.name("a view")
    comment = _comment(cursor)
    query = cursor.query(cursor.expect("AS").end)
    return CreateView(start=start, end=query.end, name=name, query=query, if_not_exists=conditional, comment=comment)


def create_function(cursor: Cursor, start: int) -> CreateFunction:
    """``… FUNCTION [IF NOT EXISTS] name AS 'class' [LANGUAGE …] [WITH (…)]``, behind FUNCTION."""
    conditional = if_not_exists(cursor)
    name = cursor.name("a function")
    cursor.expect("AS")
    implementation = cursor.string("a class, or module:callable, in quotes")
    language = cursor.expect("JAVA", "PYTHON").word.lower() if cursor.take("LANGUAGE") else "java"
    options = _options(cursor)
    return CreateFunction(
        start=start,
        end=cursor.previous_end,
        name=name,
        implementation=implementation,
        if_not_exists=conditional,
        language=language,
        options=options,
    )


def _comment(cursor: Cursor) -> Piece | None:
    return cursor.string("the comment in quotes") if cursor.take("COMMENT") else None


def _options(cursor: Cursor) -> Group | None:
    start = cursor.current.start
    return cursor.options(start) if cursor.take("WITH") else None


def drop_database(cursor: Cursor, start: int) -> DropDatabase:
    """``… DATABASE [IF EXISTS] name [RESTRICT | CASCADE]``, behind DATABASE."""
    conditional = if_exists(cursor)
    name = cursor.name(_DATABASE, longest=2)
    cascade = not cursor.take("RESTRICT") and cursor.take("CASCADE")
    return DropDatabase(start=start, end=cursor.previous_end, name=name, if_exists=conditional, cascade=cascade)


def drop_view(cursor: Cursor, start: int) -> DropView:
    """``… VIEW [IF EXISTS] name``, behind VIEW."""
    conditional = if_exists(cursor)
    name = cursor.name("a view")
    return DropView(start=start, end=name.end, name=name, if_exists=conditional)


def drop_function(cursor: Cursor, start: int) -> DropFunction:
    """``… FUNCTION [IF EXISTS] name``, behind FUNCTION."""
    conditional = if_exists(cursor)
    name = cursor.name("a function")
    return DropFunction(start=start, end=name.end, name=name, if_exists=conditional)


def show(cursor: Cursor, start: int) -> Show | ShowCreate:
    """``SHOW kind [{FROM | IN} …] [[NOT] LIKE '…']`` or ``SHOW CREATE DYNAMIC TABLE name``, behind SHOW."""
    if cursor.take("CREATE"):
        cursor.expect(*DYNAMIC)
        cursor.expect("TABLE")
        name = cursor.name("a dynamic table")
        return ShowCreate(start=start, end=name.end, name=name)
    if cursor.take(*DYNAMIC):
        cursor.expect("TABLES")
        kind = Kind.DYNAMIC_TABLES
    else:
        kind = _KINDS[cursor.expect(*_KINDS).word]
    within = None
    if kind is not Kind.CATALOGS and cursor.take("FROM", "IN"):
        within = cursor.name("a catalog", longest=1) if kind is Kind.DATABASES else cursor.name(_DATABASE, longest=2)
    negated = cursor.take("NOT")
    if negated:
        cursor.expect("LIKE")
    like = cursor.string("a pattern in quotes") if negated or cursor.take("LIKE") else None
    return Show(start=start, end=cursor.previous_end, kind=kind, within=within, like=like, negated=negated)


def describe(cursor: Cursor, start: int) -> Describe:
    """``[EXTENDED] name``, behind DESCRIBE."""
    extended = cursor.take("EXTENDED")
    name = cursor.name("a table")
    return Describe(start=start, end=name.end, name=name, extended=extended)


def use(cursor: Cursor, start: int) -> Use:
    """``[catalog.]database`` or ``CATALOG catalog``, behind USE."""
    if cursor.take("CATALOG"):
        name = cursor.name("a catalog", longest=1)
        return Use(start=start, end=name.end, catalog=name.parts[0], database=None, name=name)
    name = cursor.name(_DATABASE, longest=2)
    catalog = name.parts[0] if len(name.parts) > 1 else None
    return Use(start=start, end=name.end, catalog=catalog, database=name.parts[-1], name=name)


def query(cursor: Cursor) -> Query:
    """A query as a statement of its own."""
    text = cursor.query(cursor.current.start)
    return Query(start=text.start, end=text.end, text=text)
