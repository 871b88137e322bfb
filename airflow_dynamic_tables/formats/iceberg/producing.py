"""Snapshots that are younger than all before them, whatever the clock says.

Other engines refuse a table whose snapshots, or whose metadata files, are not in the order of their times.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Generic

from pyiceberg.io import FileIO
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, U, UpdatesAndRequirements, _apply_table_update, _TableMetadataUpdateContext
from pyiceberg.table.update.snapshot import _FastAppendFiles, _SnapshotProducer

from airflow_dynamic_tables.clients.iceberg.replacing import Replacement, forgotten
from airflow_dynamic_tables.clients.iceberg.revisions import next_ms
from airflow_dynamic_tables.formats.commits import FENCE

log = logging.getLogger(__name__)


class Changes(Transaction):
    """Changes of a table that are published together; PyIceberg's own copies all of its metadata whenever it is looked at.

    PyIceberg's own retry would publish on top of a fence, so it is turned off in the table given.
    """

    def __init__(self, table: Table) -> None:
        properties = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        super().__init__(table)
        self._seen = 0
        self._changed = table.metadata
        self._context = _TableMetadataUpdateContext()

    def replace(self, replaced: Replacement) -> None:
        """Give the table other columns and partition keys."""
        self._apply(replaced.updates, replaced.requirements)

    def forget_keys(self) -> None:
        """Take out what is partitioned by columns that the table has no more."""
        if updates := forgotten(self.table_metadata):
            log.warning("All earlier versions are forgotten with a column that they are partitioned by.")
            self._apply(updates)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all changes so far."""
        for update in self._updates[self._seen :]:
            self._changed = _apply_table_update(update, self._changed, self._context)
        self._seen = len(self._updates)
        return self._changed


class InOrder(_SnapshotProducer[U], Generic[U]):
    """A snapshot that is younger than all before it."""

    @cached_property
    def timestamp_ms(self) -> int:
        """When it is made, in milliseconds."""
        return next_ms(self._transaction._table.metadata)

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        dated = tuple(self._dated(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates)
        return dated, requirements

    def _dated(self, update: AddSnapshotUpdate) -> AddSnapshotUpdate:
        return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": self.timestamp_ms}))


class FenceOff(InOrder["FenceOff"], _FastAppendFiles):
    """An empty snapshot, so that a commit which is under way no longer fits the table."""

    def __init__(self, transaction: Transaction, io: FileIO, token: str) -> None:
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties={FENCE: token})
