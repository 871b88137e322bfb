"""From declarations to definitions: names in full, defaults applied, views expanded, and what only shows when all is known."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import cron_for
from airflow_dynamic_tables.core.freshness import Freshness
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import check_formatters
from airflow_dynamic_tables.core.refresh_mode import FRESHNESS_THRESHOLD, ModeDecision, RefreshMode, decide
from airflow_dynamic_tables.definitions.declarations import (
    FORMATTER_OPTION,
    DefaultsDeclaration,
    SourceDeclaration,
    TableDeclaration,
    ViewDeclaration,
    did_you_mean,
)
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable, Mistake, Source, SparkSettings
from airflow_dynamic_tables.definitions.positions import Document, Location, line_and_column
from airflow_dynamic_tables.definitions.query import Analysis, Reference, Target, expand

Analyse = Callable[[str], Analysis]
_T = TypeVar("_T")

# Looking for a name that looks alike compares with every name there is.
_MAX_SUGGESTIONS = 20


@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query, and where it stands: in a YAML document or in a file of its own."""

    text: str
    document: Document
    location: Location
    file: Path | None = None

    def mistake(self, offset: int, message: str) -> Mistake:
        """A mistake at a character of the query."""
        if self.file is not None:
            return Mistake(self.file, *line_and_column(self.text, offset), message)
        return self.document.text_mistake(self.location, offset, message)


@dataclass(frozen=True, slots=True)
class Entry:
    """One table, view or source as declared, without the keys in ``dropped``, which are wrong themselves.

    ``sound`` is false when it has mistakes already.
    """

    identifier: TableIdentifier
    declaration: TableDeclaration | ViewDeclaration | SourceDeclaration
    defaults: DefaultsDeclaration
    scope: tuple[str, str]
    document: Document
    location: Location
    query: QueryText | None
    sound: bool
    dropped: frozenset[str] = frozenset()

    def mistake(self, key: str, message: str, *inner: str | int) -> Mistake:
        """A mistake in the value of one of the entry's keys."""
        return self.document.mistake((*self.location, key, *inner), message)


@dataclass(frozen=True, slots=True)
class _Expansion:
    """A query with every name in full; ``origins`` says through which reference each upstream table is read."""

    query: str
    analysis: Analysis
    origins: Mapping[TableIdentifier, Reference]


@dataclass(slots=True)
class Resolver:
    """Resolves all entries of a definitions folder against each other and collects mistakes."""

    entries: list[Entry]
    analyse: Analyse
    missing_names: frozenset[str] = frozenset()
    mistakes: list[Mistake] = field(default_factory=list)
    _known: dict[TableIdentifier, Entry] = field(default_factory=dict)
    _folded: dict[tuple[str, ...], list[TableIdentifier]] = field(default_factory=dict)
    _views: dict[TableIdentifier, _Expansion | None] = field(default_factory=dict)
    _suggestions: int = 0

    def resolve(self) -> Definitions:
        """Everything that has no mistake."""
        self._register()
        sources: dict[TableIdentifier, Source] = {}
        tables: dict[TableIdentifier, DynamicTable] = {}
        expansions: dict[TableIdentifier, _Expansion] = {}
        for identifier, entry in self._known.items():
            if isinstance(entry.declaration, SourceDeclaration):
                if entry.sound:
                    sources[identifier] = _source(entry, entry.declaration)
            elif isinstance(entry.declaration, TableDeclaration):
                expansion = self._expand(entry)
                mistakes = list(_table_mistakes(entry, entry.declaration, expansion))
                self.mistakes += mistakes
                if expansion is not None:
                    expansions[identifier] = expansion
                    if entry.sound and not mistakes:
                        tables[identifier] = _table(entry, entry.declaration, expansion)
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

    def _expand(self, entry: Entry, trail: tuple[TableIdentifier, ...] = ()) -> _Expansion | None:
        """The query of a table or view with every name in full; ``None``, and mistakes, when that cannot be."""
        if entry.query is None:
            return None
        analysis = self.analyse(entry.query.text)
        self.mistakes += [entry.query.mistake(problem.offset, problem.message) for problem in analysis.problems]
        targets: list[Target] = []
        origins: dict[TableIdentifier, Reference] = {}
        for reference in analysis.references:
            found = self._target(entry, entry.query, reference, trail)
            if found is not None:
                targets.append(found[0])
                for identifier in found[1]:
                    origins.setdefault(identifier, reference)
        if analysis.problems or len(targets) < len(analysis.references):
            return None
        return _Expansion(expand(analysis, targets).strip(), analysis, origins)

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

    def _view(self, identifier: TableIdentifier, trail: tuple[TableIdentifier, ...]) -> _Expansion | None:
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

    def _cycles(self, expansions: Mapping[TableIdentifier, _Expansion]) -> Iterator[TableIdentifier]:
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


