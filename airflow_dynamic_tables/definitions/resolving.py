"""Resolves entries of all files against each other: full names, expanded views, and checks that need all entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, pairwise

from airflow_dynamic_tables.core.cycles import circle_in, without_circles
from airflow_dynamic_tables.core.identifiers import TableIdentifier, split_name
from airflow_dynamic_tables.core.limits import (
    CIRCLES,
    NAMES_COMPARED,
    NESTED_VIEWS,
    QUERY_CHARACTERS,
    TABLES_IN_QUERY,
    WRITTEN_OUT_CHARACTERS,
)
from airflow_dynamic_tables.core.mistakes import Mistakes, did_you_mean, understood
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.definitions.building import build_source, build_table
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration, ViewDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, Expansion, QueryText
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.obstacles import Obstacles, refusals_of, undivided
from airflow_dynamic_tables.definitions.queries.editing import edited, expansion, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, Reference, Target
from airflow_dynamic_tables.definitions.relationships import mistake_at, reference_mistakes, relationship_mistakes
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.definitions.table_rules import (
    dropped_name_mistakes,
    forbidden_mistakes,
    frozen_mistakes,
    group_mistakes,
    incremental_mistakes,
    renaming_mistakes,
    source_mistakes,
    table_mistakes,
    upstream_mistakes,
    waiting_mistakes,
)

Analyse = Callable[[str], Analysis]


_TOO_DEEP = f"views read views here, more than {NESTED_VIEWS} deep; make a dynamic table of one of them"

_TOO_LONG = f"the query has more than {QUERY_CHARACTERS:,} characters; make views or dynamic tables of parts of it"

_DEEPEST_SEARCH = 5 * NESTED_VIEWS
"""Maximum depth of recursion into views that are not expanded yet."""


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The replacement of a reference, the tables read through it, and the nesting depth of its views."""

    target: Target
    reads: Iterable[TableIdentifier]
    nested: int = 0


