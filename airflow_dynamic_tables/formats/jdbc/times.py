"""How dates and times of a PostgreSQL table are read: as numbers that the server computes.

PostgreSQL's driver and Spark's JDBC reader make objects of Java's classes of them, which depend on the time zone of each Java
process: in an hour that a time zone skips, or in October 1582, these objects are other times than those of the server.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_dynamic_tables.clients.postgres.server import quote
from airflow_dynamic_tables.clients.postgres.types import is_array, spark_type, without_arguments
from airflow_dynamic_tables.core.refresh.plan import TimeColumn

_MIDNIGHT = "(extract(epoch FROM {})::numeric * 1000000)::bigint"
"""SQL for the microseconds of a time of a day, which before PostgreSQL 14 is exact up to a day's."""

_LATEST, _EARLIEST = 253402300799999000, -62135596800000000
"""What Spark takes infinity for: the last millisecond of the year 9999, and the beginning of the year 1; microseconds."""

_TIMESTAMP = (
    f"CASE WHEN {{0}} = 'infinity' THEN {_LATEST} WHEN {{0}} = '-infinity' THEN {_EARLIEST} ELSE "
    f"({{1}}::date - DATE '1970-01-01')::bigint * 86400000000 + {_MIDNIGHT.format('{1}::time')} END"
)

_NUMBERS = {
    "date": "CASE WHEN isfinite({0}) THEN {0} - DATE '1970-01-01' END",
    "time without time zone": _MIDNIGHT,
    "time with time zone": _MIDNIGHT,
    "timestamp without time zone": _TIMESTAMP.format("{0}", "{0}"),
    "timestamp with time zone": _TIMESTAMP.format("{0}", "({0} AT TIME ZONE 'UTC')"),
}
"""SQL for the days or microseconds since 1970, by type."""


def time_columns(types: Mapping[str, str]) -> tuple[TimeColumn, ...]:
    """The columns of a table that are read as numbers.

    :param types: PostgreSQL's by column, as ``format_type`` writes them.
    """
    timed = (column for column, formatted in types.items() if without_arguments(formatted) in _NUMBERS)
    return tuple(TimeColumn(name, f"_dynamic_table_time_{place}", spark_type(types[name])) for place, name in enumerate(timed))


def scanned(table: str, types: Mapping[str, str], timed: tuple[TimeColumn, ...]) -> str:
    """What Spark reads instead of a table: all its columns, by which scans are divided, and those of the numbers.

    :param table: its quoted name.
    :param timed: see :func:`time_columns`.
    """
    if not timed:
        return table
    columns = ", ".join(f"{_number(quote(column.name), types[column.name])} AS {column.number}" for column in timed)
    return f"(SELECT read.*, {columns} FROM {table} AS read) AS scanned"


def _number(column: str, formatted: str) -> str:
    column = f"read.{column}"
    expression = _NUMBERS[without_arguments(formatted)]
    if not is_array(formatted):
        return expression.format(column)
    # A cast that fails says which value has several dimensions.
    elements = f"ARRAY(SELECT {expression.format('element')} FROM unnest({column}) WITH ORDINALITY AS u(element, n) ORDER BY n)"
    return f"CASE WHEN array_ndims({column}) > 1 THEN {column}::text::bigint[] WHEN {column} IS NOT NULL THEN {elements} END"
