"""A table as the server has it, and conditions on its rows: values are compared as the types of their columns compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, literal, quote
from airflow_dynamic_tables.clients.postgres.types import spark_type
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError

_TABLE = """
SELECT c.oid::bigint AS oid, c.relkind::text AS kind, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""
_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
  col_description(a.attrelid, a.attnum) AS comment,
  CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END AS base,
  CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::bigint ELSE 0 END AS collation,
  b.typname IN ('bpchar', 'citext') OR NOT coalesce(o.collisdeterministic, true) AS is_lenient,
  a.attidentity <> '' OR a.attgenerated <> '' AS is_filled
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
LEFT JOIN pg_collation o ON o.oid = a.attcollation
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "c": "a type"}


@dataclass(frozen=True, slots=True)
class ServerColumn:
    """A column as the server has it; ``type`` is PostgreSQL's, ``spark`` what Spark reads it as, ``collation`` one of its own.

    ``is_lenient`` is whether texts are equal there that are not the same, such as in upper and lower case; ``is_filled`` whether
    the server fills the column.
    """

    name: str
    type: str
    spark: str
    required: bool
    comment: str | None
    collation: int
    is_lenient: bool
    is_filled: bool


@dataclass(frozen=True, slots=True)
class ServerTable:
    """A table as the server has it."""

    name: TableName
    oid: int
    comment: str | None
    columns: tuple[ServerColumn, ...]
    is_partitioned: bool = False

    @property
    def types(self) -> dict[str, str]:
        """PostgreSQL's types by column."""
        return {column.name: column.type for column in self.columns}

    def value(self, key: str) -> str:
        """SQL for the value of a column, as it is told from others where partitions are."""
        is_lenient = any(column.is_lenient for column in self.columns if column.name == key)
        return f'{quote(key)}::text COLLATE "C"' if is_lenient else quote(key)

    def has_rows(self, database: OpenDatabase) -> bool:
        """Whether it has any row."""
        return bool(database.rows(f"SELECT 1 FROM {self.name.quoted} LIMIT 1"))

    def condition(self, partitions: PartitionSet) -> str:
        """SQL that is true for the rows of some partitions, and for others false or null."""
        return _any_of(self._of_spec(spec) for spec in partitions)

    def conditions(self, partitions: PartitionSet) -> list[str]:
        """As :meth:`condition`, for each spec."""
        return [self._of_spec(spec) for spec in partitions]

    def _of_spec(self, spec: Mapping[str, str | None]) -> str:
        if missing := set(spec) - set(self.types):
            raise StageRejectedError(f"{self.name} has no column {min(missing)!r}, by which partitions are named.")
        return " AND ".join(self._equals(key, value) for key, value in spec.items()) or "true"

    def _equals(self, key: str, value: str | None) -> str:
        if value is None or value == NULL_PARTITION:
            return f"{quote(key)} IS NULL"
        # No cast: it would round a value, or cut it off, to that of another partition when the type has a length or a precision.
        return f"{self.value(key)} = {literal(value)}"


def find(database: OpenDatabase, name: TableName) -> ServerTable | None:
    """The table of that name; ``None`` when there is none.

    :raises StageRejectedError: when something else has the name.
    """
    rows = database.rows(_TABLE, {"schema": name.schema, "table": name.table})
    if not rows:
        return None
    if rows[0].kind not in ("r", "p"):
        kind = _KINDS.get(rows[0].kind, "something else")
        raise StageRejectedError(f"{name} is {kind} and no table; drop it, or choose another name for the table.")
    columns = tuple(
        ServerColumn(
            row.name, row.type, spark_type(row.base), row.required, row.comment, row.collation, row.is_lenient, row.is_filled
        )
        for row in database.rows(_COLUMNS, {"oid": rows[0].oid})
    )
    return ServerTable(name, rows[0].oid, rows[0].comment, columns, is_partitioned=rows[0].kind == "p")


def layout_columns(table: ServerTable, known: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of a table as queries have to return them.

    Of those that a commit made the type is known; several of Spark's types are one in PostgreSQL. Those that somebody had the
    server fill, no query returns.
    """
    made = {column.name: column for column in known}
    return tuple(
        Column(
            column.name,
            made[column.name].type if column.name in made else column.spark,
            made[column.name].nullable if column.name in made else True,  # what somebody made NOT NULL the server keeps so
            column.comment,
        )
        for column in table.columns
        if column.name in made or not column.is_filled
    )


def _any_of(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"
