"""Tables as defined in the server, conditions on their rows, and the checks of a stage.

Conditions compare values by the equality of their column types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.ddl import TableName, spark_type
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, literal, quote
from airflow_dynamic_tables.clients.postgres.tables import is_made_here, occupant
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet, describe
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError, TableAlreadyExistsError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_rows
from airflow_dynamic_tables.formats.postgres import records

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
    """A column as defined in the server.

    ``type`` is the PostgreSQL type and ``spark`` the type Spark reads it as. ``collation`` is the id of a collation other than
    that of the type, or 0. ``is_lenient`` is whether different texts compare as equal, such as texts that differ only in case.
    ``is_filled`` is whether the server fills the column.
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
class DefinedTable:
    """A table as defined in the server."""

    name: TableName
    oid: int
    comment: str | None
    columns: tuple[ServerColumn, ...]
    is_partitioned: bool = False

    @property
    def types(self) -> dict[str, str]:
        """PostgreSQL types by column."""
        return {column.name: column.type for column in self.columns}

    def value(self, key: str) -> str:
        """Return SQL for a column's value that distinguishes partitions even under a lenient collation."""
        is_lenient = any(column.is_lenient for column in self.columns if column.name == key)
        return f'{quote(key)}::text COLLATE "C"' if is_lenient else quote(key)

    def has_rows(self, database: OpenDatabase) -> bool:
        """Return whether the table has any rows."""
        return bool(database.rows(f"SELECT 1 FROM {self.name.quoted} LIMIT 1"))

    def condition(self, partitions: PartitionSet) -> str:
        """Return SQL that is true for the rows of the given partitions, and false or null for all others."""
        return _any_of(self._of_spec(spec) for spec in partitions)

    def conditions(self, partitions: PartitionSet) -> list[str]:
        """Return a :meth:`condition` for each partition spec."""
        return [self._of_spec(spec) for spec in partitions]

    def _of_spec(self, spec: Mapping[str, str | None]) -> str:
        if missing := set(spec) - set(self.types):
            raise StageRejectedError(f"{self.name} has no column {min(missing)!r}, by which partitions are named.")
        return " AND ".join(self._equals(key, value) for key, value in spec.items()) or "true"

    def _equals(self, key: str, value: str | None) -> str:
        if value is None or value == NULL_PARTITION:
            return f"{quote(key)} IS NULL"
        # No cast: with a length or precision, a cast would truncate or round the value to that of another partition.
        return f"{self.value(key)} = {literal(value)}"


def find(database: OpenDatabase, name: TableName) -> DefinedTable | None:
    """Return the table with this name, or ``None`` if the name is free.

    :raises StageRejectedError: if the name belongs to an object that is not a table.
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
    return DefinedTable(name, rows[0].oid, rows[0].comment, columns, is_partitioned=rows[0].kind == "p")


def layout_columns(table: DefinedTable, known: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of a table that queries have to return.

    Columns written by a commit keep their recorded type, because several Spark types map to one PostgreSQL type. Columns that a
    user had the server compute are omitted.
    """
    made = {column.name: column for column in known}
    return tuple(
        Column(
            column.name,
            made[column.name].type if column.name in made else column.spark,
            made[column.name].nullable if column.name in made else True,  # the server enforces a NOT NULL added by users
            column.comment,
        )
        for column in table.columns
        if column.name in made or not column.is_filled
    )