def _source(entry: Entry, declared: SourceDeclaration) -> Source:
    return Source(
        identifier=entry.identifier,
        format=declared.format,
        path=_data_path(declared.path, entry.document.path),
        partition_keys=declared.partitioned_by,
        schema=declared.schema_,
        options=declared.options,
        comment=declared.comment,
        file=entry.document.path,
        line=entry.document.line(entry.location),
    )


def _data_path(path: str | None, file: Path) -> str | None:
    """A URI stays, a local path is relative to the file that declares it."""
    if path is None or "://" in path or path.startswith("file:"):
        return path
    return str(file.parent.absolute() / path)


def _decision(entry: Entry, declared: TableDeclaration) -> ModeDecision:
    mode = declared.refresh_mode or entry.defaults.refresh_mode or "auto"
    freshness = declared.freshness or entry.defaults.freshness
    return decide(RefreshMode(mode.upper()), Freshness.parse(freshness) if freshness else None)


def _table_mistakes(entry: Entry, declared: TableDeclaration, expansion: _Expansion | None) -> Iterator[Mistake]:
    if entry.dropped.isdisjoint({"freshness", "refresh_mode", "schedule"}):
        yield from _schedule_mistakes(entry, declared)
    if entry.dropped.isdisjoint({"partitioned_by", "options"}):
        yield from _formatter_mistakes(entry, declared)
    if expansion is not None and expansion.analysis.outputs is not None:
        yield from _output_mistakes(entry, declared, expansion.analysis.outputs)


def _schedule_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    decision = _decision(entry, declared)
    key = "freshness" if declared.freshness else "refresh_mode" if declared.refresh_mode else "name"
    mode_key = "refresh_mode" if declared.refresh_mode else key
    if decision.mode is RefreshMode.CONTINUOUS:
        place = mode_key if declared.refresh_mode == "continuous" else key
        remedy = f"set refresh_mode: full, or a freshness of at least {FRESHNESS_THRESHOLD}"
        yield entry.mistake(place, f"continuous refresh is not supported yet ({decision.reason}); {remedy}")
        return
    if decision.mode is RefreshMode.INCREMENTAL:
        yield entry.mistake(mode_key, "incremental refresh is not supported yet; set refresh_mode: full")
    if not (declared.schedule or entry.defaults.schedule):
        try:
            cron_for(decision.freshness)
        except ValueError as error:
            yield entry.mistake(key, str(error))


def _formatter_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    keys = declared.partitioned_by
    for number, key in enumerate(keys):
        if key in keys[:number]:
            yield entry.mistake("partitioned_by", f"partition key {key!r} is listed twice", number)
    for option, pattern in declared.options.items():
        match = FORMATTER_OPTION.fullmatch(option)
        if match and match["column"] not in keys:
            message = f"{match['column']!r} is no partition key of this table{did_you_mean(match['column'], keys)}"
            yield entry.document.key_mistake((*entry.location, "options", option), message)
        elif match:
            try:
                check_formatters({match["column"]: pattern})
            except ValueError as error:
                if "without its" not in str(error):
                    yield entry.mistake("options", str(error), option)
    try:
        check_formatters(_formatters(entry, declared))
    except ValueError as error:
        if "without its" in str(error):
            yield entry.mistake("options", str(error))


