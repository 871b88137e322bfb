"""Data files and partitions of an Iceberg table, and revisions by which its properties are changed atomically."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4, uuid5

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, write_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.iceberg.schemas import key_of
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import UnsupportedError


def partition(file: DataFile, spec: PartitionSpec, schema: Schema) -> dict[str, str | None]:
    """The partition of a file as text, by the partition keys whose columns still exist; ``None`` for null."""
    values: dict[str, str | None] = {}
    for position, field in _fields(spec, schema):
        kind = schema.find_field(field.source_id).field_type
        value = file.partition[position]
        values[key_of(field, schema)] = None if value is None else field.transform.to_human_string(kind, value)
    return values


def is_split(file: DataFile, spec: PartitionSpec, schema: Schema, asked: PartitionSet) -> bool:
    """Return whether a file may have rows inside and outside the given partitions, because it was written with other keys."""
    names = {field.name for _, field in _fields(spec, schema) if isinstance(field.transform, IdentityTransform)}
    if asked.is_told_by(names):  # true of all files without other keys, usually most of them
        return False
    values = partition(file, spec, schema)
    plain = {name: values[name] for name in names}
    return not asked.covers(plain) and asked.overlaps(PartitionSet.of([plain]))


def key_columns(spec: PartitionSpec, schema: Schema) -> dict[str, str]:
    """Column names of the partition keys in a catalog, by the keys of :func:`partition`."""
    fields = (field for _, field in _fields(spec, schema) if not isinstance(field.transform, VoidTransform))
    return {
        (key := key_of(field, schema)): str(schema.find_column_name(field.source_id))
        if isinstance(field.transform, IdentityTransform)
        else key
        for field in fields
    }


def _fields(spec: PartitionSpec, schema: Schema) -> Iterator[tuple[int, PartitionField]]:
    """The partition fields with their positions, without former keys whose columns another engine dropped."""
    for position, field in enumerate(spec.fields):
        if schema.find_column_name(field.source_id) is not None:
            yield position, field


def has_delete_files(table: Table) -> bool:
    """Return whether delete files remove rows of the data files, so that no row count is available."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return any(manifest.content == ManifestContent.DELETES for manifest in manifests)


def data_files(table: Table) -> Iterator[tuple[DataFile, PartitionSpec]]:
    """The data files of the current snapshot with the spec each was written by; manifests are read in parallel."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    of_data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    read = ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(table.io), of_data)
    for manifest, entries in zip(of_data, read, strict=True):
        spec = table.specs()[manifest.partition_spec_id]
        yield from ((entry.data_file, spec) for entry in entries)


REVISION = "dynamic-tables.revision"
"""Property of a table that identifies one state of its properties."""

TAG = "dynamic-tables-"
"""Prefix of the tags' names."""

_NO_TAGS = "The catalog keeps no tags of Iceberg tables, without which changes of a dynamic table could be lost"

_NAMES = UUID("6b3ba2d4-3c35-4b0b-8f0c-6a5f5d9c6f43")


def next_ms(metadata: TableMetadata) -> int:
    """Timestamp of the next change of a table, in milliseconds: now, or just after the last change when the clock is behind."""
    times = (
        metadata.last_updated_ms,
        *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:]),
        *(snapshot.timestamp_ms for snapshot in metadata.snapshots[-1:]),
    )
    return max(int(time.time() * 1000), *(last + 1 for last in times))


class UpdatedAt(IcebergBaseModel):
    """A metadata update with the time of the change; without it PyIceberg uses the clock."""

    timestamp_ms: int


@_apply_table_update.register(UpdatedAt)
def _updated_at(update: UpdatedAt, base_metadata: TableMetadata, _: Any) -> TableMetadata:  # type: ignore[misc]  # not in its list
    return base_metadata.model_copy(update={"last_updated_ms": update.timestamp_ms})


def dated(table: Table) -> tuple[TableUpdate, ...]:
    """The update that dates a change without a snapshot; empty for REST catalogs, whose server uses its own clock."""
    if not isinstance(table.catalog, MetastoreCatalog):
        return ()
    return (UpdatedAt(timestamp_ms=next_ms(table.metadata)),)  # type: ignore[return-value]  # see there


def first_revision() -> str:
    """The revision of a new table."""
    return uuid4().hex


def is_anchor(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Return whether a snapshot exists only for the tags."""
    return any(name.startswith(TAG) and ref.snapshot_id == snapshot_id for name, ref in metadata.refs.items())


def is_anchored(metadata: TableMetadata) -> bool:
    """Return whether the tag of a table's revision exists: it does not before the first change, or when it was dropped."""
    return _tag(metadata) in metadata.refs


def anchor(table: Table) -> None:
    """Set the tag of a table's current revision; its properties stay unchanged.

    :raises CommitFailedException: when the table was changed concurrently.
    :raises UnsupportedError: when the catalog does not store tags.
    """
    metadata = table.metadata
    snapshots = [ref.snapshot_id for name, ref in metadata.refs.items() if name.startswith(TAG)]
    updates: list[TableUpdate] = []
    if not snapshots:
        snapshot = _empty_snapshot(metadata, table.io)
        snapshots.append(snapshot.snapshot_id)
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
    updates.append(_set(_tag(metadata), snapshots[0]))
    # PyIceberg allows no other requirement for a table without snapshots.
    free = _tag(metadata) if metadata.snapshots else MAIN_BRANCH
    try:
        committed = _commit(table, [_points_to(free, None)], updates)
    except (BadRequestError, NotImplementedError) as error:
        raise UnsupportedError(f"{_NO_TAGS}: {error}") from error
    if _tag(metadata) not in committed.refs:
        raise UnsupportedError(f"{_NO_TAGS}.")


def alter(table: Table, changed: Mapping[str, str], removed: Iterable[str]) -> None:
    """Change properties of an anchored table, unless its properties changed since it was read.

    :raises CommitFailedException: when they changed concurrently.
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
    """A snapshot without files; its manifest list is written."""
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
