"""``SELECT``: the first rows of one table as they are committed, read by its format, without Spark."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.definitions.statements.parsing import Script
from airflow_dynamic_tables.definitions.statements.selecting import SelectedColumn, SimpleSelect, simple_select
from airflow_dynamic_tables.definitions.statements.values import Piece, Query
from airflow_dynamic_tables.exceptions import DefinitionError, TableNotFoundError
from airflow_dynamic_tables.services.tables.status import sample
from airflow_dynamic_tables.sql.session import Answer, Session

MOST_ROWS = 10_000
"""Rows that one statement shows: all of them are in memory at once."""

_SIMPLE = "a statement reads columns of one table, with a limit: SELECT a, b FROM sales.orders LIMIT 20"


def select(session: Session, script: Script, statement: Query) -> Answer:
    """``SELECT columns FROM table LIMIT n``.

    :raises DefinitionError: when it says anything more, or names a column that the table does not have.
    :raises TableNotFoundError: when there is no such table, or it has no version yet.
    """
    text = statement.text
    selected = checked_select(script, text)
    identifier = session.table(selected.table)
    columns = columns_of(session, identifier)
    names = [_known(script, text, column, columns) for column in selected.columns] or [column.name for column in columns]
    shown = [column.shown_as for column in selected.columns] or names
    rows = sample(session.workspace, identifier, selected.limit or 0) if selected.limit else []
    return Answer(tuple(shown), tuple(tuple(row.get(name) for name in names) for row in rows))


def checked_select(script: Script, query: Piece) -> SimpleSelect:
    """A query that can be answered without Spark.

    :raises DefinitionError: when it is none, or has no limit that can be kept.
    """
    selected = simple_select(query.value)
    if selected is None:
        message = f"only Spark can answer that; {_SIMPLE}. For more, make a dynamic table of the query, or ask Spark itself"
        raise DefinitionError((script.mistake(query.start, message),))
    if selected.limit is None or selected.limit > MOST_ROWS:
        raise DefinitionError((script.mistake(query.end, f"expected LIMIT with a number up to {MOST_ROWS:,}"),))
    return selected


def columns_of(session: Session, identifier: TableIdentifier) -> tuple[Column, ...]:
    """The columns that a table has now.

    :raises TableNotFoundError: when it does not exist, is a view, or has no version yet.
    """
    entry = session.workspace.readable(identifier.catalog).get_table(identifier.path)
    if isinstance(entry, CatalogView):
        raise TableNotFoundError(f"{identifier} is a view, and only Spark can read it; SELECT from a table.")
    if entry.columns:
        return entry.columns
    layout = session.workspace.table(identifier, entry.format).layout()
    if layout is None:
        raise TableNotFoundError(f"{identifier} has no version yet: ALTER DYNAMIC TABLE {identifier} REFRESH makes the first.")
    return layout.columns


def _known(script: Script, query: Piece, wanted: SelectedColumn, columns: tuple[Column, ...]) -> str:
    """The column of that name, in whatever case, as the table has it."""
    name = wanted.name.value
    same = [column.name for column in columns if column.name.lower() == name.lower()]
    if not same:
        every = [column.name for column in columns]
        hint = did_you_mean(name, every) or f"; it has {', '.join(every)}"
        raise DefinitionError((script.mistake(query.start + wanted.name.start, f"the table has no column {name!r}{hint}"),))
    return name if name in same else same[0]