def _formatters(entry: Entry, declared: TableDeclaration) -> dict[str, str]:
    """Partition keys that have a date pattern, in their order."""
    patterns = {
        match["column"]: pattern
        for option, pattern in {**entry.defaults.options, **declared.options}.items()
        if (match := FORMATTER_OPTION.fullmatch(option))
    }
    return {key: patterns[key] for key in declared.partitioned_by if key in patterns}


def _output_mistakes(entry: Entry, declared: TableDeclaration, outputs: tuple[str | None, ...]) -> Iterator[Mistake]:
    names = [name for name in outputs if name]
    for number, key in enumerate(declared.partitioned_by):
        if key not in names:
            yield entry.mistake("partitioned_by", f"the query returns no column {key!r}{did_you_mean(key, names)}", number)
    for column in declared.columns:
        if column not in names:
            message = f"the query returns no column {column!r}{did_you_mean(column, names)}"
            yield entry.document.key_mistake((*entry.location, "columns", column), message)
    folded = [name.lower() for name in names]
    for name in sorted({name for name in folded if folded.count(name) > 1}):
        yield entry.mistake("query", f"the query returns column {name!r} more than once; give each its own name with AS")


def _table(entry: Entry, declared: TableDeclaration, expansion: _Expansion) -> DynamicTable:
    defaults = entry.defaults
    decision = _decision(entry, declared)
    timezone = declared.timezone or defaults.timezone or "UTC"
    mode = declared.refresh_mode or defaults.refresh_mode or "auto"
    options = {key: value for key, value in defaults.options.items() if _applies(key, declared)}
    return DynamicTable(
        identifier=entry.identifier,
        query=entry.query.text.strip() if entry.query else "",
        expanded_query=expansion.query,
        upstream=tuple(expansion.origins),
        declared_mode=RefreshMode(mode.upper()),
        mode=decision.mode,
        mode_reason=decision.reason,
        freshness=decision.freshness,
        cron=declared.schedule or defaults.schedule or cron_for(decision.freshness),
        comment=declared.comment,
        timezone=timezone,
        partition_keys=declared.partitioned_by,
        formatters=_formatters(entry, declared),
        options={**options, **declared.options},
        format=declared.format or defaults.format or "iceberg",
        atomicity=declared.atomicity or defaults.atomicity or "staged",
        comments=declared.columns,
        spark=_spark(entry, declared),
        start_date=_aware(_either(declared.start_date, defaults.start_date), timezone),
        tags=tuple(dict.fromkeys((*defaults.tags, *declared.tags))),
        owner=declared.owner or defaults.owner,
        retries=_either(declared.retries, defaults.retries),
        retry_delay=_either(declared.retry_delay, defaults.retry_delay),
        pool=declared.pool or defaults.pool,
        execution_timeout=_either(declared.execution_timeout, defaults.execution_timeout),
        path=entry.document.path,
        line=entry.document.line(entry.location),
    )


def _applies(option: str, declared: TableDeclaration) -> bool:
    """Whether a default option concerns the table: a formatter does only if it has that partition key."""
    match = FORMATTER_OPTION.fullmatch(option)
    return match is None or match["column"] in declared.partitioned_by


def _spark(entry: Entry, declared: TableDeclaration) -> SparkSettings:
    default, own = entry.defaults.spark, declared.spark
    return SparkSettings(
        **{
            **default.model_dump(exclude_none=True),
            **own.model_dump(exclude_none=True),
            "conf": {**default.conf, **own.conf},
            "env_vars": {**default.env_vars, **own.env_vars},
        }
    )


def _either(own: _T | None, default: _T | None) -> _T | None:
    return default if own is None else own


def _aware(time: datetime | None, timezone: str) -> datetime | None:
    if time is None:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=ZoneInfo(timezone))).astimezone(UTC)
