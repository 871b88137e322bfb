"""Statements that change declarations: CREATE, ALTER, RENAME and DROP of dynamic tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import offset_before
from airflow_dynamic_tables.definitions.statements.documents import Edit, altered, edited, renamed, without
from airflow_dynamic_tables.definitions.statements.parsing import Script
from airflow_dynamic_tables.definitions.statements.values import (
    SQL_SUFFIX,
    AlterDynamicTable,
    AlterQuery,
    CreateDynamicTable,
    DropDynamicTable,
    Piece,
    RenameTo,
    Statement,
)
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DefinitionError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.catalogs import ObjectChange
from airflow_dynamic_tables.services.deployments.declaring import declaration_of, declared, decoded, new_declaration, tidied
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.files import FileChange
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.lifecycle import dropping
from airflow_dynamic_tables.services.lifecycle.registration import Renamed, register, rename
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult, full_names


def create_table(session: SqlSession, script: Script, statement: CreateDynamicTable) -> StatementResult:
    """``CREATE [OR ALTER] DYNAMIC TABLE``: declared in a file, then registered in its catalog.

    :raises TableAlreadyExistsError: if the name is taken.
    """
    identifier = session.table(statement.name)
    known = session.project.load()[0].tables.get(identifier)
    exists = known is not None or _is_deployed(session, identifier)
    if exists and statement.if_not_exists:
        return StatementResult.of(ObjectChange(str(identifier), "exists"))
    if exists and not statement.or_alter:
        where = f"it is declared at {known.path}:{known.line}" if known else "its catalog has it"
        raise TableAlreadyExistsError(f"{identifier} exists: {where}. CREATE OR ALTER makes it what the statement says.")
    draft = declaration_draft(session, script, statement, known)
    is_first = session.project.is_empty
    with draft.told(), declared(session.project, draft.change) as definitions:
        answer = _registered(session, definitions, identifier)
    note = f"Created the folder {session.project.path}, which holds the definitions." if is_first else None
    return replace(answer, note=note)


def alter_declaration(session: SqlSession, script: Script, statement: AlterDynamicTable) -> StatementResult:
    """``ALTER DYNAMIC TABLE … SET … | RESET … | AS …``: changes the declaration, then the registered table.

    :raises SchemaEvolutionError: if the table would have to be rebuilt.
    """
    identifier = session.table(statement.name)
    change = altered_declaration(session, script, statement)
    with told_at(script, statement), declared(session.project, change) as definitions:
        return _registered(session, definitions, identifier)


def altered_declaration(session: SqlSession, script: Script, statement: AlterDynamicTable) -> FileChange:
    """Return the change that an ALTER of a declaration makes to its file.

    :raises ConfigurationError: if the table is declared in YAML.
    """
    declaration = declaration_of(declared_table(session, session.table(statement.name)))
    if not isinstance(statement, AlterQuery):
        return declaration.changed_to(altered(declaration.text, declaration.statement, statement, script.text))
    query = script.text[statement.query.start : statement.query.end]
    text = edited(query, full_names(query, session.catalog, session.database))
    named = replace(statement, query=Piece(text, 0, len(text)))
    return declaration.changed_to(altered(declaration.text, declaration.statement, named, text))


def rename_table(session: SqlSession, script: Script, statement: RenameTo) -> StatementResult:
    """``ALTER DYNAMIC TABLE … RENAME TO``: the declaration, rows, versions and history are renamed; the file keeps its name.

    Until the catalog has the new name, the declaration contains the former one, so that after a kill the next refresh renames it.
    """
    old = session.table(statement.name)
    new = TableIdentifier.completed(statement.new_name.parts, old.catalog, old.database)
    declaration = declaration_of(declared_table(session, old))
    if new in session.project.load()[0].tables or _is_deployed(session, new):
        raise TableAlreadyExistsError(f"{new} exists; choose another name.")
    plain = declaration.changed_to(renamed(declaration.text, declaration.statement, new))
    is_there = _is_deployed(session, old)
    if is_there and (old.catalog, old.database) != (new.catalog, new.database):
        raise UnsupportedError(f"{old} cannot become {new}: a table is renamed within its database.")
    former = declaration.changed_to(renamed(declaration.text, declaration.statement, new, old.table)) if is_there else plain
    with told_at(script, statement), declared(session.project, former) as definitions:
        if is_there:
            rename(session.workspace, old, new)
        register(session.workspace, sound_table(definitions, new))
    tidied(session.project, FileChange(plain.path, former.after, plain.after))
    return StatementResult.of(Renamed(old, new))


def drop_table(session: SqlSession, script: Script, statement: DropDynamicTable) -> StatementResult:
    """``DROP DYNAMIC TABLE``: removed from its file of statements, then dropped from its catalog.

    :raises TableNotFoundError: if it does not exist.
    """
    identifier = session.table(statement.name)
    defined, mistakes = session.project.load()
    known = defined.tables.get(identifier)
    is_there = _is_deployed(session, identifier)
    if known is None and not is_there:
        if statement.if_exists and not mistakes:
            return _dropped(dropping.Dropped(identifier, dropped=False))
        raise unknown(identifier, mistakes)
    if known is None or known.path.suffix != SQL_SUFFIX:
        dropped = dropping.drop(session.workspace, identifier, purge=statement.purge)
        stays = f"It is declared at {known.path}:{known.line}, so its next refresh will recreate it." if known else None
        return _dropped(dropped, stays)
    declaration = declaration_of(known)
    change = declaration.changed_to(without(declaration.text, declaration.statement))
    with told_at(script, statement), declared(session.project, change):
        if not is_there:
            return _dropped(dropping.Dropped(identifier))
        return _dropped(dropping.drop(session.workspace, identifier, purge=statement.purge))


def _dropped(dropped: dropping.Dropped, note: str | None = None) -> StatementResult:
    return StatementResult.of(dropped, "identifier", "dropped", "location", note=note)


def declared_table(session: SqlSession, identifier: TableIdentifier) -> DynamicTable:
    """Return the declared table with that name.

    :raises TableNotFoundError: if it is not declared.
    """
    defined, mistakes = session.project.load()
    table = defined.tables.get(identifier)
    if table is not None:
        return table
    if not mistakes and _is_deployed(session, identifier):
        raise TableNotFoundError(
            f"{identifier} is not declared any more, only its catalog has it: CREATE OR ALTER DYNAMIC TABLE declares it again."
        )
    raise unknown(identifier, mistakes)


def unknown(identifier: TableIdentifier, mistakes: Sequence[Mistake]) -> TableNotFoundError:
    """Return the error for a table missing in the valid definitions. With mistakes, it is unknown whether it is declared."""
    if not mistakes:
        return TableNotFoundError(f"There is no dynamic table {identifier}.")
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return TableNotFoundError(
        f"The definitions have no {identifier} that is sound; look at their mistakes first: {mistakes[0]}{more}"
    )


def _is_deployed(session: SqlSession, identifier: TableIdentifier) -> bool:
    catalog = session.workspace.readable(identifier.catalog)
    try:
        entry = catalog.get_table(identifier.path)
    except TableNotFoundError:
        return False
    if not isinstance(entry, CatalogDynamicTable):
        raise TableAlreadyExistsError(f"{identifier} is there and is no dynamic table; choose another name.")
    return True


@dataclass(frozen=True, slots=True)
class _Draft:
    """A declaring statement to be written into a file: the change, its offset in the file, and its edits.

    In the file all names are full; ``edits`` have offsets in the original statement.
    """

    script: Script
    statement: CreateDynamicTable
    change: FileChange
    begins: int
    edits: tuple[Edit, ...]

    @contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        except DefinitionError as error:
            raise DefinitionError(tuple(map(self._as_said, error.mistakes))) from error

    def _as_said(self, mistake: object) -> object:
        if not isinstance(mistake, Mistake) or mistake.path != self.change.path:
            return mistake
        text = decoded(self.change.after or b"", self.change.path)
        offset = sum(map(len, text.splitlines(keepends=True)[: mistake.line - 1])) + mistake.column - 1
        within = offset_before(self.edits, offset - self.begins)
        if not 0 <= within <= self.statement.end - self.statement.start:
            return mistake
        return self.script.mistake(self.statement.start + within, mistake.message)


def declaration_draft(session: SqlSession, script: Script, statement: CreateDynamicTable, known: DynamicTable | None) -> _Draft:
    """Return the draft of a declaring statement.

    :param known: the declared table with that name, if any.
    :raises ConfigurationError: if that is declared in YAML.
    """
    edits = tuple(_edits(session, script, statement))
    text = edited(script.text[statement.start : statement.end], edits)
    if known is None:
        change = new_declaration(session.project, session.table(statement.name), text)
        return _Draft(script, statement, change, len(decoded(change.after or b"", change.path)) - len(text) - len(";\n"), edits)
    declaration = declaration_of(known)
    before = declaration.statement
    change = declaration.changed_to(edited(declaration.text, [(before.start, before.end, text)]))
    return _Draft(script, statement, change, before.start, edits)


def _edits(session: SqlSession, script: Script, statement: CreateDynamicTable) -> Iterator[Edit]:
    begins = statement.start
    yield statement.name.start - begins, statement.name.end - begins, str(session.table(statement.name))
    query = statement.query
    for start, end, new in full_names(script.text[query.start : query.end], session.catalog, session.database):
        yield query.start - begins + start, query.start - begins + end, new


def sound_table(definitions: Definitions, identifier: TableIdentifier) -> DynamicTable:
    """Return a table that was just declared without mistakes.

    :raises ConfigurationError: if existing mistakes exclude it from the definitions.
    """
    table = definitions.tables.get(identifier)
    if table is None:
        raise ConfigurationError(
            f"{identifier} would be left out of the definitions, because of mistakes that they have already, in the defaults of "
            "its folder or in what it reads; dynamic-tables validate tells them."
        )
    return table


def _registered(session: SqlSession, definitions: Definitions, identifier: TableIdentifier) -> StatementResult:
    table = sound_table(definitions, identifier)
    (found,) = differences(session.workspace, definitions, [table])
    if found.change is Change.REBUILD:
        raise SchemaEvolutionError(
            f"{identifier} would have to be rebuilt: {found.reason} A statement does not do that: change {table.path} by hand, "
            "then say dynamic-tables apply --refresh."
        )
    return StatementResult.of(ObjectChange(str(identifier), register(session.workspace, table).value))


@contextmanager
def told_at(script: Script, statement: Statement) -> Iterator[None]:
    """Report mistakes that a statement would cause in the definitions at the place of the statement, too."""
    try:
        yield
    except DefinitionError as error:
        raise DefinitionError(tuple(script.mistake(statement.start, f"then {wrong}") for wrong in error.mistakes)) from error
