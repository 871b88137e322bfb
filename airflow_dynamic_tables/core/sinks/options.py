"""What the options of a table may say of how its rows get into a database server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.core.tables.formats import FORMATS

PREFIX = "jdbc."
"""How the names of these options begin."""

BATCH_SIZE = f"{PREFIX}batch-size"
WRITERS = f"{PREFIX}writers"

_MOST = {BATCH_SIZE: 1_000_000, WRITERS: 128}
"""The largest value of each: more rows than that are too much memory, and more connections than a server gives."""

OPTIONS = tuple(_MOST)
"""Options of a table that lies in a database server."""


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


def concerns(option: str, table_format: str) -> bool:
    """Whether an option says anything of tables of a format: these only of those in a server."""
    return not option.startswith(PREFIX) or FORMATS[table_format].in_server


def tuned(sink: Sink, options: Mapping[str, str]) -> Sink:
    """A sink as the options of its table say; they are without a mistake."""
    return replace(
        sink,
        batch_size=int(options.get(BATCH_SIZE, sink.batch_size)),
        writers=int(options.get(WRITERS, sink.writers)),
    )
