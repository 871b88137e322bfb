"""A reader of an Iceberg table that knows nothing of this package, but for every other look at the rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow.dataset
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.faults.row_digests import rows_digest, text, total


@dataclass(frozen=True, slots=True)
class Rota:
    """Every how many polls more than the metadata file is read anew: manifest list, all manifests, the rows themselves."""

    manifest_list: int
    manifests: int
    rows: int


class _Fingerprint(NamedTuple):
    size: int
    changed: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Known:
    digest: int
    fingerprint: _Fingerprint


class IcebergReader:
    """Polls a table. See ``test_readers`` for what a poll is."""

    def __init__(self, database_url: str, warehouse: str, identifier: TableIdentifier, rota: Rota) -> None:
        self._catalog = SqlCatalog("lake", uri=database_url, warehouse=warehouse)
        self._workspace = open_workspace(WorkspaceSettings(database_url, warehouse))
        self._identifier = identifier
        self._rota = rota
        self._polls = 0
        self._files: dict[str, _Known] = {}
        self._manifests: dict[str, _Known] = {}
        self._lists: dict[str, _Known] = {}
        self._paths: list[str] = []
        self._random = Random(0)

    def poll(self) -> tuple[str, str]:
        """Look once, the way whose turn it is."""
        self._polls += 1
        if self._polls % (2 * self._rota.rows) == 0:
            return "rows, as the package binds them for Spark", text(self._bound_rows())
        if self._polls % self._rota.rows == 0:
            return "rows, by PyIceberg's scan", text(rows_digest(self._load().scan().to_arrow()))
        if self._polls % self._rota.manifests == 0:
            return "manifests", text(self._planned_files())
        if self._polls % self._rota.manifest_list == 0:
            return "manifest list", text(self._listed_files(self._load()))
        return "metadata", text(self._snapshot())

    def close(self) -> list[str]:
        """Compare every file ever read with what it was then."""
        self._workspace.close()
        self._catalog.engine.dispose()
        return [problem for path in self._paths if (problem := self._changed(path))]

    def _load(self) -> Table:
        return self._catalog.load_table((self._identifier.database, self._identifier.table))

    def _snapshot(self) -> int:
        table = self._load()
        snapshot = table.current_snapshot()
        if snapshot is None:
            raise ValueError("the table is empty")
        if snapshot.manifest_list not in self._lists:
            self._remember(self._lists, snapshot.manifest_list, self._listed_files(table))
        self._look_again_at_some()
        return self._lists[snapshot.manifest_list].digest

    def _listed_files(self, table: Table) -> int:
        snapshot = table.current_snapshot()
        return total([self._manifest(manifest, table.io) for manifest in (snapshot.manifests(table.io) if snapshot else [])])

    def _manifest(self, manifest: ManifestFile, io: FileIO) -> int:
        if (known := self._manifests.get(manifest.manifest_path)) is None:
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            digest = total([self._file(entry.data_file) for entry in entries])
            known = self._remember(self._manifests, manifest.manifest_path, digest)
        return known.digest

    def _planned_files(self) -> int:
        return total([self._file(task.file) for task in self._load().scan().plan_files()])

    def _bound_rows(self) -> int:
        content = self._workspace.table(self._identifier, "iceberg").read()
        paths = [path.removeprefix("file://") for path in content.files]
        return rows_digest(pyarrow.dataset.dataset(paths, format="parquet").to_table(columns=["p", "n"]))

    def _file(self, file: DataFile) -> int:
        if (known := self._files.get(file.file_path)) is None:
            rows = pq.read_table(_local(file.file_path), partitioning=None)
            if rows.num_rows != file.record_count:
                raise ValueError(f"{file.file_path} holds {rows.num_rows} rows, the table says {file.record_count}")
            known = self._remember(self._files, file.file_path, rows_digest(rows))
        return known.digest

    def _remember(self, known: dict[str, _Known], path: str, digest: int) -> _Known:
        self._paths.append(path)
        return known.setdefault(path, _Known(digest, _fingerprint(path)))

    def _look_again_at_some(self) -> None:
        for path in self._random.sample(self._paths, min(4, len(self._paths))):
            if problem := self._changed(path):
                raise ValueError(problem)

    def _changed(self, path: str) -> str | None:
        known = self._files.get(path) or self._manifests.get(path) or self._lists[path]
        try:
            return None if _fingerprint(path) == known.fingerprint else f"{path} is not what it was"
        except FileNotFoundError:
            return None  # of a version that expired; whoever still needs it fails


def _fingerprint(path: str) -> _Fingerprint:
    found = Path(_local(path)).stat()
    return _Fingerprint(found.st_size, found.st_mtime_ns, found.st_ino)


def _local(path: str) -> str:
    return path.removeprefix("file://")
