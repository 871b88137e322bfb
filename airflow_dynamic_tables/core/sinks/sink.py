"""A table of a database server that a job writes its rows into."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BATCH_SIZE = 10_000
"""Rows that go over the wire at once when nobody says otherwise."""

DEFAULT_WRITERS = 4
"""Connections that write at the same time when nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The stage of a refresh that is a table of a server instead of data files.

    ``url`` is JDBC's, ``driver`` its class; neither has a login: that is ``user``, whose password the job finds in environment
    variable ``password_variable``. ``table`` is the full name in the server's SQL, quoted. ``batch_size`` is how many rows go
    over the wire at once, ``writers`` how many connections write at the same time.

    The job makes that table, in place of one that an earlier try of the same job left, and logged as any other, so that it can
    become the table itself. Its columns are those of the query, in the same order, each nullable and of the type that Spark's
    dialect of the server gives it; what the table has otherwise (indexes, constraints, types that somebody changed) is for the
    commit to see to. Then the job fills it from data files below the stage's folder, which nobody else needs. Whoever ends the
    stage drops the table, unless it was published, and deletes the folder, also when the job was killed midway.
    """

    url: str
    driver: str
    table: str
    user: str | None = None
    password_variable: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    writers: int = DEFAULT_WRITERS
