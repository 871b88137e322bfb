"""Column statistics of the data files that differ between two snapshots of an Iceberg table."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from datetime import date, timedelta
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
)

from airflow_dynamic_tables.clients.iceberg.revisions import partition
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.conditions import Bound, ColumnRange
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.exceptions import UnsupportedError, VersionNotFoundError
from airflow_dynamic_tables.formats.base import ChangedFiles, ListedFile
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.row_deletions import live_rows

_EPOCH = date(1970, 1, 1)
_KNOWN = (BooleanType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StringType)


def changes_of(table: Table, columns: Collection[str], since: SourceState, now: SourceState) -> ChangedFiles:
    """Return the ranges of columns in each file that was added or removed between two states, by partition.

    :raises VersionNotFoundError: if a snapshot has expired.
    :raises UnsupportedError: if rows were deleted beside the files.
    """
    before, after = _snapshot(table, since.version), _snapshot(table, now.version)
    manifests = [{each.manifest_path: each for each in snapshot.manifests(table.io)} for snapshot in (before, after)]
    # What is in a manifest of both is in both snapshots.
    differing = [[own[path] for path in own.keys() - other.keys()] for own, other in (manifests, manifests[::-1])]
    if any(manifest.content is not ManifestContent.DATA for own in differing for manifest in own):
        raise UnsupportedError("another engine deleted rows beside its files")
    files = [dict(_files(table, own)) for own in differing]
    schema = table.schema()
    fields = [field for field in schema.fields if field.name.lower() in columns and isinstance(field.field_type, _KNOWN)]
    found: dict[str, list[dict[str, ColumnRange]]] = {}
    for own, other in (files, files[::-1]):
        for path in own.keys() - other.keys():
            file = own[path]
            text = describe(partition(file, table.specs()[file.spec_id], schema))
            found.setdefault(text, []).append({field.name.lower(): _range(file, field) for field in fields})
    return found


def files_of(table: Table, path: ObjectPath, columns: Collection[str], state: SourceState) -> list[ListedFile]:
    """Return the files of a snapshot, see :func:`~airflow_dynamic_tables.formats.registry.list_files`.

    :raises VersionNotFoundError: if it has expired.
    :raises UnsupportedError: if its files alone do not tell its rows.
    """
    then = tables.at_snapshot(table, _snapshot(table, state.version).snapshot_id)
    tables.content(then, path)
    live = live_rows(then)
    if isinstance(live, str):
        raise UnsupportedError(f"it {live}")
    schema = then.schema()
    fields = [field for field in schema.fields if field.name.lower() in columns and isinstance(field.field_type, _KNOWN)]
    return [
        ListedFile(
            file.file_path,
            describe(partition(file, then.specs()[file.spec_id], schema)),
            ranges={field.name.lower(): _range(file, field) for field in fields},
            deleted=live.deleted.get(file.file_path, ()),
        )
        for file in live.files
    ]


def _snapshot(table: Table, version: str) -> Snapshot:
    snapshot = table.snapshot_by_id(int(version)) if version.isdecimal() else None
    if snapshot is None:
        raise VersionNotFoundError(f"snapshot {version} has expired")
    return snapshot


def _files(table: Table, manifests: Collection[ManifestFile]) -> Iterator[tuple[str, DataFile]]:
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path, entry.data_file


def _range(file: DataFile, field: NestedField) -> ColumnRange:
    number, kind = field.field_id, field.field_type
    nulls = (file.null_value_counts or {}).get(number)
    lower = _bound((file.lower_bounds or {}).get(number), kind)
    upper = _bound((file.upper_bounds or {}).get(number), kind)
    if isinstance(kind, FloatType | DoubleType) and (file.nan_value_counts or {}).get(number) != 0:
        upper = None  # for Spark, NaN is greater than all other numbers, and bounds leave it out
    is_null = nulls is not None and nulls == (file.value_counts or {}).get(number) == file.record_count
    return ColumnRange(lower, upper, may_have_nulls=nulls != 0, may_have_values=not is_null)


def _bound(value: bytes | None, kind: IcebergType) -> Bound | None:
    """Decode a bound; one of a text is a prefix, or greater than all values that begin with it."""
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    if isinstance(kind, LongType | DoubleType) and len(value) == 4:  # written before the column got its type
        return _checked(struct.unpack("<i" if isinstance(kind, LongType) else "<f", value)[0])
    try:
        found: Any = from_bytes(kind, value)
        return _EPOCH + timedelta(days=found) if isinstance(kind, DateType) else _checked(found)
    except (ValueError, OverflowError, struct.error):
        return None


def _checked(value: Any) -> Bound | None:
    found: Bound = value
    return None if isinstance(found, float) and math.isnan(found) else found
