"""Parsers of scripts and statements other than those of dynamic tables, and of queries simple enough to run without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_dynamic_tables.core.limits import MISTAKES_PER_FILE
from airflow_dynamic_tables.core.mistakes import Mistake, shown
from airflow_dynamic_tables.definitions.statements import table_statements as tables
from airflow_dynamic_tables.definitions.statements.grammar import QUERY_BEGINNINGS, Cursor, GrammarError
from airflow_dynamic_tables.definitions.statements.lexing import TokenKind, tokens_in, tokens_of
from airflow_dynamic_tables.definitions.statements.table_statements import DYNAMIC, if_exists, if_not_exists, partition_keys
from airflow_dynamic_tables.definitions.statements.values import (
    AlterQuery,
    CreateDatabase,
    CreateDynamicTable,
    CreateFunction,
    CreateView,
    Describe,
    DropDatabase,
    DropFunction,
    DropView,
    Explain,
    Kind,
    Name,
    PairList,
    Piece,
    Query,
    RefreshTable,
    Show,
    ShowCreate,
    Statement,
    Use,
)
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.yaml_files.documents import line_and_column


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A selected column, and its name in the result."""

    name: Piece
    shown_as: str


@dataclass(frozen=True, slots=True)
class SimpleSelect:
    """``SELECT {* | column [AS name], …} FROM table [LIMIT n]``.

    ``columns`` is empty for ``*``, ``limit`` is ``None`` without LIMIT.
    """

    table: Name
    columns: tuple[SelectedColumn, ...]
    limit: int | None


def simple_select(query: str) -> SimpleSelect | None:
    """Parse a simple query; return ``None`` for any other. Offsets refer to the query."""
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
    """Parse ``CREATE TABLE … AS``, from behind TABLE."""
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
"""Clauses between name and AS, in any order: the field, and the parser of the rest of the clause."""


_DATABASE = "a database"
_KINDS = {kind.value: kind for kind in Kind if kind is not Kind.DYNAMIC_TABLES}


def create_database(cursor: Cursor, start: int) -> CreateDatabase:
    """Parse ``… DATABASE [IF NOT EXISTS] name [COMMENT '…'] [WITH (…)]``, from behind DATABASE."""
    conditional = if_not_exists(cursor)
    name = cursor.name(_DATABASE, longest=2)
    comment = _comment(cursor)
    options = _options(cursor)
    return CreateDatabase(
        start=start, end=cursor.previous_end, name=name, if_not_exists=conditional, comment=comment, options=options
    )


def create_view(cursor: Cursor, start: int) -> CreateView:
    """Parse ``… VIEW [IF NOT EXISTS] name [COMMENT '…'] AS query``, from behind VIEW."""
    conditional = if_not_exists(cursor)
    name = cursor.name("a view")
    comment = _comment(cursor)
    query = cursor.query(cursor.expect("AS").end)
    return CreateView(start=start, end=query.end, name=name, query=query, if_not_exists=conditional, comment=comment)


def create_function(cursor: Cursor, start: int) -> CreateFunction:
    """Parse ``… FUNCTION [IF NOT EXISTS] name AS 'class' [LANGUAGE …] [WITH (…)]``, from behind FUNCTION."""
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


def _options(cursor: Cursor) -> PairList | None:
    start = cursor.current.start
    return cursor.options(start) if cursor.take("WITH") else None


def drop_database(cursor: Cursor, start: int) -> DropDatabase:
    """Parse ``… DATABASE [IF EXISTS] name [RESTRICT | CASCADE]``, from behind DATABASE."""
    conditional = if_exists(cursor)
    name = cursor.name(_DATABASE, longest=2)
    cascade = not cursor.take("RESTRICT") and cursor.take("CASCADE")
    return DropDatabase(start=start, end=cursor.previous_end, name=name, if_exists=conditional, cascade=cascade)


def drop_view(cursor: Cursor, start: int) -> DropView:
    """Parse ``… VIEW [IF EXISTS] name``, from behind VIEW."""
    conditional = if_exists(cursor)
    name = cursor.name("a view")
    return DropView(start=start, end=name.end, name=name, if_exists=conditional)


