"""Statements for databases, views and functions, and USE."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.core.identifiers import join_name
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.documents import edited
from airflow_dynamic_tables.definitions.statements.parsing import Script
from airflow_dynamic_tables.definitions.statements.values import (
    CreateDatabase,
    CreateFunction,
    CreateView,
    DropDatabase,
    DropFunction,
    DropView,
    PairList,
    Piece,
    Use,
)
from airflow_dynamic_tables.exceptions import AlreadyExistsError, DefinitionError
from airflow_dynamic_tables.services import catalogs as databases
from airflow_dynamic_tables.services import catalogs as functions
from airflow_dynamic_tables.services import catalogs as views
from airflow_dynamic_tables.services.catalogs import ObjectChange
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult, full_names


@dataclass(frozen=True, slots=True)
class CurrentDatabase:
    """The catalog and database of short names."""

    catalog: str
    database: str


def use(session: SqlSession, _: Script, statement: Use) -> StatementResult:
    """``USE``."""
    session.use(statement.catalog, statement.database)
    return StatementResult.of(CurrentDatabase(session.catalog, session.database))


def create_database(session: SqlSession, _: Script, statement: CreateDatabase) -> StatementResult:
    """``CREATE DATABASE``."""
    name = join_name(*session.database_named(statement.name))
    value = CatalogDatabase(_text(statement.comment), _pairs(statement.options))
    databases.create_database(session.workspace, name, value, ignore_if_exists=statement.if_not_exists)
    return StatementResult.of(ObjectChange(name, "created"))


def drop_database(session: SqlSession, _: Script, statement: DropDatabase) -> StatementResult:
    """``DROP DATABASE``."""
    name = join_name(*session.database_named(statement.name))
    databases.drop_database(session.workspace, name, ignore_if_not_exists=statement.if_exists, cascade=statement.cascade)
    return StatementResult.of(ObjectChange(name, "dropped"))


def create_view(session: SqlSession, script: Script, statement: CreateView) -> StatementResult:
    """``CREATE VIEW``: short names in its query refer to the session's catalog and database.

    :raises DefinitionError: with the mistakes of its query.
    """
    view = session.table(statement.name)
    query = script.text[statement.query.start : statement.query.end]
    if problems := analyse(query).problems:
        raise DefinitionError(tuple(script.mistake(statement.query.start + each.offset, each.message) for each in problems))
    named = edited(query, full_names(query, session.catalog, session.database))
    try:
        views.create_view(session.workspace, view, named, _text(statement.comment))
    except AlreadyExistsError:
        if not statement.if_not_exists:
            raise
        return StatementResult.of(ObjectChange(str(view), "exists"))
    return StatementResult.of(ObjectChange(str(view), "created"))


def drop_view(session: SqlSession, _: Script, statement: DropView) -> StatementResult:
    """``DROP VIEW``."""
    name = views.drop_view(session.workspace, str(session.table(statement.name)), ignore_if_not_exists=statement.if_exists)
    return StatementResult.of(ObjectChange(name, "dropped"))


def create_function(session: SqlSession, _: Script, statement: CreateFunction) -> StatementResult:
    """``CREATE FUNCTION``."""
    name = str(session.table(statement.name))
    function = CatalogFunction(statement.implementation.value, statement.language, _pairs(statement.options))
    try:
        functions.create_function(session.workspace, name, function)
    except AlreadyExistsError:
        if not statement.if_not_exists:
            raise
        return StatementResult.of(ObjectChange(name, "exists"))
    return StatementResult.of(ObjectChange(name, "created"))


def drop_function(session: SqlSession, _: Script, statement: DropFunction) -> StatementResult:
    """``DROP FUNCTION``."""
    name = str(session.table(statement.name))
    functions.drop_function(session.workspace, name, ignore_if_not_exists=statement.if_exists)
    return StatementResult.of(ObjectChange(name, "dropped"))


def _text(piece: Piece | None) -> str | None:
    return piece.value if piece else None


def _pairs(options: PairList | None) -> dict[str, str]:
    return options.as_dict() if options else {}
