"""Snapshot producers of commits; snapshots always get increasing timestamps, independently of the clock.

Other engines reject a table whose snapshots or metadata files are not in chronological order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from itertools import compress
from operator import not_
from typing import Generic

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, U, UpdatesAndRequirements, _apply_table_update, _TableMetadataUpdateContext
from pyiceberg.table.update.snapshot import _FastAppendFiles, _ManifestMergeManager, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_int

from airflow_dynamic_tables.clients.iceberg.replacing import Replacement, forgotten
from airflow_dynamic_tables.clients.iceberg.revisions import is_split, next_ms, partition
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.commits import FENCE

log = logging.getLogger(__name__)


class TableTransaction(Transaction):
    """A transaction that updates its metadata incrementally; PyIceberg's copies all metadata on each access.

    It disables PyIceberg's retry for the given table, because a retry would publish on top of a fence.
    """

    def __init__(self, table: Table) -> None:
        properties = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        super().__init__(table)
        self._seen = 0
        self._changed = table.metadata
        self._context = _TableMetadataUpdateContext()

    def replace(self, replaced: Replacement) -> None:
        """Replace the columns and partition keys of the table."""
        self._apply(replaced.updates, replaced.requirements)

    def forget_keys(self) -> None:
        """Remove partition specs of dropped columns, and with them all snapshots but the current one."""
        if updates := forgotten(self.table_metadata):
            log.warning("All earlier versions are forgotten with a column that they are partitioned by.")
            self._apply(updates)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata including all changes so far."""
        for update in self._updates[self._seen :]:
            self._changed = _apply_table_update(update, self._changed, self._context)
        self._seen = len(self._updates)
        return self._changed


class InOrder(_SnapshotProducer[U], Generic[U]):
    """A snapshot with a later timestamp than all previous ones."""

    @cached_property
    def timestamp_ms(self) -> int:
        """The commit time in milliseconds."""
        return next_ms(self._transaction._table.metadata)

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        dated = tuple(self._dated(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates)
        return dated, requirements

    def _dated(self, update: AddSnapshotUpdate) -> AddSnapshotUpdate:
        return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": self.timestamp_ms}))


class FenceOff(InOrder["FenceOff"], _FastAppendFiles):
    """An empty snapshot that makes a concurrent commit fail its compare-and-swap."""

    def __init__(self, transaction: Transaction, io: FileIO, token: str) -> None:
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties={FENCE: token})


class ReplaceFiles(InOrder["ReplaceFiles"]):
    """A snapshot that removes the files of the planned partitions and adds the appended files.

    PyIceberg's overwrite reads every manifest three times and never drops any, so each commit of a table would take longer than
    the previous one. Here each manifest is read once, manifests without live files are dropped, and small ones are merged. If no
    partitions are planned, files are only added and no manifest is read.
    """

    least_to_merge: int | None = None
    """Number of small manifests to merge into one; ``None`` for the table property."""

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
        if self._planned.is_whole:  # delete files have no effect once all data files are removed
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
        """Check that no file of an older partition spec mixes rows of planned and other partitions."""
        for file in (entry.data_file for entry in entries):
            if is_split(file, spec, schema, self._planned):
                raise StageRejectedError(
                    f"{file.file_path} was written when the table had other partition keys, and holds rows of planned partitions "
                    "beside others: let the engine that wrote it rewrite it, or refresh the complete table with --full-refresh "
                    "(in Airflow the param full_refresh)."
                )

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        # Delete files remain: they are older than the appended files, and do not apply to them.
        return self.fetch_manifest_entry(manifest) if manifest.content == ManifestContent.DATA else []

    def _build_delete_files_partition_predicate(self) -> None:
        """Do nothing, because the removed entries are already known."""

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
"""Totals in the summary of a snapshot, and the keys by which the next snapshot records their removal."""


class AllFiles(InOrder["AllFiles"]):
    """A snapshot of only the appended files, regardless of the table's previous columns and partition keys.

    It lists no files as deleted, like Iceberg's ``REPLACE TABLE``, because their partitions do not match the new keys.
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
    """Return the summary entries that record the removal of everything counted by the given totals."""
    before = metadata.current_snapshot()
    told = before.summary.additional_properties if before is not None and before.summary is not None else {}
    return {gone: told[total] for total, gone in totals.items() if told.get(total, "0") != "0"}


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()
