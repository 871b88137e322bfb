"""Options of other engines that have no effect on a table here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.partition_dates import FORMATTER
from airflow_dynamic_tables.core.sinks import BATCH_SIZE, OPTIONS, WRITERS

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
