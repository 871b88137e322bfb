"""What the options of a table may say of how its rows get into a database server, and which options nothing heeds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.core.tables.formats import FORMATS

PREFIX = "jdbc."
"""How the names of these options begin."""

_BATCH_SIZE = f"{PREFIX}batch-size"
_WRITERS = f"{PREFIX}writers"

_MOST = {_BATCH_SIZE: 1_000_000, _WRITERS: 128}
"""The largest value of each: more rows than that are too much memory, and more connections than a server gives."""

OPTIONS = tuple(_MOST)
"""Options of a table that lies in a database server."""


FORMATTER = re.compile(r"partition\.fields\.(?P<column>.+)\.(?:date-formatter|time-formatter)")
"""Options of a table that say how a partition key is named by time."""

_FORMATTER_LIKE = "partition.fields.COLUMN.date-formatter"

_OF_SPARK = {"batchsize": _BATCH_SIZE, "batch-size": _BATCH_SIZE, "numpartitions": _WRITERS, "writers": _WRITERS}
"""What somebody may write, in lower case, who means one of ours."""

_VERSION = ("format-version", "iceberg.format-version")

_PROPERTIES = {
    "delta.": "a property of Delta tables, which no refresh sets; 'version_max_age' says how long versions stay; remove it",
    **dict.fromkeys(
        ("write.", "commit.", "history.", "read."), "a property of Iceberg tables, which no refresh sets or heeds; remove it"
    ),
    "streaming-source.": "for sources; give it to the source that the query reads",
    "partition.time-": "for sources; give it to the source that the query reads",
}
"""How the names of options begin that mean something elsewhere, and what they are."""


def option_problems(options: Mapping[str, str], table_format: str | None) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a table that concern its way into a server: option, and what to write instead.

    :param table_format: that of the table; ``None`` for options that hold for tables of any format.
    """
    for option, value in options.items():
        if not option.startswith(PREFIX):
            continue
        if option not in _MOST:
            yield option, f"unknown option {option!r}{did_you_mean(option, OPTIONS)}; known are {', '.join(OPTIONS)}"
        elif table_format is not None and not concerns(option, table_format):
            yield option, f"{option!r} is for tables in a database server, and this one is of format {table_format}; remove it"
        elif not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST[option]):
            yield option, f"{value!r} is no number from 1 to {_MOST[option]:_}".replace("_", " ")


def foreign_problems(options: Mapping[str, str], table_format: str) -> Iterator[tuple[str, str]]:
    """Options of a table that mean something elsewhere and nothing here, and what to write instead."""
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
    """Whether an option without a problem is for partitions, a server or the version of a format."""
    return option in (*_VERSION, *OPTIONS) or FORMATTER.fullmatch(option) is not None


def concerns(option: str, table_format: str) -> bool:
    """Whether an option says anything of tables of a format: these only of those in a server."""
    return not option.startswith(PREFIX) or FORMATS[table_format].in_server


def tuned(sink: Sink, options: Mapping[str, str]) -> Sink:
    """A sink as the options of its table say; they are without a mistake."""
    return replace(
        sink,
        batch_size=int(options.get(_BATCH_SIZE, sink.batch_size)),
        writers=int(options.get(_WRITERS, sink.writers)),
    )
