"""Discovers, reads and validates the unit tests of queries against the definitions they test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake, Mistakes, did_you_mean, understood
from airflow_dynamic_tables.core.partition_dates import check_dates
from airflow_dynamic_tables.core.partitions import PartitionSet, check_spec, parse_spec
from airflow_dynamic_tables.core.schedule import parse_schedule_time
from airflow_dynamic_tables.definitions.declarations.table import ExpectDeclaration, QueryTestDeclaration
from airflow_dynamic_tables.definitions.loader import YAML_SUFFIXES, may_have_tests
from airflow_dynamic_tables.definitions.model import TESTS, Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import Analysis
from airflow_dynamic_tables.definitions.query_test_rows import (
    ExpectedRows,
    GivenReader,
    GivenRows,
    QueryTest,
    known_columns,
    read_rows,
)
from airflow_dynamic_tables.definitions.resolving import Analyse
from airflow_dynamic_tables.definitions.returned_columns import stored_type
from airflow_dynamic_tables.definitions.validating import validate
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.yaml_files.documents import Document, Location
from airflow_dynamic_tables.yaml_files.parsing import parse_document

_NAME = re.compile(r"\bname:\s*[\"']?([^\s\"',}#]+)")
_WORD = re.compile(r"[\w.`]+")


def load_query_tests(
    texts: Mapping[Path, str], definitions: Definitions, broken: Iterable[Mistake], analyse: Analyse
) -> tuple[tuple[QueryTest, ...], tuple[Mistake, ...]]:
    """Return the valid tests of files, and the mistakes of the others.

    :param texts: the texts of all files of the definitions, by path.
    :param broken: their mistakes: a table that is missing because of one is not reported for its tests.
    """
    names = (name for file in {mistake.path for mistake in broken} for name in _names_in(file, texts.get(file, "")))
    reader = _Reader(definitions, frozenset(names), analyse)
    for file, text in texts.items():
        if may_have_tests(file, text):
            with understood(reader.mistakes, partial(Mistake, file, 1, 1)):
                reader.read_file(file, text)
    return tuple(reader.tests), reader.mistakes.in_order()


@dataclass(slots=True)
class _Reader:
    """Collects tests and mistakes of all files. ``broken`` are the names of tables that may be missing because of mistakes."""

    definitions: Definitions
    broken: frozenset[str]
    analyse: Analyse
    tests: list[QueryTest] = field(default_factory=list)
    mistakes: Mistakes = field(default_factory=Mistakes)
    places: dict[str, str] = field(default_factory=dict)

    def read_file(self, path: Path, text: str) -> None:
        """Read the tests of a file; invalid YAML is reported with the definitions."""
        document, _ = parse_document(path, text, "")
        if document is None or not isinstance(document.data, dict):
            return
        items = document.data.get(TESTS, [])
        if not isinstance(items, list):
            self.mistakes.add([document.mistake((TESTS,), f"{TESTS!r} must be a list; start each entry with '- table:'")])
            return
        for number, item in enumerate(items):
            location = (TESTS, number)
            with understood(self.mistakes, partial(document.mistake, location)):
                room = self.mistakes.room(path)
                declared, mistakes = validate(QueryTestDeclaration, item, document, location, room)
                if declared is not None and not mistakes:
                    mistakes = self._read_test(document, location, declared)
                self.mistakes.add(mistakes)

    def _read_test(self, document: Document, location: Location, declared: QueryTestDeclaration) -> list[Mistake]:
        table = self.definitions.table(declared.table)
        if table is None:
            return self._unknown_table(document, (*location, "table"), declared.table)
        test = _TestReader(self.definitions, self.analyse, document, location, table, declared)
        read = test.read()
        if read is not None:
            place = document.place(location)
            if (first := self.places.setdefault(read.full_name, place)) != place:
                message = f"{table.identifier} has a test of this name already, in {first}; choose another one"
                return [document.mistake((*location, "name"), message)]
            self.tests.append(read)
        return test.mistakes

    def _unknown_table(self, document: Document, location: Location, name: str) -> list[Mistake]:
        known = list(self.definitions.tables)
        several = [str(identifier) for identifier in known if f".{identifier}".endswith(f".{name}")]
        if several:
            return [document.mistake(location, f"{name!r} may be any of {', '.join(several)}; name its database, too")]
        if _last_part(name) in self.broken:
            return []
        hint = did_you_mean(name, [ending for identifier in known for ending in _endings(identifier)])
        return [document.mistake(location, f"there is no dynamic table {name!r}{hint}")]


@dataclass(slots=True)
class _TestReader:
    """Reads one test of a table."""

    definitions: Definitions
    analyse: Analyse
    document: Document
    location: Location
    table: DynamicTable
    declared: QueryTestDeclaration
    mistakes: list[Mistake] = field(default_factory=list)

    def read(self) -> QueryTest | None:
        """Return the test; ``None``, after recording mistakes, when it is invalid."""
        time, partitions = self._time(), self._partitions()
        given = self._given()
        expected = self._expected(self.declared.expect)
        if self.mistakes:
            return None
        return QueryTest(self.table, self.declared.name, given, expected, self._at, time, partitions)

    def _at(self, key: str, message: str) -> Mistake:
        return self.document.mistake((*self.location, key), message)

    def _time(self) -> datetime | None:
        if self.declared.schedule_time is None:
            return None
        try:
            time = parse_schedule_time(self.declared.schedule_time)
        except ValueError:
            message = f"{self.declared.schedule_time!r} is no time; write for example 2024-01-31 06:00:00"
            self.mistakes.append(self._at("schedule_time", message))
            return None
        return time if time.tzinfo is not None else time.replace(tzinfo=ZoneInfo(self.table.timezone))

    def _partitions(self) -> PartitionSet | None:
        if self.declared.partition is None:
            return None
        try:
            specs = [parse_spec(text) for text in self.declared.partition.split(",")]
            for spec in specs:
                check_spec(spec, self.table.partition_keys)
                check_dates(spec, self.table.formatters)
        except ValueError as error:
            self.mistakes.append(self._at("partition", str(error)))
            return None
        return PartitionSet.of(specs)

    def _given(self) -> tuple[GivenRows, ...]:
        named: dict[TableIdentifier, GivenRows] = {}
        seen: set[TableIdentifier] = set()
        for name, declared in self.declared.given.items():
            place = (*self.location, "given", name)
            identifier = self._read_by_query(name, place)
            if identifier is None:
                continue
            if identifier in seen:
                self.mistakes.append(self.document.key_mistake(place, f"the rows of {identifier} are given twice"))
                continue
            seen.add(identifier)
            self._check_sql((*place, "sql"), declared.sql)
            try:
                known = known_columns(self.definitions, identifier, self.analyse)
            except ValueError as error:
                self.mistakes.append(self.document.key_mistake(place, str(error)))
                continue
            reader = GivenReader(self.document, place, declared, known, self.table.timezone)
            rows = reader.read(identifier)
            self.mistakes += reader.mistakes
            if rows is not None:
                named[identifier] = rows
        if missing := [name for name in self.table.upstream if name not in seen and not self._is_view(name)]:
            message = f"the query reads {', '.join(map(str, missing))}, too; give the rows, 'rows: []' for none"
            self.mistakes.append(self._at("given" if self.declared.given else "table", message))
        return tuple(named.values())

    def _read_by_query(self, name: str, place: Location) -> TableIdentifier | None:
        wanted = f".{name}".lower()
        alike = [identifier for identifier in self.table.upstream if f".{identifier}".lower().endswith(wanted)]
        if len(alike) == 1:
            return alike[0]
        if alike:
            message = f"{name!r} may be any of {', '.join(map(str, alike))}; write more of the name"
        elif any(map(self._is_view, self.table.upstream)):
            try:
                return TableIdentifier.parse(name)  # only the catalog knows what its views read
            except ValueError:
                message = f"the query reads no {name!r}; what a view of a catalog reads has a name in three parts here"
        else:
            read = [str(identifier) for identifier in self.table.upstream]
            hint = did_you_mean(name, [ending for identifier in self.table.upstream for ending in _endings(identifier)])
            all_read = f"; it reads {', '.join(read) or 'no table'}"
            message = f"the query of {self.table.identifier} does not read {name!r}{hint or all_read}"
        self.mistakes.append(self.document.key_mistake(place, message))
        return None

    def _is_view(self, identifier: TableIdentifier) -> bool:
        source = self.definitions.sources.get(identifier)
        return source is not None and source.is_view

    def _expected(self, declared: ExpectDeclaration) -> ExpectedRows:
        place = (*self.location, "expect")
        written, mistakes = read_rows(self.document, place, declared)
        self.mistakes += mistakes
        self._check_sql((*place, "sql"), declared.sql)
        outputs = self.analyse(self.table.query).outputs
        if outputs is not None and None not in outputs:
            names = [str(name) for name in outputs]
            for column in written.columns:
                if column not in names:
                    self.mistakes.append(written.unknown(column, _no_column(column, names)))
            for key in ("key", "only"):
                for number, column in enumerate(getattr(declared, key)):
                    if column not in names:
                        self.mistakes.append(self.document.mistake((*place, key, number), _no_column(column, names)))
            for column in declared.types:
                if column not in names:
                    self.mistakes.append(self.document.key_mistake((*place, "types", column), _no_column(column, names)))
        if declared.only and (left_out := [column for column in declared.key if column not in declared.only]):
            self.mistakes.append(self.document.mistake((*place, "key"), f"{left_out[0]!r} is a key and has to be compared, too"))
        return ExpectedRows(
            written.rows, tuple(written.columns), declared.sql, declared.key, declared.only, self._types(place, declared)
        )

    def _types(self, place: Location, declared: ExpectDeclaration) -> dict[str, str]:
        """Return the expected types of columns, as stored in tables."""
        types: dict[str, str] = {}
        for column, kind in declared.types.items():
            try:
                types[column] = stored_type(kind)
            except UnsupportedError as error:
                self.mistakes.append(self.document.mistake((*place, "types", column), str(error).removesuffix(".")))
        return types

    def _check_sql(self, place: Location, sql: str | None) -> None:
        analysis = self.analyse(sql) if sql is not None else Analysis("")
        for problem in analysis.problems:
            self.mistakes.append(self.document.text_mistake(place, problem.offset, problem.message))
        for reference in analysis.references:
            message = "rows for a test come from no table; write SELECT ... FROM VALUES (...) AS t(...)"
            self.mistakes.append(self.document.text_mistake(place, reference.parts[0].start, message))


def _names_in(file: Path, text: str) -> Iterator[str]:
    """Yield the last parts of the names that a file may declare tables by."""
    return map(_last_part, (_NAME if file.suffix in YAML_SUFFIXES else _WORD).findall(text))


def _last_part(name: str) -> str:
    return name.rpartition(".")[2].strip("`").lower()


def _no_column(column: str, names: Sequence[str]) -> str:
    return f"the query returns no column {column!r}{did_you_mean(column, names) or '; it returns ' + ', '.join(names)}"


def _endings(identifier: TableIdentifier) -> Mapping[str, None]:
    return dict.fromkeys((identifier.table, str(identifier.path), str(identifier)))
