"""Problems of partition keys and options, in declarations and in statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_dynamic_tables.core.formats import FORMATS, hiding_formats
from airflow_dynamic_tables.core.partition_dates import FORMATTER
from airflow_dynamic_tables.core.partition_transforms import HiddenKey, hidden_key, misspelt, plain_keys, repeated
from airflow_dynamic_tables.core.sinks import BATCH_SIZE, OPTIONS, WRITERS
from airflow_dynamic_tables.definitions.queries.text import Analysis

_Placed = Iterable[tuple[int, str]]
"""Keys, or problems with them, each with its index."""


def key_problems(placed: _Placed, table_format: str) -> _Placed:
    """Yield problems of keys by themselves and for a table format, each with the index of its key."""
    places: list[int] = []
    keys: list[str] = []
    for place, text in placed:
        if not text:
            yield place, "a key is missing here; take a comma away"
            continue
        try:
            hidden = hidden_key(text)
        except ValueError as error:
            yield place, str(error)
            continue
        if hidden is not None and not FORMATS[table_format].hides_keys:
            others = " | ".join(hiding_formats())
            message = f"{hidden} is computed of a column, which tables of format {table_format} cannot be partitioned by"
            yield place, f"{message}; use format {others}, or let the query return it as a column"
        places.append(place)
        keys.append(text if hidden is None else str(hidden))
    for number, problem in repeated(keys):
        yield places[number], problem


def output_problems(placed: _Placed, analysis: Analysis) -> _Placed:
    """Yield problems of keys whose column a query does not return, or not in a suitable type, as far as its text tells."""
    names = [name for name in analysis.outputs or () if name]
    types = dict(zip(analysis.outputs or (), analysis.types or (), strict=False))
    for place, text in placed:
        try:
            hidden = hidden_key(text)
        except ValueError:
            continue  # reported already
        for problem in _column_problems(text, hidden, names, types) if text else ():
            yield place, problem


def _column_problems(
    key: str, hidden: HiddenKey | None, names: Sequence[str], types: Mapping[str | None, str | None]
) -> Iterator[str]:
    column = key if hidden is None else hidden.column
    kind = types.get(column)
    if column not in names and not plain_keys([column]):  # otherwise it is a column such as sum(x), as Spark names it
        yield f"{key.strip()!r} is computed of {column!r}, and a transform takes a column as it is"
    elif column not in names:
        yield f"the query returns no column {column!r}{misspelt(column, names)}"
    elif hidden is not None and kind is not None and (problem := hidden.type_problem(kind)):
        yield problem
    if hidden is not None and hidden.field in names:
        yield (
            f"the query returns a column {hidden.field!r}, and Iceberg calls the partitions of {hidden} so; "
            "give the column another name"
        )


_FORMATTER_LIKE = "partition.fields.COLUMN.date-formatter"


_OF_SPARK = {"batchsize": BATCH_SIZE, "batch-size": BATCH_SIZE, "numpartitions": WRITERS, "writers": WRITERS}
"""Common spellings of our options, in lower case."""


_VERSION = ("format-version", "iceberg.format-version")


_PROPERTIES = {
    "delta.": "a property of Delta tables, which no refresh sets; 'version_max_age' says how long versions stay; remove it",
    **dict.fromkeys(
        ("write.", "commit.", "history.", "read."), "a property of Iceberg tables, which no refresh sets or heeds; remove it"
    ),
    "streaming-source.": "for sources; give it to the source that the query reads",
    "partition.time-": "for sources; give it to the source that the query reads",
}
"""Prefixes of options that have a meaning elsewhere, and what they are."""


def foreign_problems(options: Mapping[str, str], table_format: str) -> Iterator[tuple[str, str]]:
    """Yield options of a table that have a meaning elsewhere but no effect here, and what to write instead."""
    for option, value in options.items():
        if option in _VERSION and FORMATS[table_format].hides_keys:
            if value != "2":
                yield (
                    option,
                    "PyIceberg commits tables of Iceberg's format version 2, and reads others as sources; remove the option",
                )
        elif option in _VERSION:
            yield option, f"{option!r} is for Iceberg tables, and this one is of format {table_format}; remove it"
        elif kind := next((kind for prefix, kind in _PROPERTIES.items() if option.lower().startswith(prefix)), None):
            yield option, f"{option!r} is {kind}"
        elif option.lower() in _OF_SPARK and FORMATS[table_format].in_server:
            yield option, f"unknown option {option!r}; did you mean {_OF_SPARK[option.lower()]!r}?"
        elif option.startswith("partition") and not FORMATTER.fullmatch(option):
            yield option, f"unknown option {option!r}; the name of a formatter is {_FORMATTER_LIKE}"


def is_known(option: str) -> bool:
    """Return whether an option without a problem configures partitions, a server or the version of a format."""
    return option in (*_VERSION, *OPTIONS) or FORMATTER.fullmatch(option) is not None
