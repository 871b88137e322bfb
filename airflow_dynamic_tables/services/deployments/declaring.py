"""Declarations of dynamic tables: definitions in catalogs, and statements in definition files."""

from __future__ import annotations

import codecs
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote as percent_quote

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import restored
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX, CreateDynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    DefinitionError,
    DynamicTableError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.deployments.files import FileChange, only_writer, read, remove_if_unused, write
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.yaml_files.documents import line_and_column


def deployed_tables(workspace: Workspace, catalogs: Iterable[str]) -> Iterator[tuple[TableIdentifier, CatalogDynamicTable]]:
    """Yield all dynamic tables of catalogs, sorted.

    :raises CatalogError: if a catalog is unavailable, because the result would be incomplete.
    """
    for name in sorted(catalogs):
        catalog = workspace.readable(name)
        for database in catalog.list_databases() if isinstance(catalog, ReadableWritableCatalog) else ():
            for table, entry in catalog.get_dynamic_tables(database).items():
                yield TableIdentifier(name, database, table), entry


def deployed_table(workspace: Workspace, identifier: TableIdentifier) -> DynamicTable:
    """Return the definition with which a table is deployed.

    :raises TableNotFoundError: if its catalog has no dynamic table with that name.
    :raises UnsupportedError: if its catalog does not contain the definition.
    """
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        raise TableNotFoundError(f"There is no dynamic table {identifier}.") from None
    if not isinstance(entry, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    return definition_of(identifier, entry)


def definition_of(identifier: TableIdentifier, entry: CatalogDynamicTable) -> DynamicTable:
    """Return the definition in a table's entry, with the current name of the table.

    :raises UnsupportedError: if there is none, or a later release wrote it.
    """
    if entry.definition is None:
        raise UnsupportedError(
            f"The catalog does not hold the definition of {identifier}: an early release registered it. Its next refresh, or "
            "dynamic-tables create, adds it."
        )
    return restored({**entry.definition, "name": str(identifier)})


log = logging.getLogger(__name__)

_LONGEST = 200
"""Maximum length of a file name without its suffix; file systems permit 255 bytes."""


@dataclass(frozen=True, slots=True)
class SqlDeclaration:
    """A declaration in a file of statements, and the content of that file."""

    path: Path
    content: bytes
    text: str
    statement: CreateDynamicTable

    def changed_to(self, text: str) -> FileChange:
        """Return the change of the file to a new text. A file without remaining statements is removed."""
        left = parse_script(text, self.path)
        return FileChange(self.path, self.content, _encoded(text, self.content) if left.statements or left.mistakes else None)


def declaration_of(table: DynamicTable) -> SqlDeclaration:
    """Return the statement that declares a table.

    :raises ConfigurationError: if it is declared in YAML.
    :raises ConflictError: if the file changed since it was read.
    """
    if table.path.suffix != SQL_SUFFIX:
        raise ConfigurationError(
            f"{table.identifier} is declared at {table.path}:{table.line}, not by a statement: change it there, then say "
            f"dynamic-tables apply {table.identifier}."
        )
    content = read(table.path)
    text = decoded(content or b"", table.path)
    for statement in parse_script(text, table.path).statements:
        if isinstance(statement, CreateDynamicTable) and _declares(statement, text, table):
            return SqlDeclaration(table.path, content or b"", text, statement)
    raise ConflictError(f"Another process changed {table.path} meanwhile; nothing was done. Look at it and try again.")


def new_declaration(project: Project, identifier: TableIdentifier, statement: str) -> FileChange:
    """Return the change that declares one more table, in its own file.

    :param statement: the statement, without a semicolon.
    :raises ConfigurationError: if the definitions are a single file.
    """
    path = (project.path if project.is_empty else _folder(project)) / file_name(identifier)
    before = read(path)
    text = decoded(before or b"", path)
    if text and not text.endswith("\n"):
        text += "\n"
    return FileChange(path, before, _encoded(f"{text}{statement};\n", before or b""))


def file_name(identifier: TableIdentifier) -> str:
    """Return the unique name of the file in which a statement declares a table, such as ``lake.sales.orders.sql``."""
    parts = (identifier.catalog, identifier.database, identifier.table)
    name = ".".join(percent_quote(part, safe="").replace(".", "%2E") for part in parts)
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}_{sha256(str(identifier).encode()).hexdigest()[:16]}"
    return name + SQL_SUFFIX


