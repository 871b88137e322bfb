"""Reading PostgreSQL tables with Spark's JDBC reader, at an exported snapshot.

Dates and times are read as numbers computed by the server. The PostgreSQL driver and Spark's JDBC reader convert them to Java
objects that depend on the time zone of each Java process: in an hour skipped by a time zone, or in October 1582, these objects
represent other times than those of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_dynamic_tables.clients.postgres.ddl import is_array, spark_type, without_arguments
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, quote
from airflow_dynamic_tables.clients.postgres.tables import PostgresTable, columns_of, find_table, list_databases, types_of
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, TimeColumn
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError

_MIDNIGHT = "(extract(epoch FROM {})::numeric * 1000000)::bigint"
"""SQL for the microseconds of a time of day; before PostgreSQL 14 they are exact only up to one day."""

_LATEST, _EARLIEST = 253402300799999000, -62135596800000000
"""Spark's values for ``infinity`` and ``-infinity`` in microseconds: the last millisecond of 9999 and the start of year 1."""

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


def bind(source: Source, store: PostgresStore, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a table to a snapshot of its database, which the server holds until its catalog is closed.

    All connections of Spark read this snapshot, however many partitions are read in parallel. Bounds that the source options omit
    for their ``partitionColumn`` are queried.

    :raises TableNotFoundError: if the table does not exist.
    :raises ConfigurationError: if the partition column does not exist.
    """
    server = store.server
    path = source.identifier.path
    _check_database(source, store)
    snapshot = server.export_snapshot(path.database)
    with server.connected(path.database) as database:
        table = _table(database, source, store)
        bounds = _bounds(database, table, source.options)
        types = types_of(database, table)
    timed = _time_columns(types)
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format="jdbc",
        version=f"snapshot:{snapshot}",
        options={
            "fetchsize": "10000",  # rows; otherwise the driver fetches all rows at once, outside of a transaction
            **bounds,
            **source.options,
            "url": server.jdbc_url(path.database),
            "driver": "org.postgresql.Driver",
            "dbtable": _scanned(table.quoted, types, timed),
            "sessionInitStatement": f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'",
            **({"user": server.user} if server.user else {}),
        },
        password_variable=next(iter(store.passwords), None),
        has_files=False,
        times=timed,
        # Snapshot names may repeat after a server restart, so they do not identify rows.
        state=SourceState(version=f"snapshot:{snapshot}", location=server.jdbc_url(path.database)),
    )


def count(source: Source, store: PostgresStore, partition: Mapping[str, str], least: int) -> int:
    """Count the rows of a table, optionally with given column values, up to ``least``.

    :raises TableNotFoundError: if the table does not exist.
    :raises ConfigurationError: if a column does not exist.
    :raises CatalogUnavailableError: if the server cannot be reached, or a value is invalid for its column.
    """
    _check_database(source, store)
    with store.server.connected(source.identifier.database) as database:
        table = _table(database, source, store)
        _types(database, table, partition)
        conditions = []
        values: dict[str, object] = {"least": least}
        for number, (column, value) in enumerate(partition.items()):
            if value == NULL_PARTITION:
                conditions.append(f"{quote(column)} IS NULL".replace("%", "%%"))
            else:
                conditions.append(f"{quote(column).replace('%', '%%')} = %(value_{number})s")
                values[f"value_{number}"] = value
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        name = table.quoted.replace("%", "%%")
        rows = database.rows(f"SELECT count(*) AS counted FROM (SELECT 1 FROM {name}{where} LIMIT %(least)s) AS wanted", values)
    return int(rows[0].counted)


def _check_database(source: Source, store: PostgresStore) -> None:
    if source.identifier.database not in list_databases(store.server, store.server.database or "postgres"):
        raise _missing(source, store)


def _table(database: OpenDatabase, source: Source, store: PostgresStore) -> PostgresTable:
    table = find_table(database, source.identifier.table)
    if table is None:
        raise _missing(source, store)
    return table


def _missing(source: Source, store: PostgresStore) -> TableNotFoundError:
    return TableNotFoundError(f"Table (or view) {source.identifier.path} does not exist in catalog {store.catalog}.")


def _types(database: OpenDatabase, table: PostgresTable, needed: Iterable[str]) -> dict[str, str]:
    """Return the columns of a table and their types.

    :raises ConfigurationError: if a needed column does not exist.
    """
    types = {one.name: one.type for one in columns_of(database, table)}
    for column in needed:
        if column not in types:
            raise ConfigurationError(f"{table.listed} has no column {column!r} to read partitions by; it has {', '.join(types)}.")
    return types


def _bounds(database: OpenDatabase, table: PostgresTable, options: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's options for reading by strides of the partition column; empty if the options name none."""
    column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
    if column is None:
        return {}
    types = _types(database, table, [column])

    # The bounds only define strides and filter no rows, so they may be of another snapshot.
    name = quote(column)
    (bounds,) = database.rows(f"SELECT min({name})::text AS low, max({name})::text AS high FROM {table.quoted}")
    low = bounds.low
    high = bounds.high
    if low is None:  # an empty table; Spark requires bounds anyway
        low = high = "1970-01-01" if types[column] in ("date", "timestamp", "timestamp_ntz") else "0"
    return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}


def _time_columns(types: Mapping[str, str]) -> tuple[TimeColumn, ...]:
    """Return the columns that are read as numbers.

    :param types: PostgreSQL types by column, as ``format_type`` writes them.
    """
    timed = (column for column, formatted in types.items() if without_arguments(formatted) in _NUMBERS)
    return tuple(TimeColumn(name, f"_dynamic_table_time_{place}", spark_type(types[name])) for place, name in enumerate(timed))


def _scanned(table: str, types: Mapping[str, str], timed: tuple[TimeColumn, ...]) -> str:
    """Return the query that Spark reads instead of the table: all columns, needed for strides, and the numbers.

    :param table: the quoted name.
    :param timed: see :func:`_time_columns`.
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
    # The failing cast reports the value with several dimensions.
    elements = f"ARRAY(SELECT {expression.format('element')} FROM unnest({column}) WITH ORDINALITY AS u(element, n) ORDER BY n)"
    return f"CASE WHEN array_ndims({column}) > 1 THEN {column}::text::bigint[] WHEN {column} IS NOT NULL THEN {elements} END"
