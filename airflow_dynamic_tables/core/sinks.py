"""A database table that a job writes its rows to, and the options of such tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.mistakes import did_you_mean

DEFAULT_BATCH_SIZE = 10_000
"""Default number of rows sent per batch."""

DEFAULT_WRITERS = 4
"""Default number of concurrent connections."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The stage of a refresh as a table of a server instead of data files.

    ``url`` is a JDBC URL, ``driver`` its class; neither has a login: that is ``user``, whose password the job reads from
    environment variable ``password_variable``. ``table`` is the qualified, quoted name in the server's SQL. ``batch_size`` is the
    number of rows sent at once, ``writers`` the number of concurrent connections.

    The job creates the table, replacing one of an earlier attempt, as an ordinary logged table, so that it can become the
    published table. Its columns are the query's, in the same order, nullable, with the types of Spark's dialect of the server;
    other properties of the published table (indexes, constraints, altered types) are the commit's responsibility. The job then
    fills it from data files below the stage's folder, which are not used otherwise. Ending the stage drops the table, unless it
    was published, and deletes the folder, even after the job was killed.
    """

    url: str
    driver: str
    table: str
    user: str | None = None
    password_variable: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    writers: int = DEFAULT_WRITERS


PREFIX = "jdbc."
"""Prefix of these options."""

BATCH_SIZE = f"{PREFIX}batch-size"
WRITERS = f"{PREFIX}writers"

_MOST = {BATCH_SIZE: 1_000_000, WRITERS: 128}
"""The maximum of each option, to limit memory use and the number of connections to a server."""

OPTIONS = tuple(_MOST)
"""Options of tables in a database server."""


def option_problems(options: Mapping[str, str], table_format: str | None) -> Iterator[tuple[str, str]]:
    """Validate the server options of a table; yields an option and the correction of its mistake.

    :param table_format: that of the table; ``None`` for options of tables of any format.
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
    """Return whether an option applies to tables of a format; these options only apply to tables in a server."""
    return not option.startswith(PREFIX) or FORMATS[table_format].in_server


def tuned(sink: Sink, options: Mapping[str, str]) -> Sink:
    """A sink with the settings of its table's valid options."""
    return replace(
        sink,
        batch_size=int(options.get(BATCH_SIZE, sink.batch_size)),
        writers=int(options.get(WRITERS, sink.writers)),
    )