def drop_function(cursor: Cursor, start: int) -> DropFunction:
    """Parse ``… FUNCTION [IF EXISTS] name``, from behind FUNCTION."""
    conditional = if_exists(cursor)
    name = cursor.name("a function")
    return DropFunction(start=start, end=name.end, name=name, if_exists=conditional)


def show(cursor: Cursor, start: int) -> Show | ShowCreate:
    """Parse ``SHOW kind [{FROM | IN} …] [[NOT] LIKE '…']`` or ``SHOW CREATE DYNAMIC TABLE name``, from behind SHOW."""
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
    """Parse ``[EXTENDED] name``, from behind DESCRIBE."""
    extended = cursor.take("EXTENDED")
    name = cursor.name("a table")
    return Describe(start=start, end=name.end, name=name, extended=extended)


def use(cursor: Cursor, start: int) -> Use:
    """Parse ``[catalog.]database`` or ``CATALOG catalog``, from behind USE."""
    if cursor.take("CATALOG"):
        name = cursor.name("a catalog", longest=1)
        return Use(start=start, end=name.end, catalog=name.parts[0], database=None, name=name)
    name = cursor.name(_DATABASE, longest=2)
    catalog = name.parts[0] if len(name.parts) > 1 else None
    return Use(start=start, end=name.end, catalog=catalog, database=name.parts[-1], name=name)


def query(cursor: Cursor) -> Query:
    """Parse a query that is a statement of its own."""
    text = cursor.query(cursor.current.start)
    return Query(start=text.start, end=text.end, text=text)


_CARET_ROOM = 120
"""Maximum length of the line excerpt around a caret, in characters; a query may be one line of kilobytes."""


@dataclass(frozen=True, slots=True)
class Script:
    """A text, its valid statements in order, and the mistakes of the others.

    ``path`` is shown in the mistakes: the file of the text, or a label for it.
    """

    path: Path
    text: str
    statements: tuple[Statement, ...]
    mistakes: tuple[Mistake, ...]

    def mistake(self, offset: int, message: str) -> Mistake:
        """Return a mistake at an offset of the text."""
        return Mistake(self.path, *line_and_column(self.text, offset), message)


def parse_script(text: str, path: Path) -> Script:
    """Parse statements separated by semicolons; the last one needs none. Only the first mistakes are reported."""
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
            # Limit the mistakes, because locating each one scans the text.
            problems += [problem] if len(problems) <= MISTAKES_PER_FILE else []
            while not cursor.ends_statement:
                cursor.advance()
    mistakes = tuple(Mistake(path, *line_and_column(text, problem.offset), problem.message) for problem in problems)
    return Script(path, text, tuple(statements), mistakes)


def is_complete(text: str) -> bool:
    """Return whether a text being typed is empty or ends with a semicolon outside of quotes and comments."""
    *tokens, _ = tokens_of(text)
    return not tokens or tokens[-1].word == ";"


def is_query(text: str) -> bool:
    """Return whether a text is a query, judging by its first word."""
    return next(tokens_in(text)).word in QUERY_BEGINNINGS


def pointed(text: str, mistake: Mistake) -> str:
    """Format a mistake for a terminal: the message, the line of the text, and a caret under the position.

    Secrets in that line are masked.
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
        return query(cursor)
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
        explained: Statement = query(cursor)
    else:
        explained = _BEGINNINGS[cursor.expect("CREATE", "ALTER").word](cursor, at_explained)
    if not isinstance(explained, CreateDynamicTable | AlterQuery | RefreshTable | Query):
        raise GrammarError(at_explained, "expected CREATE DYNAMIC TABLE, ALTER … AS, ALTER … REFRESH or a query to explain")
    return Explain(start=start, end=explained.end, explained=explained)


_Parse = Callable[[Cursor, int], Statement]

_CREATED: dict[str, _Parse] = {
    "TABLE": create_table_as,
    "DATABASE": create_database,
    "VIEW": create_view,
    "FUNCTION": create_function,
}
_DROPPED: dict[str, _Parse] = {
    "DATABASE": drop_database,
    "VIEW": drop_view,
    "FUNCTION": drop_function,
}
_BEGINNINGS: dict[str, _Parse] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "SHOW": show,
    "DESCRIBE": describe,
    "DESC": describe,
    "EXPLAIN": _explain,
    "USE": use,
}
"""Parsers by the first word of a statement."""
