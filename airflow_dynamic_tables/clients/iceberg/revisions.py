"""Properties of Iceberg tables, changed by compare-and-swap, which no Iceberg catalog offers for properties (ADR 18).

A commit can require that a tag is where it was. So every change of these properties takes away a tag that is named by the
revision before, and sets one that is named by the next: of two who change the same revision one finds its tag gone. The tags are
on an empty snapshot that belongs to no branch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4, uuid5

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.io import FileIO
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
)
from pyiceberg.typedef import IcebergBaseModel

from airflow_dynamic_tables.exceptions import UnsupportedError

REVISION = "dynamic-tables.revision"
"""Property of a table that tells one state of the others from the next."""

TAG = "dynamic-tables-"
"""What the names of the tags begin with."""

_NO_TAGS = "The catalog keeps no tags of Iceberg tables, without which nobody can change a dynamic table and lose nothing"

_NAMES = UUID("6b3ba2d4-3c35-4b0b-8f0c-6a5f5d9c6f43")


def next_ms(metadata: TableMetadata) -> int:
    """The time of the next change of a table, in milliseconds: now, or just after the last one when the clock is behind."""
    times = (
        metadata.last_updated_ms,
        *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:]),
        *(snapshot.timestamp_ms for snapshot in metadata.snapshots[-1:]),
    )
    return max(int(time.time() * 1000), *(last + 1 for last in times))


class UpdatedAt(IcebergBaseModel):
    """A change of a table's metadata that says when it was made; without it PyIceberg asks the clock."""

    timestamp_ms: int


@_apply_table_update.register(UpdatedAt)
def _updated_at(update: UpdatedAt, base_metadata: TableMetadata, _: Any) -> TableMetadata:  # type: ignore[misc]  # not in its list
    return base_metadata.model_copy(update={"last_updated_ms": update.timestamp_ms})


def dated(table: Table) -> tuple[TableUpdate, ...]:
    """The update that says when a change without a snapshot was made; a server of the REST protocol has a clock of its own."""
    if not isinstance(table.catalog, MetastoreCatalog):
        return ()
    return (UpdatedAt(timestamp_ms=next_ms(table.metadata)),)  # type: ignore[return-value]  # see there


def first_revision() -> str:
    """The revision of a new table."""
    return uuid4().hex


def is_anchor(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether a snapshot is there for the tags alone."""
    return any(name.startswith(TAG) and ref.snapshot_id == snapshot_id for name, ref in metadata.refs.items())


def is_anchored(metadata: TableMetadata) -> bool:
    """Whether the revision of a table has its tag: not before the first change, nor when somebody dropped it."""
    return _tag(metadata) in metadata.refs


def anchor(table: Table) -> None:
    """Set the tag of the revision that a table has; its properties stay as they are.

    :raises CommitFailedException: when somebody else changed the table meanwhile.
    :raises UnsupportedError: when the catalog keeps no tags.
    """
    metadata = table.metadata
    snapshots = [ref.snapshot_id for name, ref in metadata.refs.items() if name.startswith(TAG)]
    updates: list[TableUpdate] = []
    if not snapshots:
        snapshot = _empty_snapshot(metadata, table.io)
        snapshots.append(snapshot.snapshot_id)
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
    updates.append(_set(_tag(metadata), snapshots[0]))
    # Of a table without any snapshot PyIceberg lets nothing else be required.
    free = _tag(metadata) if metadata.snapshots else MAIN_BRANCH
    try:
        committed = _commit(table, [_points_to(free, None)], updates)
    except (BadRequestError, NotImplementedError) as error:
        raise UnsupportedError(f"{_NO_TAGS}: {error}") from error
    if _tag(metadata) not in committed.refs:
        raise UnsupportedError(f"{_NO_TAGS}.")


def alter(table: Table, changed: Mapping[str, str], removed: Iterable[str]) -> None:
    """Change properties of a table as it was read, which is anchored, unless somebody changed the same ones since.

    :raises CommitFailedException: when somebody did.
    """
    metadata = table.metadata
    before = _tag(metadata)
    following = uuid5(_NAMES, metadata.properties.get(REVISION, "")).hex
    snapshot = metadata.refs[before].snapshot_id
    tags = [name for name in metadata.refs if name.startswith(TAG)]
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in tags]
    updates += [_set(f"{TAG}{following}", snapshot), SetPropertiesUpdate(updates={**changed, REVISION: following})]
    if gone := sorted({*removed} & metadata.properties.keys()):
        updates.append(RemovePropertiesUpdate(removals=gone))
    _commit(table, [_points_to(before, snapshot), _points_to(f"{TAG}{following}", None)], updates)


def _tag(metadata: TableMetadata) -> str:
    return f"{TAG}{metadata.properties.get(REVISION, '')}"


def _set(tag: str, snapshot: int) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": tag, "type": SnapshotRefType.TAG, "snapshot-id": snapshot})


def _points_to(ref: str, snapshot: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot})


def _commit(table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> TableMetadata:
    is_same = AssertTableUUID(uuid=table.metadata.table_uuid)
    return table.catalog.commit_table(table, (is_same, *requirements), (*updates, *dated(table))).metadata


def _empty_snapshot(metadata: TableMetadata, io: FileIO) -> Snapshot:
    """A snapshot without files; its list of manifests is written."""
    snapshot_id = metadata.new_snapshot_id()
    number = metadata.next_sequence_number()
    place = f"{metadata.location.rstrip('/')}/metadata/snap-{snapshot_id}-0-{uuid4()}.avro"
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(place),
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=number,
        avro_compression="null",
    ) as writer:
        writer.add_manifests([])
    return Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": next_ms(metadata),
            "manifest-list": place,
            "summary": Summary(Operation.APPEND, **{"total-records": "0", "total-data-files": "0"}),
            "schema-id": metadata.current_schema_id,
        }
    )
