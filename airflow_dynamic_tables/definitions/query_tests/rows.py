"""Rows as somebody wrote them, in YAML or as text with commas, with the place of every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.declarations.expectations import RowsDeclaration
from airflow_dynamic_tables.definitions.query_tests.model import WrittenRow
from airflow_dynamic_tables.yaml_files.documents import Document, Flag, Location

Field = tuple[int, str | None]
"""Where a field of a text begins, and what it holds; nothing is NULL."""


class CsvError(ValueError):
    """A text is no CSV; carries the offset of the character."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows in the order they were written in, the columns in that of their first mention, and where each is first mentioned."""

    rows: tuple[WrittenRow, ...]
    columns: dict[str, Mistake]

    def unknown(self, column: str, message: str) -> Mistake:
        """A mistake in the name of a column."""
        place = self.columns[column]
        return Mistake(place.path, place.line, place.column, message)


def read_rows(document: Document, location: Location, declared: RowsDeclaration) -> tuple[Written, list[Mistake]]:
    """The rows below a location; of a text that is no CSV none, and a mistake."""
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
    """A value of YAML with every scalar as it is written."""
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
    """The lines of a text with commas (RFC 4180) that are not empty; a field in quotes is never NULL.

    :raises CsvError: for quotes that are never closed, or with something behind them.
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
    """The field that begins at a place, and the place behind it."""
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
