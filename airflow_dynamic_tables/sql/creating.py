"""``CREATE TABLE … AS``: a table that is made once; nothing of it is declared."""

from __future__ import annotations

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.tables.formats import sink_formats
from airflow_dynamic_tables.definitions.statements.one_off import CreateTableAs
from airflow_dynamic_tables.definitions.statements.parsing import Script
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services.creating.deciding import decide
from airflow_dynamic_tables.services.creating.wanted import KeysPlace, QueryPlace, WantedTable, purpose_of
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult


def create_table_as(session: SqlSession, script: Script, statement: CreateTableAs) -> StatementResult:
    """``CREATE [OR REPLACE] TABLE … AS``: its job is awaited.

    :raises DefinitionError: with what is wrong with its format or its query, each at its place.
    """
    wanted = WantedTable(
        identifier=session.table(statement.name),
        query=script.text[statement.query.start : statement.query.end],
        scope=(session.catalog, session.database),
        place=QueryPlace(script.path, script.text, statement.query.start),
        purpose=purpose_of(if_not_exists=statement.if_not_exists, replace=statement.or_replace),
        format=_format(script, statement),
        partition_keys=tuple(key.value for key in statement.partitioned_by),
        keys_place=KeysPlace(script.path, script.text, tuple(key.start for key in statement.partitioned_by)),
        comment=statement.comment.value if statement.comment else None,
    )
    made = session.create(wanted, decide(session.workspace, session.project.load()[0], wanted))
    return StatementResult.of(made, "table", "outcome", "version", "rows")


def _format(script: Script, statement: CreateTableAs) -> str | None:
    if statement.format is None:
        return None
    name = statement.format.value.lower()
    formats = sink_formats()
    if name not in formats:
        hint = did_you_mean(name, formats) or f"; use {' | '.join(formats)}"
        raise DefinitionError((script.mistake(statement.format.start, f"unknown format {name!r}{hint}"),))
    return name
