"""What other engines do to a table of ours: they go back to an earlier version, append, rewrite, and clean away its history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.delta_tables import commit_file


def remembered(workspace: Workspace, table: TableIdentifier, table_format: str) -> Callable[[], None]:
    snapshot = int(workspace.table(table, table_format).read().snapshot)

    def go_back() -> None:
        if table_format == "delta":
            DeltaTable(_root(workspace, table)).restore(snapshot)
            return
        with _iceberg(workspace, table).manage_snapshots() as manage:
            manage.rollback_to_snapshot(snapshot)

    return go_back


def append_and_clean_away(workspace: Workspace, table: TableIdentifier, table_format: str, rows: pa.Table) -> None:
    """Append rows twice, and clean away which versions the table had before, so that it is not known which one it was at."""
    if table_format == "delta":
        root = _root(workspace, table)
        for _ in range(2):
            write_deltalake(root, rows, mode="append")
        DeltaTable(root).optimize.compact()
        DeltaTable(root).create_checkpoint()
        for entry in range(DeltaTable(root).version()):
            commit_file(root, entry).unlink(missing_ok=True)
        return
    gone_back_to = _iceberg(workspace, table).current_snapshot()
    assert gone_back_to is not None
    for _ in range(2):
        _iceberg(workspace, table).append(rows)
    now = _iceberg(workspace, table)
    kept = {gone_back_to.snapshot_id, *(ref.snapshot_id for ref in now.metadata.refs.values())}
    now.maintenance.expire_snapshots().by_ids(
        [one.snapshot_id for one in now.snapshots() if one.snapshot_id not in kept]
    ).commit()


def _root(workspace: Workspace, table: TableIdentifier) -> Path:
    location = workspace.table(table, "delta").folder()
    assert location is not None
    return Path(location.removeprefix("file:").removeprefix("//"))


def _iceberg(workspace: Workspace, table: TableIdentifier) -> Table:
    stores = workspace.readable(table.catalog).stores()
    tables = next(store for store in stores if isinstance(store, IcebergStore)).tables
    return tables.load_table((table.database, table.table))
