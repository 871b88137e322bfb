"""How a table of a PostgreSQL server is read: by Spark's JDBC reader, at a snapshot that the server holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, quote
from airflow_dynamic_tables.clients.postgres.tables import PostgresTable, columns_of, find_table, list_databases, types_of
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.formats.jdbc import times


def bind(source: Source, store: PostgresStore, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - as it is
    """Bind a table to a snapshot of its database, which the server holds until its catalog is closed.

    Every connection of Spark's reads that same snapshot, however many partitions it reads at once. Bounds that the options of
    the source leave out for their ``partitionColumn`` are looked up.

    :raises TableNotFoundError: when the table is missing.
    :raises ConfigurationError: when the partition column is.
    """
    server = store.server
    path = source.identifier.path
    _check_database(source, store)
    snapshot = server.export_snapshot(path.database)
    with server.connected(path.database) as database:
        table = _table(database, source, store)
        bounds = _bounds(database, table, source.options)
        types = types_of(database, table)
    timed = times.time_columns(types)
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format="jdbc",
        version=f"snapshot:{snapshot}",
        options={
            "fetchsize": "10000",  # rows; without it, the driver fetches all at once, and outside of a transaction
            **bounds,
            **source.options,
            "url": server.jdbc_url(path.database),
            "driver": "org.postgresql.Driver",
            "dbtable": times.scanned(table.quoted, types, timed),
            "sessionInitStatement": f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'",
            **({"user": server.user} if server.user else {}),
        },
        password_variable=next(iter(store.passwords), None),
        has_files=False,
        times=timed,
        # The name of a snapshot may come again when the server was started anew, so it tells nothing of the rows.
        state=SourceState(version=f"snapshot:{snapshot}", location=server.jdbc_url(path.database)),
    )


def count(source: Source, store: PostgresStore, partition: Mapping[str, str], least: int) -> int:
    """Rows of a table, or those with some values in its columns; the server stops counting at ``least``.

    :raises TableNotFoundError: when the table is missing.
    :raises ConfigurationError: when a column is.
    :raises CatalogUnavailableError: when the server cannot be reached, or a value is none of its column.
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
    """The columns of a table and their types.

    :raises ConfigurationError: when a needed one is not among them.
    """
    types = {one.name: one.type for one in columns_of(database, table)}
    for column in needed:
        if column not in types:
            raise ConfigurationError(f"{table.listed} has no column {column!r} to read partitions by; it has {', '.join(types)}.")
    return types


def _bounds(database: OpenDatabase, table: PostgresTable, options: Mapping[str, str]) -> dict[str, str]:
    """Spark's options for reading a table by strides of its partition column; none when the options name no such column."""
    column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
    if column is None:
        return {}
    types = _types(database, table, [column])

    # Only strides are made of them, no filters: they need not be of the same snapshot.
    name = quote(column)
    (bounds,) = database.rows(f"SELECT min({name})::text AS low, max({name})::text AS high FROM {table.quoted}")
    low = bounds.low
    high = bounds.high
    if low is None:  # an empty table; Spark wants bounds all the same
        low = high = "1970-01-01" if types[column] in ("date", "timestamp", "timestamp_ntz") else "0"
    return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}
