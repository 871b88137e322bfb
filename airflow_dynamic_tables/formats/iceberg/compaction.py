"""Compaction of Iceberg tables: a snapshot that is not a version, with the same rows in fewer files.

Some tables and files are not compacted: tables with delete files, tables with columns renamed or dropped by another engine, and
files of other engines that identify columns by field id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.typedef import EMPTY_DICT

from airflow_dynamic_tables.clients.iceberg.revisions import data_files, has_delete_files, partition
from airflow_dynamic_tables.clients.iceberg.schemas import are_known
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.exceptions import CommitRejectedError, StageRejectedError
from airflow_dynamic_tables.formats.commits import COMPACTION
from airflow_dynamic_tables.formats.fingerprints import name_of_merged
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import ReplaceFiles, TableTransaction
from airflow_dynamic_tables.formats.iceberg.row_deletions import knows_all_schemas, unreadable_by_name
from airflow_dynamic_tables.formats.iceberg.staged import read_footers, staged_partition
from airflow_dynamic_tables.formats.merging import Shape, merge, shape
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles, bundles, rounds


@dataclass(frozen=True, slots=True)
class Merged:
    """Files of one partition and the file merged from them, all of the same partition spec."""

    sources: tuple[DataFile, ...]
    file: DataFile
    spec_id: int


def scattered(table: Table, limits: Limits) -> list[PartitionSet]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.scattered`."""
    if why_not(table) is not None:
        return []
    return rounds(((_partition(table, file), file.file_size_in_bytes) for file in _candidates(table, limits)), limits)


def count_files(table: Table, limits: Limits) -> list[PartitionFiles]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.count_files`."""
    sizes: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    for file, spec in data_files(table):
        sizes.setdefault(tuple(partition(file, table.specs()[spec.spec_id], table.schema()).items()), []).append(_size(file))
    small = Counter(tuple(_partition(table, file).items()) for file in _candidates(table, limits))
    return [
        PartitionFiles(dict(key), len(group), small[key], sum(group), small[key] > limits.many) for key, group in sizes.items()
    ]


def files_added(table: Table) -> int:
    """Return how many files were added since the last compaction, except by commits that replaced files."""
    since = takewhile(lambda snapshot: COMPACTION not in tables.told(snapshot), tables.lineage(table))
    adding = (snapshot for snapshot in since if snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND)
    return sum(int(tables.told(snapshot).get("added-data-files", 0)) for snapshot in adding)


def why_not(table: Table) -> str | None:
    """Return why a table cannot be compacted; ``None`` if it can."""
    if tables.is_new(table) or table.current_snapshot() is None:
        return "has no version yet"
    if has_delete_files(table):
        return "holds delete files"
    if not are_known(table.spec()):
        return "is partitioned by what only another engine computes"
    if not knows_all_schemas(table):
        return "had schemas taken out of its metadata by another engine"
    return unreadable_by_name(table)


def merged(table: Table, partitions: PartitionSet, limits: Limits, folder: str) -> list[Merged]:
    """Write merged files into a folder; the commit checks later whether their sources are still current.

    :raises StageRejectedError: if a row would change, or a file cannot be read.
    """
    small: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in _candidates(table, limits):
        spec = _partition(table, file)
        if partitions.covers(spec):
            small.setdefault(tuple(spec.items()), []).append(file)
    done: list[Merged] = []
    for files in small.values():
        for bundle in bundles(files, _size, _kind, limits):
            done.append(_merged(table, bundle, f"{folder}/data", len(done)))
    return done


def _kind(file: DataFile) -> Shape | None:
    """Return the properties that files merged with each other share; ``None`` if the file cannot be merged."""
    known = shape(file.file_path)
    return known if known.can_be_merged else None


def _merged(table: Table, sources: Sequence[DataFile], folder: str, number: int) -> Merged:
    listed = [(file.file_path, {"size": file.file_size_in_bytes}) for file in sources]
    written = merge([file.file_path for file in sources], f"{folder}/{name_of_merged(listed, number)}")
    (file,) = read_footers(table.io, table.metadata, [written])
    _check_same(table, sources, file)
    return Merged(tuple(sources), file, table.spec().spec_id)


def _check_same(table: Table, sources: Sequence[DataFile], file: DataFile) -> None:
    """Check that a merged file has the same partition, rows, values and nulls as its sources."""
    is_same = file.record_count == sum(source.record_count for source in sources)
    for counted in ("value_counts", "null_value_counts"):
        parts = [getattr(source, counted) or {} for source in sources]
        whole = getattr(file, counted) or {}
        for column in set.intersection(set(whole), *map(set, parts)):
            is_same &= whole[column] == sum(part[column] for part in parts)
    if table.spec().fields:
        is_same &= staged_partition(file, table.metadata) == _partition(table, sources[0])
    if not is_same:
        raise StageRejectedError(f"{file.file_path} has not the rows of the {len(sources)} files that it was made of.")


def transaction(table: Table, done: Sequence[Merged], token: str) -> Transaction:
    """Create the snapshot that replaces the source files by the merged files, based on the current table.

    :raises CommitRejectedError: if a source file was removed, or one of its rows may have been deleted.
    """
    changes = TableTransaction(table)
    sources = {source.file_path for one in done for source in one.sources}
    if why_not(table) is not None or table.spec().spec_id != done[0].spec_id:
        raise CommitRejectedError("The table was changed meanwhile so that it cannot be compacted.")
    producer = _Replacement(changes, table.io, sources, {COMPACTION: token} | tables.line(table))
    if producer.gone != sources:
        raise CommitRejectedError("Some of the rows were replaced meanwhile, so nothing is compacted.")
    for one in done:
        producer.append_data_file(one.file)
    producer.commit()
    return changes


class _Replacement(ReplaceFiles):
    """A snapshot with the same rows in other files; it merges all manifests into one, or a few large ones."""

    least_to_merge = 2

    def __init__(self, transaction: Transaction, io: FileIO, sources: set[str], summary: dict[str, str]) -> None:
        self._sources = sources
        super().__init__(transaction, io, WHOLE_TABLE, summary)

    @property
    def gone(self) -> set[str]:
        """The files that the snapshot removes."""
        return {file.file_path for file in self._deleted_data_files}

    def _is_replaced(self, file: DataFile, spec: PartitionSpec, schema: Schema) -> bool:  # noqa: ARG002
        return file.file_path in self._sources

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        told = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **told.additional_properties)


def _candidates(table: Table, limits: Limits) -> list[DataFile]:
    return [
        file
        for file, spec in data_files(table)
        if file.file_size_in_bytes < limits.small
        and spec.spec_id == table.spec().spec_id
        and file.file_format == FileFormat.PARQUET
        and file.key_metadata is None
        and file.record_count
        and None not in _plain_values(table, file)
    ]


def _partition(table: Table, file: DataFile) -> dict[str, str | None]:
    return partition(file, table.specs()[file.spec_id], table.schema())


def _plain_values(table: Table, file: DataFile) -> list[str | None]:
    values = _partition(table, file)
    return [values[key] for key in plain_keys(values)]


def _size(file: DataFile) -> int:
    return int(file.file_size_in_bytes)
