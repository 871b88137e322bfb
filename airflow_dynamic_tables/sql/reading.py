"""Statements that read: SELECT, SHOW, DESCRIBE and EXPLAIN.

Rows of one table are read by its format, without Spark; any other query runs on Spark, on current versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogDynamicTable, CatalogFunction, CatalogTable, is_own
from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name, split_name
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.cache import normalised, restored
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.printing import ended, statement_of
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.lexing import tokens_of
from airflow_dynamic_tables.definitions.statements.parsing import Script, SelectedColumn, SimpleSelect, simple_select
from airflow_dynamic_tables.definitions.statements.values import (
    SQL_SUFFIX,
    CreateDynamicTable,
    Describe,
    Explain,
    Kind,
    Piece,
    Query,
    RefreshTable,
    Show,
    ShowCreate,
)
from airflow_dynamic_tables.exceptions import (
    DatabaseNotFoundError,
    DefinitionError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.services import catalogs as listing
from airflow_dynamic_tables.services.ctas.selecting import ReadTable, answer, read_query
from airflow_dynamic_tables.services.ctas.wanted import QueryPlace
from airflow_dynamic_tables.services.deployments.declaring import checked, declaration_of, deployed_table
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.preview import statement as sql_of
from airflow_dynamic_tables.services.refresh.requests import latest_schedule_time, requested_partitions
from airflow_dynamic_tables.services.status import TableStatus, overview, sample
from airflow_dynamic_tables.sql.declarations import altered_declaration, declaration_draft, declared_table, sound_table, told_at
from airflow_dynamic_tables.sql.lifecycle import refresh_request
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult

_COLUMNS = ("name", "type", "comment")
_STATUS = (
    "identifier",
    "defined",
    "state",
    "refresh_mode",
    "freshness",
    "job_state",
    "version",
    "data_timestamp",
    "late",
    "last_refresh",
)
"""Fields of a table's status that a terminal shows."""


def show(session: SqlSession, _: Script, statement: Show) -> StatementResult:
    """``SHOW DYNAMIC TABLES``, and the other kinds of SHOW."""
    if statement.kind is Kind.DYNAMIC_TABLES:
        return _dynamic_tables(session, statement)
    names = _LISTED[statement.kind](session, statement)
    return StatementResult((statement.kind.value.lower(),), tuple((name,) for name in names if _matches(statement, name)))


def _dynamic_tables(session: SqlSession, statement: Show) -> StatementResult:
    catalog, database = session.database_named(statement.within)
    definitions, mistakes = session.project.load()
    declared = {name.table for name in definitions.tables if (name.catalog, name.database) == (catalog, database)}
    try:
        deployed = session.workspace.readable(catalog).get_dynamic_tables(database)
    except DatabaseNotFoundError:
        if not declared:
            raise
        deployed = {}
    names = [name for name in sorted(declared | deployed.keys()) if _matches(statement, name)]
    entries = {TableIdentifier(catalog, database, name): deployed.get(name) for name in names}
    statuses = overview(session.workspace, entries, definitions.tables, complete=not mistakes)
    return StatementResult.listing(TableStatus, statuses, *_STATUS)


def _within(session: SqlSession, statement: Show) -> str:
    return join_name(*session.database_named(statement.within))


def _last_parts(objects: Iterable[listing.ObjectSummary]) -> list[str]:
    return [split_name(summary.identifier)[-1] for summary in objects]


def _databases(session: SqlSession, statement: Show) -> list[str]:
    catalog = statement.within.parts[0] if statement.within else session.catalog
    return _last_parts(listing.databases(session.workspace, catalog))


def _catalogs(session: SqlSession, _: Show) -> list[str]:
    defined = session.project.load()[0]
    mentioned = {name.catalog for name in (*defined.tables, *defined.sources)}
    is_embedded = session.workspace.settings.catalogs_file is None
    return [catalog.name for catalog in listing.catalogs(session.workspace, mentioned if is_embedded else ())]


_LISTED: dict[Kind, Callable[[SqlSession, Show], list[str]]] = {
    Kind.TABLES: lambda session, said: _last_parts(listing.tables(session.workspace, _within(session, said))),
    Kind.VIEWS: lambda session, said: _last_parts(listing.views(session.workspace, _within(session, said))),
    Kind.FUNCTIONS: lambda session, said: _last_parts(listing.functions(session.workspace, _within(session, said))),
    Kind.DATABASES: _databases,
    Kind.CATALOGS: _catalogs,
}


