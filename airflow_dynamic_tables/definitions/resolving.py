"""Entries of all files against each other: names in full, views expanded, and what only shows when all is known."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.building import build_source, build_table
from airflow_dynamic_tables.definitions.declarations.base import did_you_mean
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.declarations.view import ViewDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, Expansion, QueryText
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, Reference, Target
from airflow_dynamic_tables.definitions.rules import table_mistakes

Analyse = Callable[[str], Analysis]

# Looking for a name that looks alike compares with every name there is.
_MAX_SUGGESTIONS = 20


@dataclass(slots=True)
class Resolver:
    """Resolves all entries of a definitions folder against each other and collects mistakes."""

    entries: list[Entry]
    analyse: Analyse
    missing_names: frozenset[str] = frozenset()
    mistakes: list[Mistake] = field(default_factory=list)
    _known: dict[TableIdentifier, Entry] = field(default_factory=dict)
    _folded: dict[tuple[str, ...], list[TableIdentifier]] = field(default_factory=dict)
    _views: dict[TableIdentifier, Expansion | None] = field(default_factory=dict)
    _suggestions: int = 0

    def resolve(self) -> Definitions:
        """Everything that has no mistake."""
        self._register()
        sources: dict[TableIdentifier, Source] = {}
        tables: dict[TableIdentifier, DynamicTable] = {}
        expansions: dict[TableIdentifier, Expansion] = {}
        for identifier, entry in self._known.items():
            if isinstance(entry.declaration, SourceDeclaration):
                if entry.sound:
                    sources[identifier] = build_source(entry, entry.declaration)
            elif isinstance(entry.declaration, TableDeclaration):
                expansion = self._expand(entry)
                mistakes = list(table_mistakes(entry, entry.declaration, expansion))
                self.mistakes += mistakes
                if expansion is not None:
                    expansions[identifier] = expansion
                    if entry.sound and not mistakes:
                        tables[identifier] = build_table(entry, entry.declaration, expansion)
            else:
                self._view(identifier, ())
        for identifier in self._cycles(expansions):
            tables.pop(identifier, None)
        return Definitions(tables, sources)

    def _register(self) -> None:
        for entry in self.entries:
            first = self._known.get(entry.identifier)
            if first is None:
                self._known[entry.identifier] = entry
                self._folded.setdefault(_fold(entry.identifier), []).append(entry.identifier)
            else:
                where = f"{first.document.path}:{first.document.line(first.location)}"
                self.mistakes.append(entry.mistake("name", f"{entry.identifier} is already declared in {where}"))

    def _expand(self, entry: Entry, trail: tuple[TableIdentifier, ...] = ()) -> Expansion | None:
        """The query of a table or view with every name in full; ``None``, and mistakes, when that cannot be."""
        if entry.query is None:
            return None
        analysis = self.analyse(entry.query.text)
        self.mistakes += [entry.query.mistake(problem.offset, problem.message) for problem in analysis.problems]
        targets: list[Target] = []
        origins: dict[TableIdentifier, Reference] = {}
        for reference in analysis.references:
            resolved = self._target(entry, entry.query, reference, trail)
            if resolved is not None:
                target, identifiers = resolved
                targets.append(target)
                for identifier in identifiers:
                    origins.setdefault(identifier, reference)
        if analysis.problems or len(targets) < len(analysis.references):
            return None
        if unclear := unclear_names(analysis, targets):
            self.mistakes += [entry.query.mistake(problem.offset, problem.message) for problem in unclear]
            return None
        return Expansion(expand(analysis, targets).strip(), analysis, origins)

    def _target(
        self, entry: Entry, query: QueryText, reference: Reference, trail: tuple[TableIdentifier, ...]
    ) -> tuple[Target, Iterable[TableIdentifier]] | None:
        """What takes the place of a reference, and the tables that are read by it."""
        names = tuple(part.text for part in reference.parts)
        offset = reference.parts[0].start
        if len(names) > 3:
            self.mistakes.append(query.mistake(offset, f"{'.'.join(names)!r} has more than three parts: catalog.database.table"))
            return None
        wanted = TableIdentifier(*entry.scope[: 3 - len(names)], *names)
        identifier = self._find(wanted)
        if identifier is None:
            if wanted.table.lower() in self.missing_names:
                return Target(wanted, wanted.sql), (wanted,)
            self.mistakes.append(query.mistake(offset, self._unknown(names, entry.scope)))
            return None
        if not isinstance(self._known[identifier].declaration, ViewDeclaration):
            return Target(identifier, identifier.sql), (identifier,)
        if identifier in trail:
            path = " -> ".join(map(str, (*trail[trail.index(identifier) :], identifier)))
            self.mistakes.append(query.mistake(offset, f"views read each other in a circle: {path}"))
            return None
        view = self._view(identifier, trail)
        if view is None:
            if not trail:
                self.mistakes.append(query.mistake(offset, f"view {identifier} cannot be expanded; see its own mistakes"))
            return None
        return Target(identifier, f"(\n{view.query}\n)"), view.origins

    def _view(self, identifier: TableIdentifier, trail: tuple[TableIdentifier, ...]) -> Expansion | None:
        if identifier not in self._views:
            entry = self._known[identifier]
            expansion = self._expand(entry, (*trail, identifier))
            self._views[identifier] = expansion if entry.sound else None
        return self._views[identifier]

    def _find(self, wanted: TableIdentifier) -> TableIdentifier | None:
        """The declared table of that name; like Spark, by another case of letters when only one fits."""
        if wanted in self._known:
            return wanted
        alike = self._folded.get(_fold(wanted), [])
        return alike[0] if len(alike) == 1 else None

    def _unknown(self, names: tuple[str, ...], scope: tuple[str, str]) -> str:
        written = ".".join(names)
        hint = ""
        if self._suggestions < _MAX_SUGGESTIONS:
            self._suggestions += 1
            hint = did_you_mean(written, [_relative(known, scope, len(names)) for known in self._known])
        return f"unknown table {written!r}{hint or '; declare it under sources, views or dynamic_tables'}"

    def _cycles(self, expansions: Mapping[TableIdentifier, Expansion]) -> Iterator[TableIdentifier]:
        """The tables that depend on themselves; every circle is a mistake at its first table."""
        reads = {
            identifier: {upstream for upstream in expansion.origins if upstream in expansions}
            for identifier, expansion in expansions.items()
        }
        while circle := _circle(reads):
            yield from circle
            first = min(circle, key=list(expansions).index)
            start = circle.index(first)
            path = (*circle[start:], *circle[:start], first)
            for reader, read in pairwise(path):
                reads[reader].discard(read)
            query = self._known[first].query
            if query is not None:
                offset = expansions[first].origins[path[1]].parts[0].start
                way = " -> ".join(map(str, path))
                what = "a table cannot read itself" if len(circle) == 1 else "tables read each other in a circle"
                self.mistakes.append(query.mistake(offset, f"{what}: {way}"))


def _circle(reads: Mapping[TableIdentifier, set[TableIdentifier]]) -> list[TableIdentifier]:
    """One circle of tables, each reading the next one; empty when there is none."""
    try:
        graphlib.TopologicalSorter(reads).prepare()
    except graphlib.CycleError as error:
        # graphlib lists a table after the one it reads, and the first one again at the end.
        return list(reversed(error.args[1][1:]))
    return []


def _fold(identifier: TableIdentifier) -> tuple[str, ...]:
    return identifier.catalog.lower(), identifier.database.lower(), identifier.table.lower()


def _relative(identifier: TableIdentifier, scope: tuple[str, str], least: int) -> str:
    """The shortest name, of at least that many parts, that means the table in a file with those defaults."""
    if least <= 1 and (identifier.catalog, identifier.database) == scope:
        return identifier.table
    return str(identifier.path) if least <= 2 and identifier.catalog == scope[0] else str(identifier)
