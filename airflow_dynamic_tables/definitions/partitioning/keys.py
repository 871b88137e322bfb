"""Partition keys of one table that cannot be: columns, and what Iceberg computes of columns."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.partitioning import hidden_key, rejoined, repeated
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT, FORMATS, hiding_formats
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry
from airflow_dynamic_tables.definitions.queries.text import Analysis


def key_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """What is wrong with the keys by themselves, and for the format of the table."""
    table_format = declared.format or entry.defaults.format or DEFAULT_FORMAT
    places: list[int] = []
    keys: list[str] = []
    for place, text in rejoined(declared.partitioned_by):
        try:
            hidden = hidden_key(text)
        except ValueError as error:
            yield entry.mistake("partitioned_by", str(error), place)
            continue
        if hidden is not None and not FORMATS[table_format].hides_keys:
            others = " | ".join(hiding_formats())
            message = f"{hidden} is computed of a column, which tables of format {table_format} cannot be partitioned by"
            yield entry.mistake(
                "partitioned_by", f"{message}; use format {others}, or let the query return it as a column", place
            )
        places.append(place)
        keys.append(text if hidden is None else str(hidden))
    for number, problem in repeated(keys):
        yield entry.mistake("partitioned_by", problem, places[number])


def key_output_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    """Keys of columns that the query does not return, or not in a type that they can be of, as far as its text tells."""
    names = [name for name in analysis.outputs or () if name]
    kinds = dict(zip(analysis.outputs or (), analysis.types or (), strict=False))
    for place, text in rejoined(declared.partitioned_by):
        try:
            hidden = hidden_key(text)
        except ValueError:
            continue  # told already
        column = text if hidden is None else hidden.column
        kind = kinds.get(column)
        if column not in names:
            yield entry.mistake("partitioned_by", f"the query returns no column {column!r}{did_you_mean(column, names)}", place)
        elif hidden is not None and kind is not None and (problem := hidden.type_problem(kind)):
            yield entry.mistake("partitioned_by", problem, place)
        if hidden is not None and hidden.field in names:
            message = f"the query returns a column {hidden.field!r}, and Iceberg calls the partitions of {hidden} so"
            yield entry.mistake("partitioned_by", f"{message}; give the column another name", place)
