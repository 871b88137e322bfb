"""How tables of ours are named in a PostgreSQL database: themselves, their stages, and the tables that tell of their versions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.server import quote
from airflow_dynamic_tables.exceptions import UnsupportedError

COMMITS = "_dynamic_table_commits"
"""The table with a row for every commit, in the schema of the tables that it tells of: whoever may make these may make it."""

ENTRIES = "_dynamic_tables"
"""The table with what a catalog keeps of dynamic tables, in their schema."""

STAGE = "__stage_"
"""What stands between the name of a table and the token in the name of a stage table."""

LONGEST = 63
"""Bytes of a name in PostgreSQL, which cuts off the rest without an error."""

_PUBLIC = "public"

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16}")
"""A token as Airflow makes them, or the digest that stands for one."""

_DIGEST = 16

_ROOM = LONGEST - len(f"_{STAGE}") - _DIGEST
"""Bytes that a stage has of the name of its table where the whole of it is too long."""


def is_own(table: str) -> bool:
    """Whether a table goes by a name that only this package gives; one that is called otherwise is nobody's stage."""
    _, is_stage, token = table.rpartition(STAGE)
    return table in (COMMITS, ENTRIES) or bool(is_stage and _TOKEN.fullmatch(token))


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of one table in a database."""

    schema: str
    table: str

    @classmethod
    def parse(cls, name: str) -> TableName:
        """What ``schema.table`` names, or a table of schema ``public``; what follows the first dot is the name of the table.

        :raises UnsupportedError: when no table of ours can have that name.
        """
        schema, dot, table = name.partition(".")
        schema, table = (schema, table) if dot else (_PUBLIC, name)
        for part in (schema, table):
            if not part:
                raise UnsupportedError(f"{name!r} names no table of PostgreSQL; write schema.table.")
            if len(part.encode()) > LONGEST:
                size = len(part.encode())
                raise UnsupportedError(
                    f"PostgreSQL cuts names off after {LONGEST} bytes, and {part!r} has {size}; choose a shorter one."
                )
        if schema.startswith("pg_") or schema == "information_schema":
            raise UnsupportedError(f"Schema {schema} is PostgreSQL's own, so {name} cannot be made there; choose another schema.")
        if table in (COMMITS, ENTRIES) or STAGE in table:
            raise UnsupportedError(f"Names such as {table} are those of this package's own tables; choose another one.")
        return cls(schema, table)

    def stage(self, token: str) -> TableName:
        """The table that a refresh writes into; the names of two tables or tokens are never the same, however long they are."""
        readable = f"{self.table}{STAGE}{token}"
        if len(readable.encode()) <= LONGEST:
            return TableName(self.schema, readable)
        digest = hashlib.sha256(f"{self.table}{STAGE}{token}".encode()).hexdigest()[:_DIGEST]
        return TableName(self.schema, f"{self.table.encode()[:_ROOM].decode(errors='ignore')}{STAGE}{digest}")

    @property
    def has_namesakes(self) -> bool:
        """Whether stages of tables with longer names may be called as if they were its own; a cut character has up to 4 bytes."""
        return _ROOM - 3 <= len(self.table.encode()) <= _ROOM

    @property
    def listed(self) -> str:
        """The name it goes by in a catalog."""
        return self.table if self.schema == _PUBLIC else f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """Its full name in SQL."""
        return quote(self.schema, self.table)

    @property
    def commits(self) -> str:
        """The full name in SQL of the table that tells of its commits."""
        return quote(self.schema, COMMITS)

    @property
    def entries(self) -> str:
        """The full name in SQL of the table with what catalogs keep of it."""
        return quote(self.schema, ENTRIES)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"
