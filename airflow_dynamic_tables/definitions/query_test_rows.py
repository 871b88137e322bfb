"""Validated unit tests of queries, and the parsing of their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote_if_needed
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.query_test_values import Cell, Row, cell_of
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import DataType, Struct, check_columns, parse_type
from airflow_dynamic_tables.definitions.declarations.table import GivenDeclaration, RowsDeclaration
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.resolving import Analyse
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.yaml_files.documents import Document, Flag, Location


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """One row as written: strings, lists and mappings by column; ``at`` creates a mistake at the value of a column."""

    values: Mapping[str, object]
    at: Callable[[str, str], Mistake]


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Content of one table: rows of all ``columns``, or a query that reads no table.

    For a query, ``columns`` are those with known types, and there may be ``others``; ``None`` allows any others.
    """

    identifier: TableIdentifier
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    query: str | None = None
    others: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The expected result: rows, whose types depend on the query, or a query that reads no table.

    ``named`` are the columns that are written in the test; ``key`` and ``only`` are as declared. ``types`` are those of
    columns, as stored in tables.
    """

    rows: tuple[WrittenRow, ...]
    named: tuple[str, ...]
    query: str | None = None
    key: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryTest:
    """A unit test. ``partitions``, or else ``schedule_time``, decide what part of the table is refreshed, by default all.

    ``at`` creates a mistake at one of its keys.
    """

    table: DynamicTable
    name: str
    given: tuple[GivenRows, ...]
    expected: ExpectedRows
    at: Callable[[str, str], Mistake]
    schedule_time: datetime | None = None
    partitions: PartitionSet | None = None

    @property
    def full_name(self) -> str:
        """The unique name of the test."""
        return f"{self.table.identifier}::{self.name}"


Field = tuple[int, str | None]
"""Offset of a field in a text, and its value; ``None`` is NULL."""


class CsvError(ValueError):
    """A text is not valid CSV; carries the offset of the character."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows in the order of the file, columns in the order of first mention, and the position of each first mention."""

    rows: tuple[WrittenRow, ...]
    columns: dict[str, Mistake]

    def unknown(self, column: str, message: str) -> Mistake:
        """Return a mistake in the name of a column."""
        place = self.columns[column]
        return Mistake(place.path, place.line, place.column, message)


def read_rows(document: Document, location: Location, declared: RowsDeclaration) -> tuple[Written, list[Mistake]]:
    """Return the rows below a location; for invalid CSV no rows, and a mistake."""
    if declared.csv is not None:
        return _of_csv(document, (*location, "csv"), declared.csv)
    columns: dict[str, Mistake] = {}
    rows = []
    for number, row in enumerate(declared.rows or ()):
        place = (*location, "rows", number)
        for column in row:
            columns.setdefault(column, document.key_mistake((*place, column), ""))
        rows.append(WrittenRow({column: _texts(value) for column, value in row.items()}, partial(_in_row, document, place)))
    return Written(tuple(rows), columns), []


def _in_row(document: Document, row: Location, column: str, message: str) -> Mistake:
    return document.mistake((*row, column), message)


