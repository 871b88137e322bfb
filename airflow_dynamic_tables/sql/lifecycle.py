"""Statements that run or control refreshes: CREATE TABLE AS, SUSPEND, RESUME and REFRESH."""

from __future__ import annotations

from uuid import uuid4

from airflow_dynamic_tables.core.formats import sink_formats
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.statements.parsing import CreateTableAs, Script
from airflow_dynamic_tables.definitions.statements.values import RefreshTable, Resume, Suspend
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError
from airflow_dynamic_tables.services.ctas.planning import decide
from airflow_dynamic_tables.services.ctas.wanted import KeysPlace, QueryPlace, WantedTable, purpose_of
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, latest_schedule_time, parse_partitions
from airflow_dynamic_tables.services.refresh.upstream import parents_of
from airflow_dynamic_tables.services.writes.settling import result_of
from airflow_dynamic_tables.sql.declarations import declared_table
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult


def create_table_as(session: SqlSession, script: Script, statement: CreateTableAs) -> StatementResult:
    """``CREATE [OR REPLACE] TABLE … AS``: runs its job to the end. The table is not declared.

    :raises DefinitionError: with the mistakes of its format or query, each at its place.
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


def suspend_table(session: SqlSession, _: Script, statement: Suspend) -> StatementResult:
    """``ALTER DYNAMIC TABLE … SUSPEND``."""
    return StatementResult.of(suspend(session.workspace, session.table(statement.name), f"by a statement of {session.owner}"))


def resume_table(session: SqlSession, script: Script, statement: Resume) -> StatementResult:
    """``ALTER DYNAMIC TABLE … RESUME``."""
    if statement.options is not None:
        message = "options of one resumption are not kept here; ALTER DYNAMIC TABLE … SET (…) changes those of the table"
        raise DefinitionError((script.mistake(statement.options.start, message),))
    return StatementResult.of(resume(session.workspace, session.table(statement.name)))


def refresh_table(session: SqlSession, _: Script, statement: RefreshTable) -> StatementResult:
    """``ALTER DYNAMIC TABLE … REFRESH [PARTITION (…)]``: runs one refresh to its end."""
    request = refresh_request(session, statement)
    outcome = session.refresh(request)
    return StatementResult.of(result_of(session.workspace, request.token, outcome), "table", "state", "version", "reason")


def refresh_request(session: SqlSession, statement: RefreshTable) -> RefreshRequest:
    """Return the request of a statement, for the latest tick of the table."""
    table = declared_table(session, session.table(statement.name))
    token = str(uuid4())
    defined = session.project.load()[0]
    return RefreshRequest(
        table=table,
        sources=defined.sources,
        schedule_time=latest_schedule_time(table, session.workspace.now()),
        token=token,
        owner=f"{session.owner} (statement {token})",
        partitions=_partitions(statement, table),
        full_refresh=statement.partition is None,
        waits=False,
        parents=parents_of(table, defined),
    )


def _partitions(statement: RefreshTable, table: DynamicTable) -> PartitionSet | None:
    if statement.partition is None:
        return None
    first = statement.partition.as_dict()
    if statement.until is None:
        return PartitionSet.of([first])
    try:
        return parse_partitions(f"{describe(first)}..{describe(statement.until.as_dict())}", table.formatters)
    except ValueError as error:
        raise ConfigurationError(f"PARTITION ... TO: {error}.") from error
