"""The rows of one table in a test: which columns there are, of which types, and whether every value is one of its type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote_if_needed
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.query_tests.values import Cell, Row, cell_of
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import check_columns, parse_type
from airflow_dynamic_tables.core.tables.types import DataType, Struct
from airflow_dynamic_tables.definitions.declarations.expectations import GivenDeclaration
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.query_tests.model import GivenRows
from airflow_dynamic_tables.definitions.query_tests.rows import Written, read_rows
from airflow_dynamic_tables.definitions.resolving import Analyse
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.yaml_files.documents import Document, Location

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:nan|inf)", re.IGNORECASE)
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|[-+]?\.?(?:nan|inf(?:inity)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Known:
    """What the definitions say of the columns of a table: types by name, as far as they know them; whether these are all.

    A column that is not ``nullable`` holds no NULL.
    """

    types: Mapping[str, str | None] = field(default_factory=dict)
    is_closed: bool = False
    not_null: frozenset[str] = frozenset()


def known_columns(definitions: Definitions, identifier: TableIdentifier, analyse: Analyse) -> Known:
    """What the definitions say of the columns of a table, without looking at the table itself.

    :raises ValueError: when a schema is written so that only Spark understands it.
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
    """The types of a schema by column, and the columns that hold no NULL."""
    is_struct = schema.strip().lower().startswith("struct<")
    try:
        kind = parse_type(schema.strip() if is_struct else f"struct<{schema}>")
    except UnsupportedError as error:
        raise ValueError(f"the schema of this source cannot be used in tests: {error}") from None
    fields = kind.fields if isinstance(kind, Struct) else ()
    return {each.name: str(each.type) for each in fields}, frozenset(each.name for each in fields if not each.nullable)


@dataclass(slots=True)
class GivenReader:
    """Reads the rows of one table.

    :param location: of its entry below ``given``.
    """

    document: Document
    location: Location
    declared: GivenDeclaration
    known: Known
    zone: str
    mistakes: list[Mistake] = field(default_factory=list)

    def read(self, identifier: TableIdentifier) -> GivenRows | None:
        """The rows; ``None``, and mistakes, when they cannot be used."""
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
            self._tell(f"nobody says which columns {identifier} has; name them and their types under 'columns'")
        rows = self._cells(columns, written)
        return None if self.mistakes else GivenRows(identifier, columns, rows)

    def _said_types(self) -> dict[str, str]:
        """The types that the test itself declares."""
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
        """The type of a column by its values, when they leave no doubt."""
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
        """The type that one value leaves no doubt of; or ``None``, and the doubt."""
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
