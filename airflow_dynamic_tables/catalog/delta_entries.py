"""Reads from the log of a Delta table what overrides its catalog entry: columns, keys, version, partitions, sizes.

Once there is a version, only the location is taken from the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeGuard

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    TableStatistics,
    is_own,
)
from airflow_dynamic_tables.clients.delta.snapshots import NOTHING_YET, DeltaFile, DeltaSnapshot, open_snapshot
from airflow_dynamic_tables.core.formats import is_placed_by_entry
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.exceptions import VersionNotFoundError


def is_delta(entry: AnyTable | None) -> TypeGuard[CatalogDynamicTable | CatalogTable]:
    """Return whether an entry is a Delta table of this package; no other format leaves its metadata to the table."""
    return is_own(entry) and is_placed_by_entry(entry.format)


def as_stored(entry: AnyTable | None, version: str | None) -> AnyTable | None:
    """Return an entry updated from the Delta log, as of a version; ``None`` when there is no such version.

    Any other entry is returned unchanged.

    :raises CatalogUnavailableError: when the log cannot be read.
    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    if not is_delta(entry):
        return entry
    try:
        snapshot = _snapshot(entry, int(version) if version is not None else None)
    except (VersionNotFoundError, ValueError):
        return None
    if snapshot is None:
        return entry if version is None else None
    # Until a full refresh recreates the table, its partitioning is unchanged, whatever its definition states.
    known = replace(entry, columns=snapshot.columns, partition_keys=snapshot.partition_keys)
    return replace(known, snapshot=str(snapshot.version)) if isinstance(known, CatalogDynamicTable) else known


def partitions_of(
    entry: CatalogDynamicTable | CatalogTable, keys: tuple[str, ...], wanted: Mapping[str, str]
) -> list[CatalogPartition]:
    """Return the partitions that contain files and match ``wanted``, ordered by their values."""
    snapshot = _snapshot(entry)
    groups: dict[tuple[str, ...], list[DeltaFile]] = {}
    for file in snapshot.files if snapshot is not None else ():
        values = {key: NULL_PARTITION if (value := file.partition.get(key)) is None else value for key in keys}
        if wanted.items() <= values.items():
            groups.setdefault(tuple(values.values()), []).append(file)
    hides_rows = snapshot is not None and snapshot.hides_rows
    return [
        CatalogPartition(dict(zip(keys, values, strict=True)), statistics=_size(files, hides_rows=hides_rows))
        for values, files in sorted(groups.items())
    ]


def statistics_of(entry: CatalogDynamicTable | CatalogTable) -> TableStatistics:
    """Return the size of the current version."""
    snapshot = _snapshot(entry)
    return _size(snapshot.files, hides_rows=snapshot.hides_rows) if snapshot is not None else TableStatistics()


def _snapshot(entry: CatalogDynamicTable | CatalogTable, version: int | None = None) -> DeltaSnapshot | None:
    """Return a version of the table; ``None`` when it has none."""
    snapshot = open_snapshot(entry.location, version) if entry.location is not None else None
    return snapshot if snapshot is not None and NOTHING_YET not in snapshot.properties else None


def _size(files: Iterable[DeltaFile], *, hides_rows: bool) -> TableStatistics:
    """Add up files.

    :param hides_rows: whether deletion vectors delete rows of them, so that the number of rows is unknown.
    """
    listed = list(files)
    rows = None if hides_rows or any(file.rows is None for file in listed) else sum(file.rows or 0 for file in listed)
    return TableStatistics(rows, sum(file.bytes for file in listed), len(listed))