def _matches(statement: Show, name: str) -> bool:
    if statement.like is None:
        return True
    signs = {"%": ".*", "_": "."}
    pattern = "".join(signs.get(sign) or re.escape(sign) for sign in statement.like.value)
    return (re.fullmatch(pattern, name, re.DOTALL) is not None) is not statement.negated


def show_create(session: SqlSession, _: Script, statement: ShowCreate) -> StatementResult:
    """``SHOW CREATE DYNAMIC TABLE``: the statement in its file, or an equivalent one.

    :raises TableNotFoundError: if neither the definitions nor the catalog have such a table.
    """
    identifier = session.table(statement.name)
    table = session.project.load()[0].tables.get(identifier)
    if table is not None and table.path.suffix == SQL_SUFFIX:
        declaration = declaration_of(table)
        query = declaration.statement.query
        text = without_secrets(ended(declaration.text[declaration.statement.start : query.start + len(query.value)]))
    elif table is not None:
        text = statement_of(restored(normalised(table)))
    else:
        text = statement_of(deployed_table(session.workspace, identifier))
    return StatementResult(("create dynamic table",), ((text,),))


def describe(session: SqlSession, _: Script, statement: Describe) -> StatementResult:
    """``DESCRIBE [EXTENDED]``: the columns; with EXTENDED also everything else in the catalog."""
    identifier = session.table(statement.name)
    try:
        details = listing.describe(session.workspace, str(identifier))
    except NotFoundError:
        return _declared_columns(declared_table(session, identifier))
    value = details.value
    if isinstance(value, CatalogDatabase | CatalogFunction):
        raise TableNotFoundError(f"{identifier} is a {details.kind}, and DESCRIBE shows tables and views.")
    rows: list[tuple[str, str | None, str | None]] = [(column.name, column.type, column.comment) for column in value.columns]
    if statement.extended:
        rows.append(("# details", None, None))
        said = {"identifier": identifier, "kind": details.kind, **items(value), **(details.statistics or {})}
        rows += [(name, _said(item), None) for name, item in said.items() if name not in ("columns", "definition")]
    return StatementResult(_COLUMNS, tuple(rows))


def _said(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, TableIdentifier):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return json.dumps(to_plain(value))
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)


def _declared_columns(table: DynamicTable) -> StatementResult:
    analysis = analyse(table.expanded_query)
    names = analysis.outputs or ()
    types = analysis.types or (None,) * len(names)
    rows = tuple((name or "?", kind, table.comments.get(name or "")) for name, kind in zip(names, types, strict=True))
    return StatementResult(_COLUMNS, rows)


def explain(session: SqlSession, script: Script, statement: Explain) -> StatementResult:
    """``EXPLAIN``: describes what a statement would do, without executing it."""
    explained = statement.explained
    if isinstance(explained, Query):
        return _explain_select(session, script, explained.text)
    if isinstance(explained, RefreshTable):
        request = refresh_request(session, explained)
        partitions = requested_partitions(request)
        planned = preview(request.table, request.schedule_time, request.sources)
        statement_text = sql_of(request.table.expanded_query, partitions)
        return StatementResult.properties(replace(planned, partitions=partitions, statement=statement_text))
    identifier = session.table(explained.name)
    if isinstance(explained, CreateDynamicTable):
        known = session.project.load()[0].tables.get(identifier)
        draft = declaration_draft(session, script, explained, known)
        with draft.told():
            definitions = checked(session.project, draft.change)
    else:
        with told_at(script, explained):
            definitions = checked(session.project, altered_declaration(session, script, explained))
    return _planned(session, definitions, sound_table(definitions, identifier))


def _planned(session: SqlSession, definitions: Definitions, table: DynamicTable) -> StatementResult:
    (found,) = differences(session.workspace, definitions, [table])
    planned = preview(table, latest_schedule_time(table, session.workspace.now()), definitions.sources)
    return StatementResult.properties(planned, found)


MOST_ROWS = 10_000
"""Maximum number of rows that a statement returns, because all of them are in memory."""

USUAL_ROWS = 1_000
"""Number of rows that a statement without LIMIT returns."""


def select(session: SqlSession, script: Script, statement: Query) -> StatementResult:
    """Run a query. Columns of one table are read by its format, without Spark; any other query runs on Spark.

    :raises DefinitionError: if it has mistakes, e.g. an unknown column.
    :raises TableNotFoundError: if a table does not exist or has no version yet.
    """
    selected = simple_select(statement.text.value)
    try:
        columns = _columns_by_format(session, selected) if selected is not None else None
    except UnsupportedError:
        columns = None
    if selected is None or columns is None:
        return _by_spark(session, script, statement.text)
    return _by_format(session, script, statement.text, selected, columns)