@contextmanager
def declared(project: Project, change: FileChange) -> Iterator[Definitions]:
    """Write a change of the definitions and yield the new definitions; no other statement changes them while the body runs.

    If the body raises, the change is reverted. If the process dies before the file is written, nothing has changed; if it dies
    later, the declaration remains but is not applied, as if the file had been edited by hand.

    :raises DefinitionError: with the mistakes that the change would add to the definitions.
    :raises ConflictError: if the file was changed meanwhile, or another writer holds the lock.
    :raises ConfigurationError: if the file cannot be written.
    """
    with _made(project), only_writer(_folder(project)):
        definitions = checked(project, change)
        write(change)
        try:
            yield definitions
        except BaseException:
            _take_back(change)
            raise


@contextmanager
def _made(project: Project) -> Iterator[None]:
    """Create the folder of a new project; remove it again if the body raises and it contains nothing else.

    :raises ConfigurationError: if it cannot be created.
    """
    missing = [folder for folder in (project.path, *project.path.parents) if not folder.exists()] if project.is_empty else []
    try:
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"The folder {project.path} of the definitions cannot be made: {error.strerror}.") from error
    try:
        yield
    except BaseException:
        if missing:
            remove_if_unused(missing)
        raise


def tidied(project: Project, change: FileChange) -> None:
    """Remove temporary parts of a declaration from a file. If this fails, they remain, which is harmless."""
    try:
        with only_writer(_folder(project)):
            write(change)
    except DynamicTableError as error:
        log.warning("%s says more than it needs to: %s", change.path, error)


def checked(project: Project, change: FileChange) -> Definitions:
    """Return the definitions as they would be after a change; nothing is written."""
    known = Counter(_subject(mistake, change.path) for mistake in project.load()[1])
    definitions, mistakes = project.load_draft({change.path: change.after})
    new: list[Mistake] = []
    for mistake in mistakes:
        subject = _subject(mistake, change.path)
        if known[subject] > 0:
            known[subject] -= 1
        else:
            new.append(mistake)
    if new:
        raise DefinitionError(tuple(new))
    return definitions


def _subject(mistake: Mistake, changed: Path) -> object:
    """Return the identity of a mistake; without its line in the changed file, because lines move there."""
    return (mistake.path, mistake.message) if mistake.path == changed else mistake


def _take_back(change: FileChange) -> None:
    try:
        write(change.reversed)
    except DynamicTableError as error:
        log.warning("%s stays as it was written, though what it declares was not carried out: %s", change.path, error)


def _folder(project: Project) -> Path:
    if not project.path.is_dir():
        raise ConfigurationError(
            f"{project.path} is no folder, and statements need one: each table that they declare gets a file in it. Name the "
            "folder with --definitions."
        )
    return project.path


def _declares(statement: CreateDynamicTable, text: str, table: DynamicTable) -> bool:
    is_there = line_and_column(text, statement.start)[0] == table.line
    name = (table.identifier.catalog, table.identifier.database, table.identifier.table)
    return is_there and name[-len(statement.name.parts) :] == statement.name.parts  # a line may contain several statements


def decoded(content: bytes, path: Path) -> str:
    """Decode a definition file: UTF-8, with line ends normalised as in the offsets of statements.

    :raises ConfigurationError: if it is not text.
    """
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no UTF-8 text; mend it, or remove it.") from error


def _encoded(text: str, like: bytes) -> bytes:
    mark = codecs.BOM_UTF8 if like.startswith(codecs.BOM_UTF8) else b""
    return mark + (text.replace("\n", "\r\n") if b"\r\n" in like else text).encode()
