"""Reads files into declared entries, one by one, so that a mistake in one does not hide others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.limits import MISTAKES_PER_FILE
from airflow_dynamic_tables.core.mistakes import Mistake, Mistakes, did_you_mean, understood
from airflow_dynamic_tables.core.sinks import option_problems
from airflow_dynamic_tables.definitions.cache import Tree
from airflow_dynamic_tables.definitions.declarations.base import Declaration
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration, ViewDeclaration
from airflow_dynamic_tables.definitions.entries import Defaults, Entry, QueryText
from airflow_dynamic_tables.definitions.model import DEFAULTS_FILE, TESTS, Definitions, is_defaults_file
from airflow_dynamic_tables.definitions.obstacles import Obstacles
from airflow_dynamic_tables.definitions.queries.text import Analysis, refusals
from airflow_dynamic_tables.definitions.resolving import Analyse, Resolver
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.definitions.statements.documents import parse_statements
from airflow_dynamic_tables.definitions.statements.parsing import is_query
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX
from airflow_dynamic_tables.definitions.validating import misplaced, takes_variables, validate
from airflow_dynamic_tables.yaml_files.documents import Document, Location, read_text, text_of
from airflow_dynamic_tables.yaml_files.parsing import parse_document
from airflow_dynamic_tables.yaml_files.variables import Variables, may_mention

_SECTIONS: dict[str, type[SourceDeclaration | ViewDeclaration | TableDeclaration]] = {
    "sources": SourceDeclaration,
    "views": ViewDeclaration,
    "dynamic_tables": TableDeclaration,
}
_KEYS = ("defaults", *_SECTIONS, TESTS)
_Model = TypeVar("_Model", bound=Declaration)
NO_DRAFTS: Mapping[Path, bytes] = MappingProxyType({})
"""No drafts: the content of the files is read."""
_SQL_NAME = re.compile(r"\b(?:TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)", re.IGNORECASE)
_NAME = re.compile(r"\bname:\s*[\"']?([^\s\"',}#]+)")


@dataclass(slots=True)
class _Reader:
    """Collects entries and mistakes of all files, the query files that were read, and names that broken parts declare.

    ``folders`` has the defaults of each folder, for all files below it. ``drafts`` are read in place of the content of files.
    """

    tree: Tree
    variables: Variables
    drafts: Mapping[Path, bytes] = field(default_factory=dict)
    folders: dict[Path, Defaults] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    mistakes: Mistakes = field(default_factory=Mistakes)
    query_files: list[Path] = field(default_factory=list)
    queries: set[Path] = field(default_factory=set)
    missing_names: set[str] = field(default_factory=set)

    def read_defaults(self, path: Path) -> None:
        """Read the defaults of a folder; if they have a mistake, every table below it is invalid."""
        self.folders[path.parent] = Defaults(dropped=frozenset({"catalog"}), broken=path)
        if path.name != DEFAULTS_FILE:
            message = f"the defaults of a folder stand in {DEFAULTS_FILE!r}; rename this file, to something else if it has tables"
            self.mistakes.add([Mistake(path, 1, 1, message)])
            return
        document = self._document(path, "'defaults'")
        if document is None:
            return
        others = [key for key in document.data if key != "defaults"]
        for key in others[: MISTAKES_PER_FILE + 1]:
            where = "below 'defaults'" if key in DefaultsDeclaration.model_fields else "into another file"
            message = f"{key!r} cannot stand here: {DEFAULTS_FILE} has only the key 'defaults'; move it {where}"
            self.mistakes.add([document.key_mistake((key,), message)])
        if not others:
            self.folders[path.parent] = self._defaults(document)

    def read_file(self, path: Path) -> None:
        """Read sources, views and tables."""
        document = self._document(path, "'dynamic_tables' or 'sources'")
        if document is not None:
            self._read_document(document, document.data)

    def read_statements(self, path: Path) -> None:
        """Read CREATE statements; files with a query are read where an entry names them."""
        text, mistakes = self._text(path)
        # A folder may contain unrelated queries.
        if text is None or is_query(text):
            self.mistakes.add(mistakes)
            return
        document, mistakes = parse_statements(path, text)
        self.mistakes.add(mistakes)
        if mistakes:
            self.missing_names |= {name.strip("`").rpartition(".")[2].lower() for name in _SQL_NAME.findall(text)}
        if document is not None:
            self._read_document(document, document.data)

    def is_query_file(self, path: Path) -> bool:
        """Return whether an entry of another file reads its query from this one; then this is not a definitions file."""
        return path.resolve() in self.queries

    def _text(self, path: Path) -> tuple[str | None, list[Mistake]]:
        """Return the content of a file, or its draft."""
        draft = self.drafts.get(path)
        return read_text(path) if draft is None else text_of(path, draft)

    def _document(self, path: Path, content: str) -> Document | None:
        text, mistakes = self._text(path)
        self.mistakes.add(mistakes)
        if text is None:
            return None
        document, mistakes = parse_document(path, text, content)
        self.mistakes.add(mistakes)
        if document is None:
            self.missing_names |= {name.strip("`").rpartition(".")[2].lower() for name in _NAME.findall(text)}
        elif not isinstance(document.data, dict):
            self.mistakes.add([document.mistake((), f"a definitions file is a mapping with the keys {', '.join(_KEYS)}")])
            return None
        return document

    def _defaults(self, document: Document) -> Defaults:
        data = document.data.get("defaults", {})
        declared, mistakes = self._declared(DefaultsDeclaration, data, document, ("defaults",))
        for option, problem in option_problems(declared.options, None) if declared is not None else ():
            mistakes.append(document.key_mistake(("defaults", "options", option), problem))
        self.mistakes.add(mistakes)
        if declared is None:
            return Defaults(dropped=frozenset({"catalog"}), broken=document.path)
        return Defaults(declared, frozenset(_dropped(data, declared)), document.path if mistakes else None)

    def _read_document(self, document: Document, data: Mapping[str, Any]) -> None:
        unknown = [key for key in data if key not in _KEYS]
        for key in unknown[: MISTAKES_PER_FILE + 1]:
            message = f"unknown key {key!r}{did_you_mean(key, _KEYS) or '; legal are ' + ', '.join(_KEYS)}"
            self.mistakes.add([document.key_mistake((key,), message)])
        defaults = self._all_defaults(document)
        if defaults.broken not in (None, document.path) and data.get("dynamic_tables"):
            message = f"these tables are left out: their defaults in {defaults.broken} have mistakes"
            self.mistakes.add([document.key_mistake(("dynamic_tables",), message)])
        for section, model in _SECTIONS.items():
            items = data.get(section, [])
            if not isinstance(items, list):
                message = f"{section!r} must be a list; start each entry with '- name:'"
                self.mistakes.add([document.mistake((section,), message)])
                continue
            for number, item in enumerate(items):
                location = (section, number)
                with understood(self.mistakes, partial(document.mistake, location)):
                    self._read_entry(document, location, model, item, defaults)

    def _all_defaults(self, document: Document) -> Defaults:
        """Return the defaults of the entries of a file: its own, then those of its folders, the nearest first."""
        folders = (document.path.parent, *document.path.parent.parents)
        every = [self._defaults(document), *(self.folders[folder] for folder in folders if folder in self.folders)]
        return reduce(Defaults.below, every)

    def _read_entry(
        self,
        document: Document,
        location: Location,
        model: type[SourceDeclaration | ViewDeclaration | TableDeclaration],
        item: object,
        defaults: Defaults,
    ) -> None:
        declaration, mistakes = self._declared(model, item, document, location)
        self.mistakes.add(mistakes)
        said = defaults.declaration
        scope = (said.catalog or self.tree.conventions.scope[0], said.database or self.tree.conventions.scope[1])
        name = item.get("name") if isinstance(item, dict) else None
        try:
            identifier = (
                TableIdentifier.parse(name, catalog=scope[0], database=scope[1]).checked()
                if isinstance(name, str) and name
                else None
            )
        except ValueError as error:
            self.mistakes.add([document.mistake((*location, "name"), str(error))])
            return
        if identifier is None:
            return
        if declaration is None or not defaults.tell_names:
            self.missing_names.add(identifier.table.lower())
            return
        query, query_mistakes = self._query(document, location, declaration)
        self.mistakes.add(query_mistakes)
        sound = not mistakes and not query_mistakes
        if isinstance(declaration, TableDeclaration):
            sound = sound and defaults.broken is None
        dropped = defaults.dropped | _dropped(item, declaration)
        conventions = self.tree.conventions
        given = (self.tree.path, conventions.threshold, conventions.formats.get(identifier.catalog))
        self.entries.append(Entry(identifier, declaration, said, scope, document, location, query, sound, dropped, *given))

    def _declared(
        self, model: type[_Model], data: object, document: Document, location: Location
    ) -> tuple[_Model | None, list[Mistake]]:
        """As :func:`validate`, with environment variables replaced; keys with undefined variables are dropped."""
        room = self.mistakes.room(document.path)
        if not isinstance(data, Mapping) or not may_mention(document):
            return validate(model, data, document, location, room)
        values: dict[str, Any] = {}
        unclear: list[Mistake] = []
        for key, value in data.items():
            place = (*location, key)
            problems = [document.mistake(at, problem) for at, problem in misplaced(model, place, value)]
            if takes_variables(model, key):
                value, wrong = self.variables.substituted(document, place, value)
                problems += wrong
            unclear += problems[:room]
            if not problems:
                values[key] = value
        declared, mistakes = validate(model, values, document, location, room)
        if unclear:
            # Missing values caused by dropped keys are not reported again.
            start = document.mistake(location, "")
            mistakes = [mistake for mistake in mistakes if (mistake.line, mistake.column) != (start.line, start.column)]
        return declared, [*unclear, *mistakes]

    def _query(self, document: Document, location: Location, declaration: Declaration) -> tuple[QueryText | None, list[Mistake]]:
        if isinstance(declaration, SourceDeclaration):
            return None, []
        if isinstance(declaration, ViewDeclaration):
            return QueryText(declaration.query, document, (*location, "query")), []
        if isinstance(declaration, TableDeclaration) and declaration.query is not None:
            return QueryText(declaration.query, document, (*location, "query")), []
        return self._query_file(document, (*location, "query_file"), str(getattr(declaration, "query_file", "")))

    def _query_file(self, document: Document, location: Location, name: str) -> tuple[QueryText | None, list[Mistake]]:
        folder = self.tree.path if self.tree.path.is_dir() else document.path.parent
        file = document.path.parent / name
        try:
            if not file.resolve().is_relative_to(folder.resolve()):
                return None, [document.mistake(location, f"{name!r} is outside of the definitions folder; move it there")]
            if not file.is_file():
                return None, [document.mistake(location, f"there is no file {name!r} beside this one")]
        except (OSError, ValueError, RuntimeError) as error:  # too long, contains NUL, or a link to itself
            reason = getattr(error, "strerror", None) or error
            return None, [document.mistake(location, f"{name!r} can be no file: {reason}")]
        self.query_files.append(file)
        self.queries.add(file.resolve())
        text, mistakes = read_text(file)
        return (None, mistakes) if text is None else (QueryText(text, document, location, file), [])


def _dropped(data: object, declaration: Declaration) -> set[str]:
    """Return the keys that were dropped because they are invalid."""
    kept = {field.alias or name for name, field in type(declaration).model_fields.items() if name in declaration.model_fields_set}
    return set(data) - kept if isinstance(data, dict) else set()


def _reading_order(file: Path) -> int:
    """Sort key of files: defaults before other files, and query files before statements."""
    return 0 if is_defaults_file(file.name) else 2 if file.suffix == SQL_SUFFIX else 1


def read(
    tree: Tree,
    analyse: Analyse,
    variables: Variables,
    drafts: Mapping[Path, bytes] = NO_DRAFTS,
    columns: ReturnedColumns | None = None,
    obstacles: Obstacles | None = None,
) -> tuple[tuple[Definitions, tuple[Mistake, ...]], list[Path]]:
    """Read all files: return the valid definitions, all mistakes in order, and the query files that were read.

    :param variables: returns the values of ``${NAME}``, and records which were requested.
    :param drafts: replaces the content of those files of the tree.
    :param obstacles: collects what hides from which partitions of their sources the tables are made.
    """

    def analyse_allowed(query: str) -> Analysis:
        analysis = analyse(query)
        return replace(analysis, problems=(*analysis.problems, *refusals(analysis.needs, tree.conventions.allowed)))

    reader = _Reader(tree, variables, drafts)
    for file in sorted(tree.files, key=_reading_order):
        with understood(reader.mistakes, partial(Mistake, file, 1, 1)):
            if is_defaults_file(file.name):
                reader.read_defaults(file)
            elif file not in drafts and not os.path.lexists(file):
                reader.mistakes.add([Mistake(file, 1, 1, "there is no such file or folder")])
            elif file.suffix != SQL_SUFFIX:
                reader.read_file(file)
            elif not reader.is_query_file(file):
                reader.read_statements(file)
    missing, allowed = frozenset(reader.missing_names), tree.conventions.allowed
    resolver = Resolver(reader.entries, analyse_allowed, reader.mistakes, missing, allowed, columns, obstacles)
    definitions = resolver.resolve()
    return (definitions, reader.mistakes.in_order()), reader.query_files
