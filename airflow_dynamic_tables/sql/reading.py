"""``SELECT``: rows of one table are read by its format, without Spark; any other query runs on Spark, on current versions."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, is_own
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.statements.lexing import tokens_of
from airflow_dynamic_tables.definitions.statements.parsing import Script, SelectedColumn, SimpleSelect, simple_select
from airflow_dynamic_tables.definitions.statements.values import Piece, Query
from airflow_dynamic_tables.exceptions import DefinitionError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.services.ctas.selecting import ReadTable, answer, read_query
from airflow_dynamic_tables.services.ctas.wanted import QueryPlace
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult

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


def explain_select(session: SqlSession, script: Script, query: Piece) -> StatementResult:
    """Describe what a query would read, and how."""
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
    """Return the maximum number of rows to return for a query."""
    asked = _asked(query)
    return USUAL_ROWS if asked is None else min(asked, MOST_ROWS)


def _note(most: int, *, is_cut: bool) -> str | None:
    if not is_cut:
        return None
    more = f"; LIMIT shows up to {MOST_ROWS:,}" if most < MOST_ROWS else ""
    return f"Only the first {most:,} rows are shown{more}."


def _columns_by_format(session: SqlSession, selected: SimpleSelect) -> tuple[Column, ...] | None:
    """Return the columns of a table that its format can read; ``None`` if it requires Spark.

    :raises TableNotFoundError: if it does not exist, or has no version yet.
    """
    identifier = session.table(selected.table)
    if identifier in session.project.load()[0].sources:
        return None
    entry = session.workspace.readable(identifier.catalog).get_table(identifier.path)
    return _columns(session, identifier, entry) if is_own(entry) or isinstance(entry, CatalogDynamicTable) else None


def _columns(session: SqlSession, identifier: TableIdentifier, entry: CatalogTable | CatalogDynamicTable) -> tuple[Column, ...]:
    """Return the current columns of a table.

    :raises TableNotFoundError: if it has no version yet.
    """
    if entry.columns:
        return entry.columns
    layout = session.workspace.table(identifier, entry.format).layout()
    if layout is None:
        raise TableNotFoundError(f"{identifier} has no version yet: ALTER DYNAMIC TABLE {identifier} REFRESH makes the first.")
    return layout.columns


def _known(script: Script, query: Piece, wanted: SelectedColumn, columns: tuple[Column, ...]) -> str:
    """Return the table's column with that name, ignoring case."""
    name = wanted.name.value
    same = [column.name for column in columns if column.name.lower() == name.lower()]
    if not same:
        every = [column.name for column in columns]
        hint = did_you_mean(name, every) or f"; it has {', '.join(every)}"
        raise DefinitionError((script.mistake(query.start + wanted.name.start, f"the table has no column {name!r}{hint}"),))
    return name if name in same else same[0]
