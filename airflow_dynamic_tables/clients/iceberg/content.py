"""What an Iceberg table holds now: its data files and the partition of each."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.iceberg.keys import key_of
from airflow_dynamic_tables.core.tables.partitions import PartitionSet


def partition(file: DataFile, spec: PartitionSpec, schema: Schema) -> dict[str, str | None]:
    """A file's partition as text, by the partition keys whose columns are still there; ``None`` for null."""
    values: dict[str, str | None] = {}
    for position, field in _fields(spec, schema):
        kind = schema.find_field(field.source_id).field_type
        value = file.partition[position]
        values[key_of(field, schema)] = None if value is None else field.transform.to_human_string(kind, value)
    return values


def is_split(file: DataFile, spec: PartitionSpec, schema: Schema, asked: PartitionSet) -> bool:
    """Whether some rows of a file may be of the asked partitions and others not: the table had other keys as it was written."""
    names = {field.name for _, field in _fields(spec, schema) if isinstance(field.transform, IdentityTransform)}
    if asked.is_told_by(names):  # as of all files but those of other keys, of which there may be many
        return False
    values = partition(file, spec, schema)
    plain = {name: values[name] for name in names}
    return not asked.covers(plain) and asked.overlaps(PartitionSet.of([plain]))


def key_columns(spec: PartitionSpec, schema: Schema) -> dict[str, str]:
    """What a catalog calls the partition keys: columns by their names, by what :func:`partition` calls them."""
    fields = (field for _, field in _fields(spec, schema) if not isinstance(field.transform, VoidTransform))
    return {
        (key := key_of(field, schema)): str(schema.find_column_name(field.source_id))
        if isinstance(field.transform, IdentityTransform)
        else key
        for field in fields
    }


def _fields(spec: PartitionSpec, schema: Schema) -> Iterator[tuple[int, PartitionField]]:
    """The partition fields, each with its place, but for former keys whose columns another engine dropped."""
    for position, field in enumerate(spec.fields):
        if schema.find_column_name(field.source_id) is not None:
            yield position, field


def has_delete_files(table: Table) -> bool:
    """Whether rows of the data files are deleted by other files, so that nothing counts them."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return any(manifest.content == ManifestContent.DELETES for manifest in manifests)


def data_files(table: Table) -> Iterator[tuple[DataFile, PartitionSpec]]:
    """The data files of the current snapshot, each with the spec it was written by; manifests are read side by side."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    of_data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    read = ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(table.io), of_data)
    for manifest, entries in zip(of_data, read, strict=True):
        spec = table.specs()[manifest.partition_spec_id]
        yield from ((entry.data_file, spec) for entry in entries)
