"""Declarations in files of statements: written, changed and taken out on behalf of whoever says a statement.

The folder of the definitions says what is declared, and nothing else does. A change is checked with the whole project before it
is written, and a mistake that was there already is in nobody's way.
"""

from __future__ import annotations

import codecs
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote as percent_quote

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX, CreateDynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, DefinitionError, DynamicTableError
from airflow_dynamic_tables.services.deployments.files import FileChange, only_writer, read, remove_if_unused, write
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.yaml_files.texts import line_and_column

log = logging.getLogger(__name__)

_LONGEST = 200
"""Characters of the name of a file before its suffix: file systems take 255 bytes."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration as it stands in a file of statements, and all of that file."""

    path: Path
    content: bytes
    text: str
    statement: CreateDynamicTable

    def changed_to(self, text: str) -> FileChange:
        """What makes the file say this instead; a file in which no statement is left is removed."""
        left = parse_script(text, self.path)
        return FileChange(self.path, self.content, _encoded(text, self.content) if left.statements or left.mistakes else None)


def declaration_of(table: DynamicTable) -> Declaration:
    """The statement that declares a table.

    :raises ConfigurationError: when it is declared in YAML.
    :raises ConflictError: when the file changed since it was read.
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
            return Declaration(table.path, content or b"", text, statement)
    raise ConflictError(f"Somebody else changed {table.path} meanwhile; nothing was done. Look at it and try again.")


def new_declaration(project: Project, identifier: TableIdentifier, statement: str) -> FileChange:
    """What declares one more table, in a file of its own.

    :param statement: the statement, without a semicolon.
    :raises ConfigurationError: when the definitions are a single file.
    """
    path = (project.path if project.is_empty else _folder(project)) / file_name(identifier)
    before = read(path)
    text = decoded(before or b"", path)
    if text and not text.endswith("\n"):
        text += "\n"
    return FileChange(path, before, _encoded(f"{text}{statement};\n", before or b""))


def file_name(identifier: TableIdentifier) -> str:
    """The name of the file in which a statement declares a table: ``lake.sales.orders.sql``; no other table has it."""
    parts = (identifier.catalog, identifier.database, identifier.table)
    name = ".".join(percent_quote(part, safe="").replace(".", "%2E") for part in parts)
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}_{sha256(str(identifier).encode()).hexdigest()[:16]}"
    return name + SQL_SUFFIX


@contextmanager
def declared(project: Project, change: FileChange) -> Iterator[Definitions]:
    """Write a change of the definitions, and give what they mean now; while the body runs, no other statement changes them.

    What the body raises takes the change back. A process that dies before the file was written has done nothing; one that dies
    later leaves a declaration that is not carried out yet, as if somebody had written the file by hand.

    :raises DefinitionError: with the mistakes that the definitions would have besides those that they have.
    :raises ConflictError: when somebody else changed the file meanwhile, or keeps writing.
    :raises ConfigurationError: when it cannot be written.
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
    """Make the folder of a new project; it is removed again when the body raises and nothing else is in it.

    :raises ConfigurationError: when it cannot be made.
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
    """Take out of a file what was said for a moment only; where that is not possible, it stays and harms nobody."""
    try:
        with only_writer(_folder(project)):
            write(change)
    except DynamicTableError as error:
        log.warning("%s says more than it needs to: %s", change.path, error)


def checked(project: Project, change: FileChange) -> Definitions:
    """What the definitions would mean with a change; nothing is written.

    :raises DefinitionError: as of :func:`declared`.
    """
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
    """What tells two mistakes apart; in the file that changes, lines move."""
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
    return is_there and name[-len(statement.name.parts) :] == statement.name.parts  # several may stand in one line


def decoded(content: bytes, path: Path) -> str:
    """The text of a file of definitions: UTF-8, lines that end as the offsets of statements count them.

    :raises ConfigurationError: when it is no text.
    """
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no UTF-8 text; mend it, or remove it.") from error


def _encoded(text: str, like: bytes) -> bytes:
    """The text as the file had it: its mark at the beginning, its line ends."""
    mark = codecs.BOM_UTF8 if like.startswith(codecs.BOM_UTF8) else b""
    return mark + (text.replace("\n", "\r\n") if b"\r\n" in like else text).encode()
