"""Statements carried out, one after the other, each by the function for its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.definitions.statements import values
from airflow_dynamic_tables.definitions.statements.one_off import CreateTableAs
from airflow_dynamic_tables.definitions.statements.parsing import Script, parse_script
from airflow_dynamic_tables.definitions.statements.values import Statement
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.sql import catalogs, creating, declarations, lifecycle, looking, reading
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult
from airflow_dynamic_tables.yaml_files.texts import line_and_column, text_of

BY_KIND: dict[type[Statement], Callable[[SqlSession, Script, Any], StatementResult]] = {
    values.CreateDynamicTable: declarations.create_table,
    CreateTableAs: creating.create_table_as,
    values.SetFreshness: declarations.alter_declaration,
    values.SetRefreshMode: declarations.alter_declaration,
    values.SetOptions: declarations.alter_declaration,
    values.ResetOptions: declarations.alter_declaration,
    values.AlterQuery: declarations.alter_declaration,
    values.RenameTo: declarations.rename_table,
    values.DropDynamicTable: declarations.drop_table,
    values.Suspend: lifecycle.suspend_table,
    values.Resume: lifecycle.resume_table,
    values.Refresh: lifecycle.refresh_table,
    values.Show: looking.show,
    values.ShowCreate: looking.show_create,
    values.Describe: looking.describe,
    values.Explain: looking.explain,
    values.Query: reading.select,
    values.Use: catalogs.use,
    values.CreateDatabase: catalogs.create_database,
    values.DropDatabase: catalogs.drop_database,
    values.CreateView: catalogs.create_view,
    values.DropView: catalogs.drop_view,
    values.CreateFunction: catalogs.create_function,
    values.DropFunction: catalogs.drop_function,
}
"""What carries out a statement of each kind."""


@dataclass(frozen=True, slots=True)
class Done:
    """A statement that was carried out: its first line, counted from 1, its text without secrets, and its answer."""

    line: int
    statement: str
    answer: StatementResult


def read_script(text: str, path: Path) -> Script:
    """The statements of a text.

    :param path: what the text is called in messages.
    :raises DefinitionError: with all mistakes of their grammar: then none is carried out.
    """
    readable, unreadable = text_of(path, text.encode(errors="surrogatepass"))
    if readable is None:
        raise DefinitionError(tuple(unreadable))
    script = parse_script(readable, path)
    if script.mistakes:
        raise DefinitionError(script.mistakes)
    return script


def execute(session: SqlSession, script: Script) -> Iterator[Done]:
    """Carry out the statements of a script in order, each when it is asked for.

    :raises DynamicTableError: of the first statement that fails; those before it stay done.
    """
    for statement in script.statements:
        answer = BY_KIND[type(statement)](session, script, statement)
        line, _ = line_and_column(script.text, statement.start)
        yield Done(line, without_secrets(script.text[statement.start : statement.end]), answer)