@dataclass(frozen=True, slots=True)
class QueryReads:
    """The tables that a query would read, and how; ``rows`` is the maximum number of rows that it returns."""

    reads: str | None
    how: str
    rows: int


def _explain_select(session: SqlSession, script: Script, query: Piece) -> StatementResult:
    selected = simple_select(query.value)
    if selected is not None and _columns_by_format(session, selected) is not None:
        how = "its format, at the current version"
        return StatementResult.of(QueryReads(str(session.table(selected.table)), how, _most(query.value)))
    wanted = _read(session, script, query)
    tables = ", ".join(map(str, wanted.table.upstream)) or None
    return StatementResult.of(QueryReads(tables, "Spark, at the current versions", _most(query.value)))


def _by_format(
    session: SqlSession, script: Script, text: Piece, selected: SimpleSelect, columns: tuple[Column, ...]
) -> StatementResult:
    identifier = session.table(selected.table)
    names = [_known(script, text, column, columns) for column in selected.columns] or [column.name for column in columns]
    shown = [column.shown_as for column in selected.columns] or names
    most = _most(text.value)
    more = 0 if selected.limit == most else 1
    rows = sample(session.workspace, identifier, most + more) if most else []
    values = tuple(tuple(row.get(name) for name in names) for row in rows[:most])
    return StatementResult(tuple(shown), values, _note(most, is_cut=len(rows) > most))


def _by_spark(session: SqlSession, script: Script, text: Piece) -> StatementResult:
    most = _most(text.value)
    wanted = _read(session, script, text)
    first = answer(session.workspace, wanted, most, _place(script, text), session.query)
    asked = _asked(text.value)
    return StatementResult(first.columns, first.rows, _note(most, is_cut=first.is_cut and asked != most))


def _read(session: SqlSession, script: Script, text: Piece) -> ReadTable:
    definitions = session.project.load()[0]
    return read_query(session.workspace, definitions, text.value, (session.catalog, session.database), _place(script, text))


def _place(script: Script, text: Piece) -> QueryPlace:
    return QueryPlace(script.path, script.text, text.start)


def _asked(query: str) -> int | None:
    """Return the number of a LIMIT at the end of a query, if it has one."""
    *_, word, number, _end = (None, None, *tokens_of(query))
    is_limit = word is not None and word.text.upper() == "LIMIT" and number is not None and number.text.isdecimal()
    return int(number.text) if is_limit and number is not None else None


def _most(query: str) -> int:
    asked = _asked(query)
    return USUAL_ROWS if asked is None else min(asked, MOST_ROWS)


def _note(most: int, *, is_cut: bool) -> str | None:
    if not is_cut:
        return None
    more = f"; LIMIT shows up to {MOST_ROWS:,}" if most < MOST_ROWS else ""
    return f"Only the first {most:,} rows are shown{more}."


def _columns_by_format(session: SqlSession, selected: SimpleSelect) -> tuple[Column, ...] | None:
    """Return the columns of a table that its format can read; ``None`` if it requires Spark."""
    identifier = session.table(selected.table)
    if identifier in session.project.load()[0].sources:
        return None
    entry = session.workspace.readable(identifier.catalog).get_table(identifier.path)
    return _columns(session, identifier, entry) if is_own(entry) or isinstance(entry, CatalogDynamicTable) else None


def _columns(session: SqlSession, identifier: TableIdentifier, entry: CatalogTable | CatalogDynamicTable) -> tuple[Column, ...]:
    if entry.columns:
        return entry.columns
    layout = session.workspace.table(identifier, entry.format).layout()
    if layout is None:
        raise TableNotFoundError(f"{identifier} has no version yet: ALTER DYNAMIC TABLE {identifier} REFRESH makes the first.")
    return layout.columns


def _known(script: Script, query: Piece, wanted: SelectedColumn, columns: tuple[Column, ...]) -> str:
    name = wanted.name.value
    same = [column.name for column in columns if column.name.lower() == name.lower()]
    if not same:
        every = [column.name for column in columns]
        hint = did_you_mean(name, every) or f"; it has {', '.join(every)}"
        raise DefinitionError((script.mistake(query.start + wanted.name.start, f"the table has no column {name!r}{hint}"),))
    return name if name in same else same[0]
