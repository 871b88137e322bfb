"""Replace the columns and partition keys of an Iceberg table together with all its rows, keeping old snapshots readable.

As in Iceberg's own ``REPLACE TABLE``, a name keeps its former field id, whatever its type was. The files of old snapshots are
read by column names through a single name mapping: with another id for the same name, old rows would read as nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemovePartitionSpecsUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from airflow_dynamic_tables.clients.iceberg.revisions import is_anchor
from airflow_dynamic_tables.clients.iceberg.schemas import IcebergKey, key_fields, key_of, schema_of
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import SchemaEvolutionError


@dataclass(frozen=True, slots=True)
class Replacement:
    """Metadata updates of a table, and the requirements that detect concurrent changes."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


def replacement(metadata: TableMetadata, columns: Sequence[Column], partition_keys: Sequence[str]) -> Replacement:
    """Set exactly these columns and partition keys on a table.

    :raises UnsupportedError: names a column whose type Iceberg does not have.
    """
    schema = _schema(metadata, columns)
    spec = _spec(metadata, schema, partition_keys)
    known_schemas = {one.schema_id for one in metadata.schemas}
    known_specs = {one.spec_id for one in metadata.partition_specs}
    updates: list[TableUpdate] = []
    if schema.schema_id not in known_schemas:
        updates.append(AddSchemaUpdate(schema=schema))
    updates.append(SetCurrentSchemaUpdate.model_validate({"schema-id": schema.schema_id}))
    if spec.spec_id not in known_specs:
        updates.append(AddPartitionSpecUpdate(spec=spec))
    updates.append(SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id}))
    if metadata.default_sort_order_id:  # another engine's sort order, whose columns may be dropped
        updates.append(SetDefaultSortOrderUpdate.model_validate({"sort-order-id": 0}))
    mapping = NameMapping(_merged(_known_mapping(metadata), list(create_mapping_from_schema(schema))))
    updates.append(SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()}))
    requirements = (
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id}),
    )
    return Replacement(tuple(updates), requirements)


def forgotten(metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """Updates that remove the partition specs of dropped columns, together with all snapshots except the current one.

    Iceberg's Java library cannot open a table whose metadata has such a spec (its issue 10234), and without the spec it cannot
    open snapshots written by it. Without such a spec, nothing is removed.

    :raises SchemaEvolutionError: when a branch or tag of another engine retains a snapshot.
    """
    keys = {field.field_id for field in metadata.schema().fields if field.field_type.is_primitive}
    specs = [spec.spec_id for spec in metadata.partition_specs if any(field.source_id not in keys for field in spec.fields)]
    others = (one.snapshot_id for one in metadata.snapshots if one.snapshot_id != metadata.current_snapshot_id)
    snapshots = [number for number in others if not is_anchor(metadata, number)]
    if not specs:
        return ()
    if kept := sorted(name for name, reference in metadata.refs.items() if reference.snapshot_id in snapshots):
        raise SchemaEvolutionError(
            f"A column that was a partition key can only go with all earlier versions, and {kept[0]}, a branch or tag, keeps "
            "one: drop that first, or let the query return the column."
        )
    without = (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshots}),) if snapshots else ()
    return (*without, RemovePartitionSpecsUpdate.model_validate({"spec-ids": specs}))


def _schema(metadata: TableMetadata, columns: Sequence[Column]) -> Schema:
    """The schema of these columns; an identical earlier schema of the table is reused."""
    known = _ids_of_names(metadata)
    new = count(metadata.last_column_id + 1)
    drawn = schema_of(columns)
    struct = _with_ids(drawn.as_struct(), "", lambda name: known.get(name) or next(new))
    schema = Schema(*struct.fields, schema_id=1 + max(one.schema_id for one in metadata.schemas))
    return next((one for one in metadata.schemas if one == schema), schema)


def _ids_of_names(metadata: TableMetadata) -> dict[str, int]:
    """The field id of every name that a column or nested field has or had; a name that another engine dropped has none."""
    in_order = sorted(metadata.schemas, key=lambda schema: (schema.schema_id == metadata.current_schema_id, schema.schema_id))
    last_names = {field_id: str(schema.find_column_name(field_id)) for schema in in_order for field_id in schema.field_ids}
    current = metadata.schema().field_ids
    return {name: field_id for field_id, name in sorted(last_names.items(), key=lambda named: (named[0] in current, named[0]))}


