"""PostgreSQL types as Spark's JDBC reader maps them (source: ``PostgresDialect`` of Spark 4.2), and names of tables."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.server import quote
from airflow_dynamic_tables.core.types import Array, Primitive
from airflow_dynamic_tables.exceptions import UnsupportedError

_FORMATTED = re.compile(r"(?P<name>[^(\[]+?)\s*(?:\((?P<arguments>[\d,]+)\))?(?P<zone> with(?:out)? time zone)?(?P<array>\[\])*")

_MAX_PRECISION = 38
"""Maximum precision of Spark's decimal."""

_UNBOUNDED = (_MAX_PRECISION, 18)
"""Precision and scale of a ``numeric`` without modifiers."""

_TIMES = ("time", "timestamp")

_SPARK = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "bytea": "binary",
}


def spark_type(formatted: str) -> str:
    """Spark's DDL of a type as formatted by ``format_type``, e.g. ``numeric(10,2)[]``; types unknown to Spark become strings."""
    match = _FORMATTED.fullmatch(formatted)
    if match is None:
        return "string"
    name = match["name"].removesuffix(" with time zone").removesuffix(" without time zone")
    if name in _TIMES:
        kind = Primitive("timestamp" if " with time zone" in formatted else "timestamp_ntz")
    else:
        kind = _primitive(name, match["arguments"])
    return str(Array(kind) if match["array"] else kind)


def without_arguments(formatted: str) -> str:
    """The type of the values, or of the elements of an array, without length and precision."""
    match = _FORMATTED.fullmatch(formatted)
    return formatted if match is None else f"{match['name']}{match['zone'] or ''}"


def is_array(formatted: str) -> bool:
    """Return whether a type is an array type."""
    return formatted.endswith("[]")


def _primitive(name: str, arguments: str | None) -> Primitive:
    match name:
        case "numeric":
            return Primitive("decimal", _precision_and_scale(arguments))
        case "oid":
            return Primitive("decimal", (20, 0))
        case "bit":
            return Primitive("boolean" if arguments in (None, "1") else "binary")
    return Primitive(_SPARK.get(name, "string"))


def _precision_and_scale(arguments: str | None) -> tuple[int, int]:
    if arguments is None:
        return _UNBOUNDED
    precision, scale = map(int, arguments.split(","))
    excess = max(0, precision - _MAX_PRECISION)
    return precision - excess, max(0, scale - excess)


COMMITS = "_dynamic_table_commits"
"""The table with a row per commit, in the schema of the tables it describes: creating both needs the same privilege."""

ENTRIES = "_dynamic_tables"
"""The table with a catalog's entries of dynamic tables, in their schema."""

STAGE = "__stage_"
"""Separator between table name and token in the name of a stage table."""

LONGEST = 63
"""Maximum bytes of a name in PostgreSQL, which truncates longer names silently."""

_PUBLIC = "public"

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16}")
"""A token in Airflow's format, or a digest in place of one."""

_DIGEST = 16

_ROOM = LONGEST - len(f"_{STAGE}") - _DIGEST
"""Bytes of the table name that remain in a stage's name when the full name is too long."""


def is_own(table: str) -> bool:
    """Return whether a name is one that only this package assigns, such as that of a stage."""
    _, is_stage, token = table.rpartition(STAGE)
    return table in (COMMITS, ENTRIES) or bool(is_stage and _TOKEN.fullmatch(token))


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of one table in a database."""

    schema: str
    table: str

    @classmethod
    def parse(cls, name: str) -> TableName:
        """Parse ``schema.table`` or the name of a table in schema ``public``; the table name follows the first dot.

        :raises UnsupportedError: when no dynamic table can have that name.
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
        """The table that a refresh writes to; its name is unique for a table and token, whatever their lengths."""
        readable = f"{self.table}{STAGE}{token}"
        if len(readable.encode()) <= LONGEST:
            return TableName(self.schema, readable)
        digest = hashlib.sha256(f"{self.table}{STAGE}{token}".encode()).hexdigest()[:_DIGEST]
        return TableName(self.schema, f"{self.table.encode()[:_ROOM].decode(errors='ignore')}{STAGE}{digest}")

    @property
    def has_namesakes(self) -> bool:
        """Return whether stages of tables with longer names may match its own; a truncated character has up to 4 bytes."""
        return _ROOM - 3 <= len(self.table.encode()) <= _ROOM

    @property
    def listed(self) -> str:
        """The table's name in a catalog."""
        return self.table if self.schema == _PUBLIC else f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """The qualified name in SQL."""
        return quote(self.schema, self.table)

    @property
    def commits(self) -> str:
        """The qualified SQL name of the table with its commits."""
        return quote(self.schema, COMMITS)

    @property
    def entries(self) -> str:
        """The qualified SQL name of the table with its catalog entry."""
        return quote(self.schema, ENTRIES)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"