@dataclass(slots=True)
class Resolver:
    """Resolves all entries of a definitions folder against each other and collects mistakes."""

    entries: list[Entry]
    analyse: Analyse
    mistakes: Mistakes
    missing_names: frozenset[str] = frozenset()
    allowed: Allowed = EVERYTHING
    columns: ReturnedColumns | None = None
    obstacles: Obstacles | None = None
    _known: dict[TableIdentifier, Entry] = field(default_factory=dict)
    _folded: dict[tuple[str, ...], list[TableIdentifier]] = field(default_factory=dict)
    _views: dict[TableIdentifier, Expansion | None] = field(default_factory=dict)
    _compared: int = 0
    _written_out: int = 0

    def resolve(self) -> Definitions:
        """Return everything that has no mistake."""
        self._register()
        sources: dict[TableIdentifier, Source] = {}
        tables: dict[TableIdentifier, DynamicTable] = {}
        expansions: dict[TableIdentifier, Expansion] = {}
        for identifier, entry in self._known.items():
            with understood(self.mistakes, partial(entry.document.mistake, entry.location)):
                if isinstance(entry.declaration, SourceDeclaration):
                    mistakes = list(source_mistakes(entry, entry.declaration))
                    self.mistakes.add(mistakes)
                    if entry.sound and not mistakes:
                        sources[identifier] = build_source(entry, entry.declaration)
                elif isinstance(entry.declaration, TableDeclaration):
                    expansion = self._expand(entry)
                    if expansion is not None:
                        expansions[identifier] = expansion
                    table = self._table(entry, entry.declaration, expansion)
                    if table is not None:
                        tables[identifier] = table
                else:
                    self._view(identifier, ())
        for identifier in self._cycles(expansions, dict(tables)):
            tables.pop(identifier, None)
        of_several = (
            *group_mistakes(tables.values(), self._known),
            *renaming_mistakes(tables, self._known),
            *dropped_name_mistakes(tables, self._known),
        )
        for identifier, mistake in of_several:
            self.mistakes.add([mistake])
            tables.pop(identifier, None)
        definitions = Definitions(tables, sources)
        self._check_columns(definitions, expansions)
        if self.obstacles is not None:
            self.obstacles.collect(definitions, self._known, expansions)
        return self._without_refused(definitions, expansions)

    def _without_refused(self, definitions: Definitions, expansions: Mapping[TableIdentifier, Expansion]) -> Definitions:
        """Return the definitions without tables that contradict other definitions.

        Their refreshes must be by partition, or in several commits, and cannot be; or their rows cannot be looked for.
        """
        tables = dict(definitions.tables)
        for name, table in definitions.tables.items():
            found = list(relationship_mistakes(definitions, table, self._known[name], expansions))
            if table.mode is RefreshMode.INCREMENTAL_STRICT:
                found += refusals_of(definitions, table, self._known[name], expansions[name])
            if table.max_partitions_per_commit is not None:
                found += undivided(definitions, table, self._known[name], expansions[name])
            if found:
                self.mistakes.add(found)
                del tables[name]
        return replace(definitions, tables=tables)

    def _check_columns(self, definitions: Definitions, expansions: Mapping[TableIdentifier, Expansion]) -> None:
        """Report Spark's problems with the queries of valid tables. The tables are kept: the cause is what they read."""
        for identifier, problem in () if self.columns is None else self.columns.problems(definitions, expansions):
            query = self._known[identifier].query
            if query is not None and self.columns is not None:
                self.columns.refused[identifier] = query.mistake(problem.offset, problem.message)
                self.mistakes.add([self.columns.refused[identifier]])

    def _table(self, entry: Entry, declared: TableDeclaration, expansion: Expansion | None) -> DynamicTable | None:
        """Return the table, if neither it nor its query has a mistake."""
        most = max(self.mistakes.room(entry.document.path), 1)
        every = chain(table_mistakes(entry, declared, expansion), forbidden_mistakes(entry, declared, self.allowed))
        named = partial(self._named, entry.scope)
        read = [self._known[one] for one in (expansion.origins if expansion is not None else ()) if one in self._known]
        of_names = chain(
            upstream_mistakes(entry, declared, expansion, named, read),
            waiting_mistakes(entry, declared, named),
            reference_mistakes(entry, declared, named),
        )
        of_refreshes = chain(incremental_mistakes(entry, declared, read), frozen_mistakes(entry, declared, read))
        mistakes = list(islice(chain(every, of_names, of_refreshes), most))
        self.mistakes.add(mistakes)
        if expansion is None or not entry.sound or mistakes:
            return None
        return build_table(entry, declared, expansion, named)

    def _register(self) -> None:
        for entry in self.entries:
            first = self._known.get(entry.identifier)
            if first is None:
                self._known[entry.identifier] = entry
                self._folded.setdefault(_fold(entry.identifier), []).append(entry.identifier)
            else:
                where = f"{first.document.path}:{first.document.line(first.location)}"
                self.mistakes.add([entry.mistake("name", f"{entry.identifier} is already declared in {where}")])

    def _expand(self, entry: Entry, trail: tuple[TableIdentifier, ...] = ()) -> Expansion | None:
        """Return the query of a table or view with full names; ``None``, with recorded mistakes, if it cannot be expanded."""
        if entry.query is None:
            return None
        if len(entry.query.text) > QUERY_CHARACTERS:
            self.mistakes.add([entry.query.mistake(QUERY_CHARACTERS, _TOO_LONG)])
            return None
        analysis = self.analyse(entry.query.text)
        self.mistakes.add(entry.query.mistake(problem.offset, problem.message) for problem in analysis.problems)
        resolved = self._resolved(entry, entry.query, analysis, trail)
        if analysis.problems or len(resolved) < len(analysis.references):
            return None
        targets = [reference.target for reference in resolved]
        if unclear := unclear_names(analysis, targets):
            self.mistakes.add(entry.query.mistake(problem.offset, problem.message) for problem in unclear)
            return None
        origins: dict[TableIdentifier, Reference] = {}
        for reference, what in zip(analysis.references, resolved, strict=True):
            for identifier in what.reads:
                origins.setdefault(identifier, reference)
        edits = tuple(expansion(analysis, targets))
        query = edited(analysis.text, edits).strip()
        self._written_out += len(query)
        nested = max((what.nested for what in resolved), default=0)
        watermark = any(one not in self._known or self._known[one].may_have_watermark for one in origins)
        return Expansion(query, analysis, origins, edits, nested, watermark)

    def _resolved(
        self, entry: Entry, query: QueryText, analysis: Analysis, trail: tuple[TableIdentifier, ...]
    ) -> list[_Resolved]:
        """Return the replacement of each reference.

        Mistakes are recorded, and fewer replacements returned, when one is unknown or the query gets too long.
        """
        every: list[_Resolved] = []
        length = len(analysis.text)
        if len(analysis.references) > TABLES_IN_QUERY:
            offset = analysis.references[TABLES_IN_QUERY].parts[0].start
            message = f"the query names more than {TABLES_IN_QUERY:,} tables; make views or dynamic tables of parts of it"
            self.mistakes.add([query.mistake(offset, message)])
            return []
        for reference in analysis.references:
            resolved = self._target(entry, query, reference, trail)
            if resolved is not None:
                every.append(resolved)
                length += len(resolved.target.sql)
            elif self.mistakes.room(query.path) < 1:
                break
            if length > QUERY_CHARACTERS or self._written_out + length > WRITTEN_OUT_CHARACTERS:
                self.mistakes.add([query.mistake(reference.parts[0].start, _too_long(length))])
                return []
        return every

    def _target(
        self, entry: Entry, query: QueryText, reference: Reference, trail: tuple[TableIdentifier, ...]
    ) -> _Resolved | None:
        names = tuple(part.text for part in reference.parts)
        offset = reference.parts[0].start
        if len(names) > 3:
            self.mistakes.add([query.mistake(offset, f"{'.'.join(names)!r} has more than three parts: catalog.database.table")])
            return None
        wanted = TableIdentifier.completed(names, *entry.scope)
        identifier = self._find(wanted)
        if identifier is None:
            if wanted.table.lower() in self.missing_names:
                return _Resolved(Target(wanted, wanted.sql), (wanted,))
            self.mistakes.add([query.mistake(offset, self._unknown(names, entry.scope))])
            return None
        if not isinstance(self._known[identifier].declaration, ViewDeclaration):
            return _Resolved(Target(identifier, identifier.sql), (identifier,))
        if identifier in trail:
            path = " -> ".join(map(str, (*trail[trail.index(identifier) :], identifier)))
            self.mistakes.add([query.mistake(offset, f"views read each other in a circle: {path}")])
            return None
        if len(trail) > _DEEPEST_SEARCH:
            self.mistakes.add([query.mistake(offset, _TOO_DEEP)])
            return None
        view = self._view(identifier, trail)
        if view is None:
            if not trail:
                self.mistakes.add([query.mistake(offset, f"view {identifier} cannot be expanded; see its own mistakes")])
            return None
        if view.nested >= NESTED_VIEWS:
            self.mistakes.add([query.mistake(offset, _TOO_DEEP)])
            return None
        return _Resolved(Target(identifier, f"(\n{view.query}\n)"), view.origins, view.nested + 1)

    def _view(self, identifier: TableIdentifier, trail: tuple[TableIdentifier, ...]) -> Expansion | None:
        if identifier not in self._views:
            entry = self._known[identifier]
            expansion = self._expand(entry, (*trail, identifier))
            self._views[identifier] = expansion if entry.sound else None
        return self._views[identifier]

    def _find(self, wanted: TableIdentifier) -> TableIdentifier | None:
        """Return the declared table of a name; as in Spark, the case may differ if only one table matches."""
        if wanted in self._known:
            return wanted
        alike = self._folded.get(_fold(wanted), [])
        return alike[0] if len(alike) == 1 else None

    def _named(self, scope: tuple[str, str], name: str) -> tuple[TableIdentifier, Entry | None]:
        """Resolve a name outside of queries; the entry is ``None`` when a broken file declares it."""
        wanted = TableIdentifier.parse(name, catalog=scope[0], database=scope[1])
        identifier = self._find(wanted)
        if identifier is not None:
            return identifier, self._known[identifier]
        if wanted.table.lower() in self.missing_names:
            return wanted, None
        raise ValueError(self._unknown(split_name(name), scope))

    def _unknown(self, names: tuple[str, ...], scope: tuple[str, str]) -> str:
        written = ".".join(names)
        hint = ""
        self._compared += len(self._known)
        if self._compared <= NAMES_COMPARED:
            hint = did_you_mean(written, [_relative(known, scope, len(names)) for known in self._known])
        return f"unknown table {written!r}{hint or '; declare it under sources, views or dynamic_tables'}"

    def _cycles(
        self, expansions: Mapping[TableIdentifier, Expansion], tables: Mapping[TableIdentifier, DynamicTable]
    ) -> Iterator[TableIdentifier]:
        """Yield the tables that depend on themselves, by reading, by asset updates or by relationships.

        Every cycle is a mistake at its first table.
        """
        reads = {identifier: {*expansion.origins} & expansions.keys() for identifier, expansion in expansions.items()}
        for identifier, table in tables.items():
            reads[identifier] |= {*(table.on.tables if table.on else ()), *table.references} & expansions.keys()
        numbers = {identifier: number for number, identifier in enumerate(expansions)}
        told = 0
        while circle := circle_in(reads):
            told += 1
            if told > CIRCLES:
                left = reads.keys() - without_circles(reads)
                first = self._known[next(identifier for identifier in reads if identifier in left)]
                message = f"{len(left)} more tables read each other in circles, or read tables that do"
                self.mistakes.add([first.mistake("name", message)])
                yield from left
                return
            yield from circle
            start = circle.index(min(circle, key=numbers.__getitem__))
            path = (*circle[start:], *circle[:start], circle[start])
            for reader, read in pairwise(path):
                reads[reader].discard(read)
            self._tell_circle(path, expansions, tables)

    def _tell_circle(
        self,
        path: tuple[TableIdentifier, ...],
        expansions: Mapping[TableIdentifier, Expansion],
        tables: Mapping[TableIdentifier, DynamicTable],
    ) -> None:
        """Record a mistake where the first table of a cycle reads, is refreshed on, or refers to the second one."""
        entry = self._known[path[0]]
        way = " -> ".join(map(str, path))
        origin = expansions[path[0]].origins.get(path[1])
        if origin is None and path[1] in tables[path[0]].references:
            message = f"a relationship refers to a table that needs this one first: {way}"
            self.mistakes.add([mistake_at(tables[path[0]], entry, path[1], message)])
            return
        if origin is None or entry.query is None:
            self.mistakes.add([entry.mistake("on", f"tables are refreshed on each other's updates in a circle: {way}")])
            return
        reads = all(read in expansions[reader].origins for reader, read in pairwise(path))
        each_other = f"tables {'read' if reads else 'need'} each other in a circle"
        what = "a table cannot read itself" if len(path) == 2 else each_other
        self.mistakes.add([entry.query.mistake(origin.parts[0].start, f"{what}: {way}")])


def _too_long(length: int) -> str:
    if length > QUERY_CHARACTERS:
        return f"the query has more than {QUERY_CHARACTERS:,} characters with its views written out; make a dynamic table of one"
    return (
        f"all queries have more than {WRITTEN_OUT_CHARACTERS:,} characters together with their views written out; "
        "make dynamic tables of views that many read"
    )


def _fold(identifier: TableIdentifier) -> tuple[str, ...]:
    return identifier.catalog.lower(), identifier.database.lower(), identifier.table.lower()


def _relative(identifier: TableIdentifier, scope: tuple[str, str], least: int) -> str:
    """Return the shortest name, of at least that many parts, that resolves to the table in a file with those defaults."""
    if least <= 1 and (identifier.catalog, identifier.database) == scope:
        return identifier.table
    return str(identifier.path) if least <= 2 and identifier.catalog == scope[0] else str(identifier)