def _with_ids(struct: StructType, prefix: str, id_of: Callable[[str], int]) -> StructType:
    names = [f"{prefix}{field.name}" for field in struct.fields]
    ids = [id_of(name) for name in names]
    return StructType(
        *(
            NestedField(number, field.name, _numbered(field.field_type, name, id_of), required=field.required, doc=field.doc)
            for number, name, field in zip(ids, names, struct.fields, strict=True)
        )
    )


def _numbered(kind: IcebergType, name: str, id_of: Callable[[str], int]) -> IcebergType:
    match kind:
        case StructType():
            return _with_ids(kind, f"{name}.", id_of)
        case ListType():
            element = f"{name}.element"
            element_id = id_of(element)
            return ListType(element_id, _numbered(kind.element_type, element, id_of), element_required=kind.element_required)
        case MapType():
            key = f"{name}.key"
            value = f"{name}.value"
            key_id = id_of(key)
            value_id = id_of(value)
            key_type = _numbered(kind.key_type, key, id_of)
            value_type = _numbered(kind.value_type, value, id_of)
            return MapType(key_id, key_type, value_id, value_type, value_required=kind.value_required)
    return kind


def _spec(metadata: TableMetadata, schema: Schema, partition_keys: Sequence[str]) -> PartitionSpec:
    """The partition spec of these keys; an identical earlier spec of the table is reused."""
    wanted = list(key_fields(schema, partition_keys))
    if _is_by(metadata.spec(), wanted, metadata.schema()):
        return metadata.spec()
    known = {(field.source_id, field.name, str(field.transform)): field for field in _stable_fields(metadata, schema)}
    new = count(max(metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1)
    fields = tuple(_partition_field(known, field, new) for field in wanted)
    same = (spec for spec in metadata.partition_specs if spec.fields == fields)
    return next(same, None) or PartitionSpec(*fields, spec_id=1 + max(spec.spec_id for spec in metadata.partition_specs))


def _is_by(spec: PartitionSpec, wanted: Sequence[IcebergKey], schema: Schema) -> bool:
    """Return whether a spec partitions by these fields, whose columns have the same types in a schema."""
    by = [(field.source_id, key_of(field, schema), str(field.transform)) for field in spec.fields]
    is_same = by == [(field.source.field_id, field.key, str(field.transform)) for field in wanted]
    return is_same and all(schema.find_type(field.source.field_id) == field.source.field_type for field in wanted)


def _partition_field(known: dict[tuple[int, str, str], PartitionField], wanted: IcebergKey, new: Iterator[int]) -> PartitionField:
    field = known.get((wanted.source.field_id, wanted.name, str(wanted.transform)))
    return field or PartitionField(wanted.source.field_id, next(new), wanted.transform, wanted.name)


def _stable_fields(metadata: TableMetadata, schema: Schema) -> Iterator[PartitionField]:
    """Partition fields of all specs whose columns have had this schema's type in all schemas."""
    types: dict[int, set[str]] = {}
    for one in (*metadata.schemas, schema):
        for column in one.fields:
            types.setdefault(column.field_id, set()).add(str(column.field_type))
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if not isinstance(field.transform, VoidTransform) and len(types.get(field.source_id, ())) == 1:
                yield field


def _known_mapping(metadata: TableMetadata) -> list[MappedField]:
    text = metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING)
    mapping = NameMapping.model_validate_json(text) if text is not None else create_mapping_from_schema(metadata.schema())
    return list(mapping)


def _merged(known: Sequence[MappedField], new: Sequence[MappedField]) -> list[MappedField]:
    """The union of both mappings; for a name with two ids, the new one wins."""
    taken = {name for field in new for name in field.names}
    by_id = {field.field_id: field for field in known}
    merged = []
    for field in new:
        before = by_id.pop(field.field_id, None)
        others = [name for name in before.names if name not in taken] if before is not None else []
        parts = _merged(before.fields if before is not None else (), field.fields)
        merged.append(_mapped(field.field_id, [*field.names, *others], parts))
    for field in by_id.values():
        if names := [name for name in field.names if name not in taken]:
            merged.append(_mapped(field.field_id, names, field.fields))
    return merged


def _mapped(field_id: int | None, names: list[str], parts: Sequence[MappedField]) -> MappedField:
    return MappedField.model_validate({"field-id": field_id, "names": names, "fields": list(parts)})
