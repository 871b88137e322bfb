"""How a table of a PostgreSQL server is read: by Spark's JDBC reader, at a snapshot that the server holds."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, quote
from airflow_dynamic_tables.clients.postgres.tables import PostgresTable, columns_of, find_table, list_databases
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError


def bind(source: Source, store: PostgresStore, view: str) -> SourceBinding:
    """Bind a table to a snapshot of its database, which the server holds until its catalog is closed.

    Every connection of Spark's reads that same snapshot, however many partitions it reads at once. Bounds that the options of
    the source leave out for their ``partitionColumn`` are looked up.

    :raises TableNotFoundError: when the table is missing.
    :raises ConfigurationError: when the partition column is.
    """
    server = store.server
    path = source.identifier.path
    missing = TableNotFoundError(f"Table (or view) {path} does not exist in catalog {store.catalog}.")
    if path.database not in list_databases(server, server.database or "postgres"):
        raise missing
    snapshot = server.export_snapshot(path.database)
    with server.connected(path.database) as database:
        table = find_table(database, path.name)
        if table is None:
            raise missing
        bounds = _bounds(database, table, source.options)
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
            "dbtable": table.quoted,
            "sessionInitStatement": f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'",
            **({"user": server.user} if server.user else {}),
        },
        password_variable=next(iter(store.passwords), None),
        has_files=False,
        # The name of a snapshot may come again when the server was started anew, so it tells nothing of the rows.
        state=SourceState(version=f"snapshot:{snapshot}", location=server.jdbc_url(path.database)),
    )


def _bounds(database: OpenDatabase, table: PostgresTable, options: Mapping[str, str]) -> dict[str, str]:
    """Spark's options for reading a table by strides of its partition column; none when the options name no such column."""
    column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
    if column is None:
        return {}
    types = {one.name: one.type for one in columns_of(database, table)}
    if column not in types:
        raise ConfigurationError(f"{table.listed} has no column {column!r} to read partitions by; it has {', '.join(types)}.")

    # Only strides are made of them, no filters: they need not be of the same snapshot.
    name = quote(column)
    (bounds,) = database.rows(f"SELECT min({name})::text AS low, max({name})::text AS high FROM {table.quoted}")
    low = bounds.low
    high = bounds.high
    if low is None:  # an empty table; Spark wants bounds all the same
        low = high = "1970-01-01" if types[column] in ("date", "timestamp") else "0"
    return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}
