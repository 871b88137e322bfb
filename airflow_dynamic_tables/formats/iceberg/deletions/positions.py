"""Rows of data files that are deleted by their positions, which files or vectors beside them say (merge-on-read).

A few are left out when the rest is read. Many, and rows that are deleted by their values, are for Iceberg's own runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

MOST_FILES = 100
"""Delete files of which rows are left out here; each is read whenever the table is."""

MOST_ROWS = 10_000
"""Deleted rows that a plan names."""

_READ = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN)


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The data files of the current snapshot; ``deleted`` are the places of rows that are gone, from 0, by the path of a file."""

    files: tuple[DataFile, ...]
    deleted: Mapping[str, tuple[int, ...]]


def live_rows(table: Table) -> LiveRows | str:
    """What a table holds now; or why that is not known here."""
    deletes = delete_files(table, table.current_snapshot())
    if why := why_unknown(deletes):
        return why
    if len(deletes) > MOST_FILES or sum(file.record_count for file in deletes) > MOST_ROWS:
        return f"holds more delete files ({MOST_FILES}) or deleted rows ({MOST_ROWS:,}) than are left out here"
    tasks = list(table.scan().plan_files())
    return LiveRows(tuple(task.file for task in tasks), _positions(table, [task for task in tasks if task.delete_files]))


def delete_files(table: Table, snapshot: Snapshot | None) -> list[DataFile]:
    """The files of a snapshot that delete rows of others."""
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    of_deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    return [entry.data_file for manifest in of_deletes for entry in manifest.fetch_manifest_entry(table.io)]


def why_unknown(deletes: Iterable[DataFile]) -> str | None:
    """Why PyIceberg does not know which rows are deleted by some files; ``None`` when it does."""
    for file in deletes:
        if file.content == DataFileContent.EQUALITY_DELETES:
            return "holds rows that another engine deleted by their values (equality deletes)"
        if file.file_format not in _READ:
            return f"holds delete files of format {file.file_format.value}"
    return None


@contextmanager
def reading_deletes(deletes: Collection[DataFile]) -> Iterator[None]:
    """Around everything that reads them, or a data file whose rows they delete.

    :raises CatalogUnavailableError: when one is missing or damaged; names them.
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
    """Deleted rows by the path of their data file; a delete file may be of many."""
    from pyiceberg.io.pyarrow import _read_deletes  # loads Arrow, for which nobody waits who only looks at tables

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
