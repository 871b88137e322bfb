"""Data files on their way into an Iceberg table: swapped in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from operator import not_

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_int

from airflow_dynamic_tables.clients.iceberg.content import is_split, partition
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.iceberg.producing import InOrder


class ReplaceFiles(InOrder["ReplaceFiles"]):
    """One snapshot that takes out the files of the planned partitions and puts in the appended ones.

    PyIceberg's own overwrite reads every manifest three times and never lets go of one, so that each commit of a table would
    take longer than the one before. Here each is read once, those that list no file any more are left out, and small ones are
    merged. When nothing is planned to go, files are only added, and no manifest is read.
    """

    least_to_merge: int | None = None
    """How many small manifests become one; ``None`` for what the table says."""

    def __init__(self, transaction: Transaction, io: FileIO, planned: PartitionSet, summary: dict[str, str]) -> None:
        only_adds = planned.is_empty or transaction.table_metadata.current_snapshot() is None
        super().__init__(Operation.APPEND if only_adds else Operation.OVERWRITE, transaction, io, snapshot_properties=summary)
        self._kept: list[ManifestFile] = []
        self._thinned: list[tuple[int, list[ManifestEntry]]] = []
        self._removed: list[ManifestEntry] = []
        self._planned = planned
        self._sort_out()

    def _is_replaced(self, file: DataFile, spec: PartitionSpec, schema: Schema) -> bool:
        return self._planned.covers(partition(file, spec, schema))

    def _sort_out(self) -> None:
        metadata = self._transaction.table_metadata
        snapshot = metadata.current_snapshot()
        manifests = [manifest for manifest in snapshot.manifests(self._io) if _is_live(manifest)] if snapshot else []
        if self._planned.is_whole:  # what deletes rows of files that go has nothing to delete any more
            manifests = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        if self._planned.is_empty:
            self._kept = manifests
            return
        executor = ExecutorFactory.get_or_create()
        specs = metadata.specs()
        schema = metadata.schema()
        for manifest, entries in zip(manifests, executor.map(self._entries, manifests), strict=True):
            spec = specs[manifest.partition_spec_id]
            if spec.spec_id != metadata.default_spec_id:
                self._check_whole(entries, spec, schema)
            is_replaced = [self._is_replaced(entry.data_file, spec, schema) for entry in entries]
            if not any(is_replaced):
                self._kept.append(manifest)
                continue
            self._removed.extend(compress(entries, is_replaced))
            if remaining := list(compress(entries, map(not_, is_replaced))):
                self._thinned.append((manifest.partition_spec_id, remaining))
        self._deleted_data_files = {entry.data_file for entry in self._removed}

    def _check_whole(self, entries: list[ManifestEntry], spec: PartitionSpec, schema: Schema) -> None:
        """Check that no file of an older spec holds rows of planned partitions beside others.

        :raises StageRejectedError: names one.
        """
        for file in (entry.data_file for entry in entries):
            if is_split(file, spec, schema, self._planned):
                raise StageRejectedError(
                    f"{file.file_path} was written when the table had other partition keys, and holds rows of planned partitions "
                    "beside others: let the engine that wrote it rewrite it, or refresh the whole table with --full-refresh (in "
                    "Airflow the param full_refresh)."
                )

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        # Delete files stay: they are older than the appended files, and so mean nothing to them.
        return self.fetch_manifest_entry(manifest) if manifest.content == ManifestContent.DATA else []

    def _build_delete_files_partition_predicate(self) -> None:
        """Nothing is to be looked for: the entries are known."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for entry in self._removed
        ]

    def _existing_manifests(self) -> list[ManifestFile]:
        return [*(self._rewritten(spec_id, entries) for spec_id, entries in self._thinned), *self._kept]

    def _rewritten(self, spec_id: int, entries: list[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for entry in entries:
                writer.existing(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        gone = _gone(self._transaction.table_metadata, _TOTALS_OF_DELETES) if self._planned.is_whole else {}
        return super()._summary({**snapshot_properties, **gone})

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        keys = TableProperties
        size = property_as_int(properties, keys.MANIFEST_TARGET_SIZE_BYTES, keys.MANIFEST_TARGET_SIZE_BYTES_DEFAULT)
        least = property_as_int(properties, keys.MANIFEST_MIN_MERGE_COUNT, keys.MANIFEST_MIN_MERGE_COUNT_DEFAULT)
        merging = _ManifestMergeManager(size or 0, self.least_to_merge or least or 0, True, self)
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        return [*merging.merge_manifests(data), *(manifest for manifest in manifests if manifest not in data)]


_TOTALS_OF_DELETES = {
    "total-delete-files": "removed-delete-files",
    "total-position-deletes": "removed-position-deletes",
    "total-equality-deletes": "removed-equality-deletes",
}

_TOTALS = {
    **_TOTALS_OF_DELETES,
    "total-data-files": "deleted-data-files",
    "total-records": "deleted-records",
    "total-files-size": "removed-files-size",
}
"""What the summary of a snapshot says of all its files, and how the next one says that they are gone."""


class AllFiles(InOrder["AllFiles"]):
    """One snapshot that holds the appended files and nothing else, whatever columns and partition keys the table had before.

    It lists no file as deleted, as those of Iceberg's ``REPLACE TABLE`` do not: their partitions are none of the new keys.
    """

    def __init__(self, transaction: Transaction, io: FileIO, summary: dict[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=summary)

    def _existing_manifests(self) -> list[ManifestFile]:
        return []

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return super()._summary({**snapshot_properties, **_gone(self._transaction.table_metadata, _TOTALS)})


def _gone(metadata: TableMetadata, totals: Mapping[str, str]) -> dict[str, str]:
    """What the summary of a snapshot says is gone, when nothing is left of some totals of the one before."""
    before = metadata.current_snapshot()
    told = before.summary.additional_properties if before is not None and before.summary is not None else {}
    return {gone: told[total] for total, gone in totals.items() if told.get(total, "0") != "0"}


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()
