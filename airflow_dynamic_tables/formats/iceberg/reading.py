"""Reading the content of an Iceberg table at a version, and the files added since another one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table, TableProperties
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, UnsupportedError
from airflow_dynamic_tables.formats.base import Increment, why_another
from airflow_dynamic_tables.formats.data_files import plain_rows, read_rows
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.row_deletions import delete_files, reading_deletes, why_unknown

_READ = {FileFormat.PARQUET.value, FileFormat.ORC.value}


def first_rows(table: Table, snapshot_id: int | None, rows: int) -> list[dict[str, Any]]:
    """Return the first rows of a version; ``None`` is the current one.

    :raises UnsupportedError: if PyIceberg cannot read the files, or determine which rows are deleted.
    """
    table = _with_names(table)
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if why := why_unknown(delete_files(table, snapshot)):
        raise UnsupportedError(f"The table {why}, so its rows cannot be shown; read it by that engine, or let it rewrite them.")
    scan = table.scan(snapshot_id=snapshot_id)
    schema = scan.projection()
    tasks = list(scan.plan_files())
    if others := {task.file.file_format.value for task in tasks} - _READ:
        raise UnsupportedError(
            f"The table holds {min(others)} files of another engine, so its rows cannot be shown; read it by that."
        )
    if any(_loses_nulls(field.field_type) for field in schema.fields) and all(_says_it_all(task, schema) for task in tasks):
        read = read_rows([(task.file.file_path, {}) for task in tasks], "parquet", rows)
        return [{field.name: row.get(field.name) for field in schema.fields} for row in read]
    return _rows_of(scan, tasks, rows)


def _with_names(table: Table) -> Table:
    """Return the table with a name mapping, which another engine may have removed: files of the job contain no field ids."""
    mapping = table.schema().name_mapping.model_dump_json()
    properties = {TableProperties.DEFAULT_NAME_MAPPING: mapping, **table.properties}
    mapped = copy(table)
    mapped.metadata = table.metadata.model_copy(update={"properties": properties})
    return mapped


def _rows_of(scan: DataScan, tasks: Sequence[FileScanTask], most: int) -> list[dict[str, Any]]:
    """Return the first rows, reading each file separately because PyIceberg mixes up the deletes of several files."""
    rows: list[dict[str, Any]] = []
    for task in tasks:
        reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, limit=most - len(rows))
        with reading_deletes(task.delete_files):
            rows += plain_rows(reader.to_table([task]))
        if len(rows) >= most:
            break
    return rows


def _loses_nulls(kind: IcebergType) -> bool:
    """Return whether PyIceberg reads nulls of a type as empty: lists, or map values, of structs (PyIceberg issue 3833)."""
    if isinstance(kind, StructType):
        return any(_loses_nulls(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return isinstance(kind.element_type, StructType) or _loses_nulls(kind.element_type)
    return isinstance(kind, MapType) and (isinstance(kind.value_type, StructType) or _loses_nulls(kind.value_type))


def _says_it_all(task: FileScanTask, schema: Schema) -> bool:
    """Return whether a file can be read without Iceberg: no rows are deleted, and its columns are the table's first."""
    if task.delete_files or task.file.file_format is not FileFormat.PARQUET:
        return False
    with open_file(task.file.file_path) as stream:
        names = pq.read_schema(stream).names
    return bool(names == [field.name for field in schema.fields][: len(names)])


def _added_since(table: Table, since: str) -> list[DataFile] | str:
    """Return the files added after a snapshot, or why there were other changes as well."""
    files: list[DataFile] = []
    snapshot = table.current_snapshot()
    while snapshot is not None and str(snapshot.snapshot_id) != since:
        operation = snapshot.summary.operation if snapshot.summary is not None else None
        if operation is Operation.APPEND:
            files += _added_by(table, snapshot)
        elif not tables.keeps_rows(snapshot):
            return (
                f"snapshot {snapshot.snapshot_id} ({operation.value if operation else 'unknown'}) replaced or removed rows of it"
            )
        parent = snapshot.parent_snapshot_id
        if parent is not None and str(parent) == since:
            return files
        # PyIceberg removes the parent id of a snapshot whose parent expired.
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    if snapshot is None:
        return f"its changes since snapshot {since} are unknown: later snapshots were expired, or it was rolled back or recreated"
    return files


def _added_by(table: Table, snapshot: Snapshot) -> list[DataFile]:
    added = [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    ]
    told = int(tables.told(snapshot).get("added-data-files", len(added)))
    if told != len(added):
        raise CatalogUnavailableError(f"Snapshot {snapshot.snapshot_id} tells of {told} new files, and {len(added)} were found.")
    return added


def added_since(source: Source, store: IcebergStore, view: str, since: SourceState | None) -> Increment:
    """Return the rows added to a table, see :func:`~airflow_dynamic_tables.formats.registry.added_since`.

    Rewritten files with the same rows are ignored; the rows are read from the files that added them.

    :raises TableNotFoundError: if it does not exist or has no version yet.
    :raises UnsupportedError: if its rows cannot be read from its files alone.
    """
    path = source.identifier.path
    table = tables.filled(tables.load(store, path), path, store.catalog)
    content = tables.content(table, path)
    if any(part.deleted for part in content.parts):
        raise UnsupportedError(f"Another engine deleted rows of {path} beside its files; a stream reads none but whole files.")
    state = tables.state(table)
    size = None
    if since is not None:
        if why := why_another(since, state):
            return Increment(ended=why)
        if since.version == state.version:
            return Increment()
        added = _added_since(table, since.version)
        if isinstance(added, str):
            return Increment(ended=added)
        if not added:
            return Increment()
        size = sum(file.file_size_in_bytes for file in added)
        parts = tables.parts(tables.placed(table, added), {})
        content = replace(content, files=tuple(file.file_path for file in added), parts=parts)
    return Increment(replace(content, state=state).bound(source.identifier, view), bytes=size)
