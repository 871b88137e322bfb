"""From files to declared entries, one by one, so that a mistake in one hides no other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.declarations.base import Declaration, did_you_mean
from airflow_dynamic_tables.definitions.declarations.file import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.declarations.view import ViewDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, QueryText
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.resolving import Analyse, Resolver
from airflow_dynamic_tables.definitions.validating import validate
from airflow_dynamic_tables.yaml_files import Document, Location, parse_document, read_text

_SECTIONS: dict[str, type[SourceDeclaration | ViewDeclaration | TableDeclaration]] = {
    "sources": SourceDeclaration,
    "views": ViewDeclaration,
    "dynamic_tables": TableDeclaration,
}
_KEYS = ("defaults", *_SECTIONS)
_NAME = re.compile(r"\bname:\s*[\"']?([^\s\"',}#]+)")


@dataclass(slots=True)
class _Reader:
    """Collects entries and mistakes of all files, the query files that were read, and names that broken parts declare."""

    root: Path
    fallback: tuple[str, str]
    entries: list[Entry] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    query_files: list[Path] = field(default_factory=list)
    missing_names: set[str] = field(default_factory=set)

    def read_file(self, path: Path) -> None:
        text, mistakes = read_text(path)
        self.mistakes += mistakes
        if text is None:
            return
        document, mistakes = parse_document(path, text, "'dynamic_tables' or 'sources'")
        self.mistakes += mistakes
        if document is None:
            self.missing_names |= {name.strip("`").rpartition(".")[2].lower() for name in _NAME.findall(text)}
        elif not isinstance(document.data, dict):
            self.mistakes.append(document.mistake((), f"a definitions file is a mapping with the keys {', '.join(_KEYS)}"))
        else:
            self._read_document(document, document.data)

    def _read_document(self, document: Document, data: Mapping[str, Any]) -> None:
        for key in data:
            if key not in _KEYS:
                message = f"unknown key {key!r}{did_you_mean(key, _KEYS) or '; legal are ' + ', '.join(_KEYS)}"
                self.mistakes.append(document.key_mistake((key,), message))
        defaults, mistakes = validate(DefaultsDeclaration, data.get("defaults", {}), document, ("defaults",))
        self.mistakes += mistakes
        for section, model in _SECTIONS.items():
            items = data.get(section, [])
            if not isinstance(items, list):
                self.mistakes.append(document.mistake((section,), f"{section!r} must be a list; start each entry with '- name:'"))
                continue
            for number, item in enumerate(items):
                self._read_entry(document, (section, number), model, item, defaults or DefaultsDeclaration())

    def _read_entry(
        self,
        document: Document,
        location: Location,
        model: type[SourceDeclaration | ViewDeclaration | TableDeclaration],
        item: object,
        defaults: DefaultsDeclaration,
    ) -> None:
        declaration, mistakes = validate(model, item, document, location)
        self.mistakes += mistakes
        scope = (defaults.catalog or self.fallback[0], defaults.database or self.fallback[1])
        name = item.get("name") if isinstance(item, dict) else None
        try:
            identifier = (
                TableIdentifier.parse(name, catalog=scope[0], database=scope[1]).checked()
                if isinstance(name, str) and name
                else None
            )
        except ValueError as error:
            self.mistakes.append(document.mistake((*location, "name"), str(error)))
            return
        if identifier is None:
            return
        if declaration is None:
            self.missing_names.add(identifier.table.lower())
            return
        query, query_mistakes = self._query(document, location, declaration)
        self.mistakes += query_mistakes
        sound = not mistakes and not query_mistakes
        dropped = frozenset(_dropped(item, declaration) | _dropped(document.data.get("defaults"), defaults))
        self.entries.append(Entry(identifier, declaration, defaults, scope, document, location, query, sound, dropped))

    def _query(self, document: Document, location: Location, declaration: Declaration) -> tuple[QueryText | None, list[Mistake]]:
        if isinstance(declaration, SourceDeclaration):
            return None, []
        if isinstance(declaration, ViewDeclaration):
            return QueryText(declaration.query, document, (*location, "query")), []
        if isinstance(declaration, TableDeclaration) and declaration.query is not None:
            return QueryText(declaration.query, document, (*location, "query")), []
        return self._query_file(document, (*location, "query_file"), str(getattr(declaration, "query_file", "")))

    def _query_file(self, document: Document, location: Location, name: str) -> tuple[QueryText | None, list[Mistake]]:
        folder = self.root if self.root.is_dir() else document.path.parent
        file = document.path.parent / name
        if not file.resolve().is_relative_to(folder.resolve()):
            return None, [document.mistake(location, f"{name!r} is outside of the definitions folder; move it there")]
        if not file.is_file():
            return None, [document.mistake(location, f"there is no file {name!r} beside this one")]
        self.query_files.append(file)
        text, mistakes = read_text(file)
        return (None, mistakes) if text is None else (QueryText(text, document, location, file), [])


def _dropped(data: object, declaration: Declaration) -> set[str]:
    """The keys that were left out because they are wrong."""
    kept = {field.alias or name for name, field in type(declaration).model_fields.items() if name in declaration.model_fields_set}
    return set(data) - kept if isinstance(data, dict) else set()


def read(
    path: Path, files: Iterable[Path], fallback: tuple[str, str], analyse: Analyse
) -> tuple[tuple[Definitions, tuple[Mistake, ...]], list[Path]]:
    """Read all files: what is fine, all mistakes in order, and the query files that were read too."""
    reader = _Reader(path, fallback)
    for file in files:
        if not file.exists():
            reader.mistakes.append(Mistake(file, 1, 1, "there is no such file or folder"))
        else:
            reader.read_file(file)
    resolver = Resolver(reader.entries, analyse, frozenset(reader.missing_names))
    definitions = resolver.resolve()
    # A set, because what an anchor names is read, and found wrong, once for every alias.
    mistakes = tuple(sorted({*reader.mistakes, *resolver.mistakes}))
    return (definitions, mistakes), reader.query_files
