"""Hive tables of Parquet or ORC files: what they hold and which versions they had. ``hive_stage`` changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import Deleted, list_files, plain_path
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import columns_of, file_uri, format_of, partition_keys_of
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, PartitionSet
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import ConflictError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import RowCounts, StagingContext, SupportsStaging, TableContent
from airflow_dynamic_tables.formats.data_files import read_rows
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.orphans import delete_orphans
from airflow_dynamic_tables.formats.hive.stage import HiveStagedTable

_ATTEMPTS = 10


class HiveStaging(SupportsStaging):
    """Hive tables of one metastore, in one file format.

    :param file_format: ``parquet`` or ``orc``.
    """

    def __init__(self, metastore: Metastore, file_format: str) -> None:
        self.metastore = metastore
        self._format = file_format

    def stage(self, context: StagingContext) -> HiveStagedTable:
        """See :meth:`SupportsStaging.stage`."""
        return HiveStagedTable(self.metastore, self._format, context)

    def current(self, path: ObjectPath) -> Version | None:
        """See :meth:`SupportsStaging.current`."""
        return next(reversed(self.versions(path)), None)

    def versions(self, path: ObjectPath) -> list[Version]:
        """See :meth:`SupportsStaging.versions`; the newest twenty are kept."""
        table = tables.load(self.metastore, path)
        found, pending = tables.versions(table), tables.pending(table)
        if pending is not None and PartitionCommits(self.metastore, path).landed(pending):
            found.append(pending.version)
        return found

    def read(self, path: ObjectPath) -> TableContent:
        """See :meth:`SupportsStaging.read`."""
        seen = self._look(path)
        keys, below = partition_keys_of(seen.table), _by_base(seen.folders)
        parts = tuple(SourcePart(tuple(_listed(base, folders)), base) for base, folders in below.items() if base)
        parts += tuple(
            SourcePart(tuple(_listed(folder, {folder: spec})), values=spec) for folder, spec in below.get("", {}).items()
        )
        parts = tuple(part for part in parts if part.files)
        return TableContent(
            snapshot=seen.version.snapshot,
            files=tuple(sorted(file for part in parts for file in part.files)),
            schema=spark_ddl(columns_of(seen.table)),
            format=format_of(seen.table),
            base_path=parts[0].base_path if keys and len(parts) == 1 else None,
            partition_keys=keys,
            parts=parts if keys and (len(parts) > 1 or any(part.values for part in parts)) else (),
        )

    def snapshot(self, path: ObjectPath) -> str:
        """See :meth:`SupportsStaging.snapshot`."""
        return self._look(path).version.snapshot

    def count(self, path: ObjectPath, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`SupportsStaging.count`."""
        try:
            seen = self._look(path)
        except TableNotFoundError:
            return None
        if any(rows is None for rows in seen.rows):
            return None
        return RowCounts.of(zip(seen.folders.values(), map(int, filter(None, seen.rows)), strict=True), partitions)

    def sample(self, path: ObjectPath, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`SupportsStaging.sample`; only the current version can be read.

        :raises UnsupportedError: for another version.
        """
        seen = self._look(path)
        if version is not None and version != seen.version.number:
            raise UnsupportedError(f"Version {version} of {path} cannot be read: a Hive table shows its current version only.")
        columns = columns_of(seen.table)
        kinds = {column.name: column.type for column in columns}
        files = [
            (file, {key: _typed(value, kinds[key]) for key, value in seen.folders[file.rpartition("/")[0]].items()})
            for base, folders in _by_base(seen.folders).items()
            for file in (_listed(base, folders) if base else [one for folder in folders for one in _listed(folder, folders)])
        ]
        found = read_rows(files, format_of(seen.table), rows)
        return [{column.name: row.get(column.name) for column in columns} for row in found]

    def delete_orphans(self, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`SupportsStaging.delete_orphans`."""
        return delete_orphans(self.metastore, path, before, held)

    def _look(self, path: ObjectPath) -> _Seen:
        """The table, its version and its folders, all of the same moment.

        :raises TableNotFoundError: when there is no such table, or nothing in it yet.
        """
        for _ in range(_ATTEMPTS):
            table = tables.load(self.metastore, path)
            if table is None:
                break
            keys = partition_keys_of(table)
            found = PartitionCommits(self.metastore, path).partitions(table) if keys else {}
            again = tables.load(self.metastore, path)
            if again is None or tables.revision(again) != tables.revision(table):
                continue
            if (version := _version(table, found)) is None:
                break
            if not keys:
                return _Seen(table, version, {_folder(table): {}}, (table.parameters.get(tables.ROWS),))
            held = {values: one for values, one in found.items() if not tables.left_in(table, one.sd.location)}
            folders = {_folder(one): dict(zip(keys, values, strict=True)) for values, one in held.items()}
            return _Seen(table, version, folders, tuple(one.parameters.get(tables.ROWS) for one in held.values()))
        else:
            raise ConflictError(f"{path} was changed {_ATTEMPTS} times while it was looked at; try again.")
        raise TableNotFoundError(f"Table {path} in the Hive metastore does not exist or has no version yet.")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One version of a table: its folders with the partition each is of, and their rows if somebody counted them."""

    table: Table
    version: Version
    folders: Mapping[str, Mapping[str, str]]
    rows: tuple[str | None, ...]


def _version(table: Table, partitions: Mapping[Values, Partition]) -> Version | None:
    """The version that these partitions are of: the commit that is under way may have landed already."""
    pending = tables.pending(table)
    if pending is not None:
        marks = ((one.parameters or {}).get(tables.TOKEN) for one in partitions.values())
        if pending.version.token in marks:
            return pending.version
    return next(reversed(tables.versions(table)), None)


def _folder(one: Table | Partition) -> str:
    return file_uri(one.sd.location).rstrip("/")


def _by_base(folders: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Folders by the one below which their names say of which partition they are; those whose names do not say it by none."""
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for folder, spec in folders.items():
        parts = folder.rsplit("/", len(spec))
        said = partition_of("/".join(parts[1:]))
        found.setdefault(parts[0] if said == spec else "", {})[folder] = spec
    return found


def _listed(base: str, folders: Collection[str]) -> list[str]:
    """Files that lie directly in one of these folders, all below one."""
    try:
        found = list_files(base)
    except FileNotFoundError:
        return []  # Hive, too, takes a missing folder for an empty one
    locations, files = {plain_path(folder): folder for folder in folders}, []
    for file, info in found.items():
        folder, _, name = plain_path(file).rpartition("/")
        if folder in locations and info.get("size"):
            files.append(f"{locations[folder]}/{name}")
    return files


def _typed(value: str, kind: str) -> object:
    """The value of a partition key."""
    if value == NULL_PARTITION:
        return None
    if kind in ("int", "bigint", "smallint", "tinyint"):
        return int(value)
    if kind == "date":
        return date.fromisoformat(value)
    return value == "true" if kind == "boolean" else value
