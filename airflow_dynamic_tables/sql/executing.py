"""Execution of statements in order, dispatched by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.definitions.statements import values
from airflow_dynamic_tables.definitions.statements.parsing import CreateTableAs, Script, parse_script
from airflow_dynamic_tables.definitions.statements.values import Statement
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.sql import catalogs, declarations, lifecycle, reading
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult
from airflow_dynamic_tables.yaml_files.documents import line_and_column, text_of

BY_KIND: dict[type[Statement], Callable[[SqlSession, Script, Any], StatementResult]] = {
    values.CreateDynamicTable: declarations.create_table,
    CreateTableAs: lifecycle.create_table_as,
    values.SetFreshness: declarations.alter_declaration,
    values.SetRefreshMode: declarations.alter_declaration,
    values.SetOptions: declarations.alter_declaration,
    values.ResetOptions: declarations.alter_declaration,
    values.AlterQuery: declarations.alter_declaration,
    values.RenameTo: declarations.rename_table,
    values.DropDynamicTable: declarations.drop_table,
    values.Suspend: lifecycle.suspend_table,
    values.Resume: lifecycle.resume_table,
    values.RefreshTable: lifecycle.refresh_table,
    values.Show: reading.show,
    values.ShowCreate: reading.show_create,
    values.Describe: reading.describe,
    values.Explain: reading.explain,
    values.Query: reading.select,
    values.Use: catalogs.use,
    values.CreateDatabase: catalogs.create_database,
    values.DropDatabase: catalogs.drop_database,
    values.CreateView: catalogs.create_view,
    values.DropView: catalogs.drop_view,
    values.CreateFunction: catalogs.create_function,
    values.DropFunction: catalogs.drop_function,
}


@dataclass(frozen=True, slots=True)
class Done:
    """An executed statement: its first line, counted from 1, its text without secrets, and its result."""

    line: int
    statement: str
    answer: StatementResult


def read_script(text: str, path: Path) -> Script:
    """Parse the statements of a text.

    :param path: the name of the text in messages.
    :raises DefinitionError: with all syntax errors; nothing is executed then.
    """
    readable, unreadable = text_of(path, text.encode(errors="surrogatepass"))
    if readable is None:
        raise DefinitionError(tuple(unreadable))
    script = parse_script(readable, path)
    if script.mistakes:
        raise DefinitionError(script.mistakes)
    return script


def execute(session: SqlSession, script: Script) -> Iterator[Done]:
    """Execute the statements of a script in order, each when the iterator is advanced.

    :raises DynamicTableError: the error of the first statement that fails; the statements before it remain executed.
    """
    for statement in script.statements:
        answer = BY_KIND[type(statement)](session, script, statement)
        line, _ = line_and_column(script.text, statement.start)
        yield Done(line, without_secrets(script.text[statement.start : statement.end]), answer)