def _texts(value: Any) -> Any:
    """Convert a YAML value, with every scalar as written."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return value.text if isinstance(value, Flag) else value


def _of_csv(document: Document, location: Location, text: str) -> tuple[Written, list[Mistake]]:
    try:
        lines = list(csv_lines(text))
    except CsvError as error:
        return Written((), {}), [document.text_mistake(location, error.offset, str(error))]
    if not lines:
        return Written((), {}), [document.mistake(location, "the first line has the names of the columns, and there is none")]
    header, *rest = lines
    mistakes = []
    columns: dict[str, Mistake] = {}
    for offset, name in header:
        if name is None or name in columns:
            problem = "a column has no name" if name is None else f"column {name!r} is there twice"
            mistakes.append(document.text_mistake(location, offset, problem))
        else:
            columns[name] = document.text_mistake(location, offset, "")
    rows = []
    for line in rest:
        if len(line) != len(header):
            message = f"this row has {len(line)} values, and there are {len(header)} columns"
            mistakes.append(document.text_mistake(location, line[0][0], message))
            continue
        fields = {name: field for (_, name), field in zip(header, line, strict=True) if name is not None}
        places = {name: offset for name, (offset, _) in fields.items()}
        at = partial(_in_text, document, location, places)
        rows.append(WrittenRow({name: value for name, (_, value) in fields.items()}, at))
    return Written(tuple(rows), columns), mistakes


def _in_text(document: Document, location: Location, places: dict[str, int], column: str, message: str) -> Mistake:
    return document.text_mistake(location, places.get(column, 0), message)


def csv_lines(text: str) -> Iterator[list[Field]]:
    """Yield the non-empty lines of a CSV text (RFC 4180); a quoted field is never NULL.

    :raises CsvError: for an unterminated quote, or text after a closing quote.
    """
    position = 0
    while position < len(text):
        if text[position] == "\n":
            position += 1
            continue
        fields: list[Field] = []
        while True:
            field, position = _field(text, position)
            fields.append(field)
            if text[position : position + 1] != ",":
                break
            position += 1
        yield fields


def _field(text: str, start: int) -> tuple[Field, int]:
    """Return the field that begins at an offset, and the offset behind it."""
    if text[start : start + 1] != '"':
        end = min((at for sign in ",\n" if (at := text.find(sign, start)) >= 0), default=len(text))
        return (start, text[start:end] or None), end
    end = start + 1
    while True:
        end = text.find('"', end)
        if end < 0:
            raise CsvError(start, "these quotes are never closed")
        if text[end + 1 : end + 2] != '"':
            break
        end += 2
    if text[end + 1 : end + 2] not in (",", "\n", ""):
        raise CsvError(end + 1, "behind closing quotes comes a comma or the end of the line; write quotes within them twice")
    return (start, text[start + 1 : end].replace('""', '"')), end + 1


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:nan|inf)", re.IGNORECASE)
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|[-+]?\.?(?:nan|inf(?:inity)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Known:
    """Columns of a table that the definitions determine: types by name, where known, and whether the list is complete.

    A column that is not ``nullable`` contains no NULL.
    """

    types: Mapping[str, str | None] = field(default_factory=dict)
    is_closed: bool = False
    not_null: frozenset[str] = frozenset()


def known_columns(definitions: Definitions, identifier: TableIdentifier, analyse: Analyse) -> Known:
    """Return the columns of a table according to the definitions, without accessing the table.

    :raises ValueError: when a schema uses syntax that only Spark understands.
    """
    source = definitions.sources.get(identifier)
    if source is not None:
        types, not_null = _declared(source.schema) if source.schema is not None else ({}, frozenset[str]())
        keys = {key: "string" for key in source.partition_keys if key not in types}
        return Known({**types, **keys}, source.schema is not None, not_null)
    table = definitions.tables.get(identifier)
    analysis = analyse(table.query) if table is not None else None
    if analysis is None or analysis.outputs is None or None in analysis.outputs:
        return Known()
    types_told = analysis.types or (None,) * len(analysis.outputs)
    return Known({str(name): kind for name, kind in zip(analysis.outputs, types_told, strict=False)}, is_closed=True)


def _declared(schema: str) -> tuple[dict[str, str | None], frozenset[str]]:
    """Return the types of a schema by column, and the columns that are NOT NULL."""
    is_struct = schema.strip().lower().startswith("struct<")
    try:
        kind = parse_type(schema.strip() if is_struct else f"struct<{schema}>")
    except UnsupportedError as error:
        raise ValueError(f"the schema of this source cannot be used in tests: {error}") from None
    fields = kind.fields if isinstance(kind, Struct) else ()
    return {each.name: str(each.type) for each in fields}, frozenset(each.name for each in fields if not each.nullable)


@dataclass(slots=True)
class GivenReader:
    """Reads the rows of one table."""

    document: Document
    location: Location
    declared: GivenDeclaration
    known: Known
    zone: str
    mistakes: list[Mistake] = field(default_factory=list)

    def read(self, identifier: TableIdentifier) -> GivenRows | None:
        """Return the rows; ``None``, after recording mistakes, when they are invalid."""
        said = self._said_types()
        written, mistakes = read_rows(self.document, self.location, self.declared)
        self.mistakes += mistakes
        types = {**self.known.types, **said}
        if self.declared.sql is not None:
            columns = tuple(Column(name, kind) for name, kind in types.items() if kind is not None)
            others = tuple(name for name, kind in types.items() if kind is None) if self.known.is_closed else None
            return GivenRows(identifier, columns, query=self.declared.sql, others=others)
        unknown = [name for name in written.columns if self.known.is_closed and name not in self.known.types]
        self.mistakes += [written.unknown(name, _unknown(identifier, name, self.known.types)) for name in unknown]
        order = [name for name in dict.fromkeys((*types, *written.columns)) if name not in unknown]
        columns = tuple(self._columns(order, types, written))
        if not columns and not self.mistakes:
            self._tell(f"it is not known which columns {identifier} has; name them and their types under 'columns'")
        rows = self._cells(columns, written)
        return None if self.mistakes else GivenRows(identifier, columns, rows)

    def _said_types(self) -> dict[str, str]:
        said = {}
        for name, text in self.declared.columns.items():
            place = (*self.location, "columns", name)
            known = self.known.types.get(name)
            if self.known.is_closed and name not in self.known.types:
                message = f"there is no column {name!r}{did_you_mean(name, self.known.types)}"
                self.mistakes.append(self.document.key_mistake(place, message))
                continue
            try:
                check_columns(f"c {text}")
                said[name] = str(parse_type(text))
            except UnsupportedError as error:
                self.mistakes.append(self.document.mistake(place, f"{text!r} is no type of Spark's: {error}"))
                continue
            if known is not None and parse_type(known) != parse_type(text):
                message = f"{name!r} is declared as {known}, so it cannot be {text} here; take it away"
                self.mistakes.append(self.document.mistake(place, message))
        return said

    def _columns(self, order: Iterable[str], types: Mapping[str, str | None], written: Written) -> Iterable[Column]:
        for name in order:
            kind = types.get(name)
            if kind is None and name in written.columns:
                kind = self._told_by_values(name, written)
            if kind is not None:
                yield Column(name, kind, name not in self.known.not_null)

    def _told_by_values(self, name: str, written: Written) -> str | None:
        """Return the type of a column inferred from its values, if it is unambiguous."""
        if self.declared.csv is not None:
            say = f"{name!r}: a text with commas says nothing of types; {_say_it(name, 'STRING')}"
            self.mistakes.append(written.unknown(name, say))
            return None
        kinds: dict[str, int] = {}
        for number, row in enumerate(written.rows):
            if row.values.get(name) is None:
                continue
            kind, doubt = self._kind((*self.location, "rows", number, name), name, row.values[name])
            if kind is None:
                self.mistakes.append(row.at(name, f"{name!r}: {doubt}"))
                return None
            kinds.setdefault(kind, number)
        if len(kinds) == 1:
            return next(iter(kinds))
        if not kinds:
            self.mistakes.append(written.unknown(name, f"{name!r} is NULL in every row; {_say_it(name, 'STRING')}"))
        else:
            first, second = list(kinds)[:2]
            message = f"{name!r}: this is {second}, and values above are {first}; {_say_it(name, first.upper())}"
            self.mistakes.append(written.rows[kinds[second]].at(name, message))
        return None

    def _kind(self, place: Location, name: str, value: object) -> tuple[str | None, str]:
        """Return the type inferred from one value; or ``None``, and the ambiguity."""
        if not isinstance(value, str):
            return (
                None,
                f"this may be of many types; {_say_it(name, 'MAP<STRING, INT>' if isinstance(value, dict) else 'ARRAY<INT>')}",
            )
        tag = self.document.scalar_type(place)
        if not self.document.is_plain(place):
            return "string", ""
        if tag == "bool" and value.lower() in ("true", "false"):
            return "boolean", ""
        if tag == "bool":
            return None, f"{value} may be a truth value or a text; write true or false, or '{value}' in quotes"
        if tag == "int" and _WHOLE.fullmatch(value):
            return "bigint", ""
        if tag == "float" and _NOT_FINITE.fullmatch(value):
            return "double", ""
        if tag == "timestamp":
            return None, f"{value} may be a DATE, a TIMESTAMP or a STRING; put a STRING in quotes, else {_say_it(name, 'DATE')}"
        if tag in ("int", "float") or _LIKE_A_NUMBER.fullmatch(value):
            return (
                None,
                f"{value} may be a DOUBLE, a DECIMAL or a STRING; put a STRING in quotes, else {_say_it(name, 'DECIMAL(10,2)')}",
            )
        return "string", ""

    def _cells(self, columns: Sequence[Column], written: Written) -> tuple[Row, ...]:
        kinds = [(column, parse_type(column.type)) for column in columns]
        return tuple(
            tuple(self._cell(column, kind, row.values.get(column.name), row.at) for column, kind in kinds) for row in written.rows
        )

    def _cell(self, column: Column, kind: DataType, value: object, at: object) -> Cell:
        try:
            if value is None and not column.nullable:
                raise ValueError("it is NOT NULL")
            return cell_of(value, kind, self.zone)
        except ValueError as error:
            self.mistakes.append(at(column.name, f"{column.name!r}: {error}"))  # type: ignore[operator]
            return None

    def _tell(self, message: str) -> None:
        self.mistakes.append(self.document.mistake(self.location, message))


def _unknown(identifier: TableIdentifier, name: str, known: Iterable[str]) -> str:
    names = list(known)
    return f"{identifier} has no column {name!r}{did_you_mean(name, names) or '; it has ' + ', '.join(names)}"


def _say_it(name: str, kind: str) -> str:
    entry = f"{{{quote_if_needed(name)}: '{kind}'}}"
    return f"say which: columns: {entry}"
