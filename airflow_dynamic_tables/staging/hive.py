"""Hive tables of Parquet or ORC files: what they hold and which versions they had. ``hive_stage`` changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.hive import columns_of, file_uri, format_of, partition_keys_of
from airflow_dynamic_tables.formats.iceberg import spark_ddl
from airflow_dynamic_tables.metastore import Metastore
from airflow_dynamic_tables.staging import hive_tables as tables
from airflow_dynamic_tables.staging.base import RowCounts, StagingContext, SupportsStaging, TableContent
from airflow_dynamic_tables.staging.hive_commits import PartitionCommits, Values
from airflow_dynamic_tables.staging.hive_files import read_rows
from airflow_dynamic_tables.staging.hive_stage import HiveStagedTable
from airflow_dynamic_tables.storage import list_files


class HiveStaging(SupportsStaging):
    """Hive tables of one metastore, in one file format.

    :param file_format: ``parquet`` or ``orc``.
    """

    def __init__(self, metastore: Metastore, file_format: str) -> None:
        self._metastore = metastore
        self._format = file_format

    def stage(self, context: StagingContext) -> HiveStagedTable:
        """See :meth:`SupportsStaging.stage`."""
        return HiveStagedTable(self._metastore, self._format, context)

    def current(self, path: ObjectPath) -> Version | None:
        """See :meth:`SupportsStaging.current`."""
        return next(reversed(self.versions(path)), None)

    def versions(self, path: ObjectPath) -> list[Version]:
        """See :meth:`SupportsStaging.versions`; the newest twenty are kept."""
        table = tables.load(self._metastore, path)
        found, pending = tables.versions(table), tables.pending(table)
        if pending is not None and PartitionCommits(self._metastore, path).landed(pending):
            found.append(pending.version)
        return found

    def read(self, path: ObjectPath) -> TableContent:
        """See :meth:`SupportsStaging.read`."""
        table, snapshot = self._filled(path)
        keys = partition_keys_of(table)
        files = self._files(path, table)
        return TableContent(
            snapshot=snapshot,
            files=tuple(sorted(file for file, _ in files)),
            schema=spark_ddl(columns_of(table)),
            format=format_of(table),
            base_path=tables.root(table) if keys else None,
            partition_keys=keys,
        )

    def snapshot(self, path: ObjectPath) -> str:
        """See :meth:`SupportsStaging.snapshot`."""
        return self._filled(path)[1]

    def count(self, path: ObjectPath, partitions: Sequence[Mapping[str, str]]) -> RowCounts | None:
        """See :meth:`SupportsStaging.count`."""
        table = tables.load(self._metastore, path)
        if table is None or not tables.versions(table):
            return None
        keys = partition_keys_of(table)
        held: list[tuple[Values, Mapping[str, str]]] = [((), table.parameters)]
        if keys:
            found = PartitionCommits(self._metastore, path).partitions(table)
            held = [(values, one.parameters) for values, one in found.items() if not tables.left_in(table, one.sd.location)]
        if any(tables.ROWS not in parameters for _, parameters in held):
            return None
        rows = ((dict(zip(keys, values, strict=True)), int(parameters[tables.ROWS])) for values, parameters in held)
        return RowCounts.of(rows, partitions)

    def sample(self, path: ObjectPath, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`SupportsStaging.sample`; only the current version can be read.

        :raises UnsupportedError: for another version.
        """
        table, _ = self._filled(path)
        if version is not None and version != tables.versions(table)[-1].number:
            raise UnsupportedError(f"Version {version} of {path} cannot be read: a Hive table shows its current version only.")
        columns = columns_of(table)
        kinds = {column.name: column.type for column in columns}
        files = [
            (file, {key: _typed(value, kinds[key]) for key, value in spec.items()}) for file, spec in self._files(path, table)
        ]
        found = read_rows(files, format_of(table), rows)
        return [{column.name: row.get(column.name) for column in columns} for row in found]

    def _filled(self, path: ObjectPath) -> tuple[Table, str]:
        version, table = self.current(path), tables.load(self._metastore, path)
        if table is None or version is None:
            raise TableNotFoundError(f"Table {path} in the Hive metastore does not exist or has no version yet.")
        return table, version.snapshot

    def _files(self, path: ObjectPath, table: Table) -> list[tuple[str, Mapping[str, str]]]:
        """Every file of the table, with the partition it is of."""
        keys = partition_keys_of(table)
        if not keys:
            return [(file, {}) for file in _listed(table.sd.location)]
        found = PartitionCommits(self._metastore, path).partitions(table)
        folders = {file_uri(one.sd.location).rstrip("/"): dict(zip(keys, values, strict=True)) for values, one in found.items()}
        roots = {folder.rsplit("/", len(keys))[0] for folder in folders}
        listed = {file: folders.get(file.rpartition("/")[0]) for root in sorted(roots) for file in _listed(root)}
        return [(file, spec) for file, spec in listed.items() if spec is not None]


def _listed(folder: str) -> list[str]:
    try:
        return [file for file, info in list_files(folder).items() if info.get("size")]
    except FileNotFoundError:
        return []


def _typed(value: str, kind: str) -> object:
    """The value of a partition key."""
    if kind in ("int", "bigint", "smallint", "tinyint"):
        return int(value)
    if kind == "date":
        return date.fromisoformat(value)
    return value == "true" if kind == "boolean" else value
