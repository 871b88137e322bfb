"""Delete files of Iceberg tables, and whether data files can be read by column name instead of field id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.files import as_os_errors
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa


def unreadable_by_name(table: Table) -> str | None:
    """Return why the table's files cannot be read by column name; ``None`` if they can."""
    names: dict[int, str | None] = {}
    ids: dict[str | None, int] = {}
    for schema in table.schemas().values():
        for field_id in schema.field_ids:
            name = schema.find_column_name(field_id)
            if names.setdefault(field_id, name) != name:
                return f"had column {names[field_id]} renamed"
            if ids.setdefault(name, field_id) != field_id:
                return f"had column {name} dropped and recreated"
            if schema.find_field(field_id).initial_default is not None:
                return f"has a default for column {name}"
    return None


def knows_all_schemas(table: Table) -> bool:
    """Return whether the metadata contains all schemas the table ever had: their ids are consecutive from 0."""
    known = table.schemas()
    return len(known) > max(known)


def unreadable_in_files(table: Table, files: Sequence[DataFile]) -> str | None:
    """Return why these Parquet files cannot be read by column name; ``None`` if they can.

    If another engine removed schemas from the metadata, for example on snapshot expiry, only the files show this.
    """
    if knows_all_schemas(table):
        return None
    schema = table.schema()
    read = ExecutorFactory.get_or_create().map(lambda file: _columns(table.io, file.file_path), files)
    return next((why for file in read for name, number in file if (why := _problem(schema, name, number))), None)


def _problem(schema: Schema, name: str, number: int | None) -> str | None:
    """Return why a column of a file cannot be read by name; ``number`` is its field id, missing in our own files."""
    current = schema.find_column_name(number) if number is not None else name
    if number is not None and current is None and name in schema.column_names:
        return f"had column {name} dropped and recreated"
    if number is None and name not in schema.column_names:
        return f"had column {name} renamed or dropped"
    return f"had column {name} renamed" if current not in (None, name) else None


@as_os_errors()
def _columns(io: FileIO, path: str) -> list[tuple[str, int | None]]:
    import pyarrow.parquet as pq  # imported here because most callers only need metadata

    with io.new_input(path).open() as stream:
        schema = pq.read_schema(stream)
    return [numbered for field in schema for numbered in _numbered(field.name, field)]


def _numbered(name: str, field: pa.Field) -> Iterator[tuple[str, int | None]]:
    """Yield a column and its nested fields, with names as in Iceberg."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    yield name, int(number) if number is not None else None
    for part, inner in _parts(field.type):
        yield from _numbered(f"{name}.{part}", inner)


def _parts(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    import pyarrow as pa

    match kind:
        case pa.StructType():
            return [(field.name, field) for field in kind]
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():  # large lists are written by PyIceberg
            return [("element", kind.value_field)]
        case pa.MapType():
            return [("key", kind.key_field), ("value", kind.item_field)]
    return []


MOST_FILES = 100
"""Most delete files that are applied here; each is read on every read of the table."""

MOST_ROWS = 10_000
"""Most deleted rows that a plan lists."""

_READ = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN)


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The data files of the current snapshot; ``deleted`` contains deleted row positions, from 0, by file path."""

    files: tuple[DataFile, ...]
    deleted: Mapping[str, tuple[int, ...]]


def live_rows(table: Table) -> LiveRows | str:
    """Return the live rows of a table, or why they cannot be determined."""
    deletes = delete_files(table, table.current_snapshot())
    if why := why_unknown(deletes):
        return why
    if len(deletes) > MOST_FILES or sum(file.record_count for file in deletes) > MOST_ROWS:
        return f"holds more delete files ({MOST_FILES}) or deleted rows ({MOST_ROWS:,}) than are left out here"
    tasks = list(table.scan().plan_files())
    return LiveRows(tuple(task.file for task in tasks), _positions(table, [task for task in tasks if task.delete_files]))


def delete_files(table: Table, snapshot: Snapshot | None) -> list[DataFile]:
    """Return the delete files of a snapshot."""
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    of_deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    return [entry.data_file for manifest in of_deletes for entry in manifest.fetch_manifest_entry(table.io)]


def why_unknown(deletes: Iterable[DataFile]) -> str | None:
    """Return why PyIceberg cannot apply these delete files; ``None`` if it can."""
    for file in deletes:
        if file.content == DataFileContent.EQUALITY_DELETES:
            return "holds rows that another engine deleted by their values (equality deletes)"
        if file.file_format not in _READ:
            return f"holds delete files of format {file.file_format.value}"
    return None


@contextmanager
def reading_deletes(deletes: Collection[DataFile]) -> Iterator[None]:
    """Translate errors on reading delete files, or data files that they apply to.

    :raises CatalogUnavailableError: if a file is missing or damaged; the message names the delete files.
    """
    try:
        with as_os_errors():
            yield
    except (OSError, ValueError, KeyError) as error:
        if not deletes:
            raise
        paths = ", ".join(sorted(file.file_path for file in deletes))
        raise CatalogUnavailableError(f"Cannot read which rows another engine deleted ({paths}): {error}") from error


def _positions(table: Table, tasks: Sequence[FileScanTask]) -> dict[str, tuple[int, ...]]:
    """Return the deleted row positions by data file; a delete file may apply to many data files."""
    from pyiceberg.io.pyarrow import _read_deletes  # imports Arrow, which most callers do not need

    read = {file.file_path: file for task in tasks for file in task.delete_files}
    by_path = {}
    for path, file in read.items():
        with reading_deletes([file]):
            by_path[path] = _read_deletes(table.io, file)
    positions: dict[str, tuple[int, ...]] = {}
    for task in tasks:
        path = task.file.file_path
        told = [by_path[file.file_path].get(path) for file in task.delete_files]
        rows = {row for places in told if places is not None for row in places.to_pylist()}
        positions[path] = tuple(sorted(row for row in rows if row < task.file.record_count))
    return {path: rows for path, rows in positions.items() if rows}