def _any_of(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


_TEXTS = ("text", "character varying", "character")


_REWRITING = """
SELECT DISTINCT 'the trigger ' || tgname AS what FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'
  AND (tgrelid = %(oid)s OR tgrelid IN (SELECT relid FROM pg_partition_tree(%(oid)s::bigint::regclass)))
UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite WHERE ev_class = %(oid)s AND ev_enabled <> 'D' ORDER BY 1
"""


def check_free(database: OpenDatabase, name: TableName) -> None:
    """Check that the name of a new table is free.

    :raises TableAlreadyExistsError: if it belongs to an object that reads as a table; the message names its owner.
    :raises StageRejectedError: if it belongs to any other object.
    """
    there = occupant(database, name)
    if there is None:
        return
    if not there.is_table:
        raise StageRejectedError(f"{name} is {there.kind} of user {there.owner} and no table; drop it, or choose another name.")
    record = records.look(database, name).record
    by = f", which {record.version.token} made" if record is not None and is_made_here(database, name) else ""
    raise TableAlreadyExistsError(f"{name} is there already, {there.kind} of user {there.owner}{by}; it stays as it is.")


def checked_stage(database: OpenDatabase, name: TableName, request: CommitRequest) -> DefinedTable:
    """Return the stage table after checking it against the job's result and the plan."""
    stage = find(database, name)
    if stage is None:
        raise StageRejectedError(f"The stage table {name} is missing or damaged; refresh again.")
    # A job that was presumed dead may still be writing to it.
    database.run(f"LOCK TABLE {name.quoted} IN ACCESS EXCLUSIVE MODE")
    wanted = [column.name for column in request.result.columns]
    if [*stage.types] != wanted:
        raise StageRejectedError(f"The stage table {name} has the columns {', '.join(stage.types)}, not {', '.join(wanted)}.")
    _check_moments(stage, request)
    planned = stage.condition(request.partitions)
    texts = [key for key in request.partition_keys if stage.types.get(key, "").partition("(")[0] in _TEXTS]
    reserved = " OR ".join(f"{quote(key)}::text = {literal(NULL_PARTITION)}" for key in texts) or "false"
    (counted,) = database.rows(
        f"SELECT count(*) AS rows, count(*) FILTER (WHERE ({planned}) IS NOT TRUE) AS strange, "
        f"count(*) FILTER (WHERE {reserved}) AS reserved FROM {name.quoted}"
    )
    check_rows(counted.rows, request.result)
    if counted.reserved:
        raise StageRejectedError(
            f"A partition key has the text {NULL_PARTITION}, which stands for null; the query has to replace it."
        )
    if counted.strange:
        raise StageRejectedError(
            f"A row is of partition {_first_strange(database, stage, planned, request)}, which was not planned."
        )
    return stage


def _check_moments(stage: DefinedTable, request: CommitRequest) -> None:
    """Check that no partition of a ``timestamp with time zone`` key is planned.

    Planned values have no time zone, and the server's may differ from Spark's.
    """
    values = ((key, value) for spec in request.partitions for key, value in spec.items())
    for key, value in values:
        if value not in (None, NULL_PARTITION) and stage.types.get(key, "").endswith(" with time zone"):
            raise StageRejectedError(
                f"Partition key {key} is a moment, and {value} is another one in every time zone, so the partition cannot be "
                "replaced; CAST the key in the query AS TIMESTAMP_NTZ, DATE or STRING."
            )


def _first_strange(database: OpenDatabase, stage: DefinedTable, planned: str, request: CommitRequest) -> str:
    keys = ", ".join(f"{quote(key)}::text" for key in request.partition_keys) or "'' AS nothing"
    rows = database.rows(f"SELECT {keys} FROM {stage.name.quoted} WHERE ({planned}) IS NOT TRUE LIMIT 1")
    return shown(describe(dict(zip(request.partition_keys, rows[0], strict=False))))


def check_conversions(database: OpenDatabase, stage: DefinedTable, target: DefinedTable) -> None:
    """Check that the columns of a table can store the staged values without loss if users changed their types.

    :raises StageRejectedError: if a value would be rounded or truncated.
    """
    types = target.types
    for name, kind in stage.types.items():
        if types.get(name, kind) == kind:
            continue
        column = quote(name)
        back = f"CAST(CAST({column} AS {types[name]}) AS {kind}) IS DISTINCT FROM {column}"
        lost = database.rows(f"SELECT {column}::text AS value FROM {stage.name.quoted} WHERE {back} LIMIT 1")
        if lost:
            raise StageRejectedError(
                f"Column {name} of {target.name} is {types[name]}, which cannot hold {shown(str(lost[0].value))} of type {kind}; "
                "alter the column, or CAST it in the query."
            )


def check_inserted(database: OpenDatabase, stage: DefinedTable, target: DefinedTable, condition: str) -> None:
    """Check that triggers and rules of a table did not change the inserted rows.

    :param target: the table before columns were added to it.
    :param condition: SQL that is true for the inserted rows; their number is known to equal that of the staged rows.
    :raises StageRejectedError: names the triggers and rules of the table.
    """
    rewriting = [row.what for row in database.rows(_REWRITING, {"oid": target.oid})]
    if not rewriting:
        return
    database.run("SET CONSTRAINTS ALL IMMEDIATE")  # run deferred triggers now
    # Compared as texts: not all types are comparable, and some collations treat different texts as equal.
    types = stage.types | target.types
    staged = ", ".join(f'CAST({quote(name)} AS {types[name]})::text COLLATE "C"' for name in stage.types)
    held = ", ".join(f'{quote(name)}::text COLLATE "C"' for name in stage.types)
    missing = f"SELECT {staged} FROM {stage.name.quoted} EXCEPT ALL SELECT {held} FROM {target.name.quoted} WHERE {condition}"
    if database.rows(f"SELECT 1 FROM ({missing} LIMIT 1) AS missing"):
        raise StageRejectedError(
            f"{target.name} does not hold the rows that the query returned: it has {' and '.join(rewriting[:5])}. Nothing was "
            "published; drop what changes the rows, or let it write them as they come."
        )
