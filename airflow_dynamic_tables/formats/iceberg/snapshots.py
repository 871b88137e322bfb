"""Reading Iceberg tables: versions, files and partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import dropwhile
from urllib.parse import quote

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType
from pyiceberg.utils.properties import property_as_bool

from airflow_dynamic_tables.clients.files import as_os_errors, read_text
from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog, damage_named
from airflow_dynamic_tables.clients.iceberg.revisions import data_files, has_delete_files, is_split, partition
from airflow_dynamic_tables.clients.iceberg.schemas import columns_of, keys_of, to_spark
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import Column, TableLayout, spark_ddl
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import RowCounts, TableContent
from airflow_dynamic_tables.formats.commits import COMPACTION, FENCE, NUMBER, TOKEN, version_of
from airflow_dynamic_tables.formats.fingerprints import lasting_fingerprints, partition_sizes, schema_digest
from airflow_dynamic_tables.formats.iceberg.row_deletions import (
    LiveRows,
    knows_all_schemas,
    live_rows,
    unreadable_by_name,
    unreadable_in_files,
)

LATEST = "dynamic-tables.latest"
"""Table property with the snapshot summary of the latest version."""

_PLAIN_TYPE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary|decimal\(\d+, ?\d+\)|fixed\[\d+\]"
)
"""Primitive types as spelled in metadata, without structs, lists and maps."""

LINE = "dynamic-tables.line"
"""Property of our snapshots with the numbers of the versions that they continue and their own, such as ``1-7,12-13``.

It is needed because others may roll back the table, and parents of kept snapshots may expire.
"""

_DELETABLE = "gc.enabled"

_DROPPED = "dynamic-tables.dropped-columns"
"""Table property with the columns dropped when all rows were replaced, so that no file that is read contains them."""


def load(store: IcebergStore, path: ObjectPath) -> Table | None:
    """Load a table from the catalog; ``None`` if it does not exist.

    :raises CatalogUnavailableError: if the catalog's database or the table's metadata cannot be reached, or are damaged.
    """
    try:
        with store.errors(), as_os_errors(), damage_named(path, store.catalog):
            return store.tables.load_table((path.database, path.name))
    except NoSuchTableError:
        return None
    except OSError as error:
        raise CatalogUnavailableError(f"Cannot read the metadata of table {path} in catalog {store.catalog}: {error}") from error


def glance(store: IcebergStore, path: ObjectPath) -> Version | None:
    """Return the current version if the metadata file alone shows it: one of our commits made the current snapshot.

    Used for listing many tables: PyIceberg takes ten times as long to read the file, and also has to be imported.

    :return: ``None`` if :func:`current` has to be used.
    """
    place = store.tables.known_metadata((path.database, path.name)) if isinstance(store.tables, LeanCatalog) else None
    if place is None:
        return None
    try:
        metadata = json.loads(read_text(place))
        columns = next(one["fields"] for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
        is_plain = metadata["format-version"] in (1, 2) and all(_PLAIN_TYPE.fullmatch(column["type"]) for column in columns)
        latest = json.loads(metadata["properties"][LATEST])["snapshot"]
        snapshot = next(one for one in metadata["snapshots"] if str(one["snapshot-id"]) == latest)
        if not is_plain or snapshot["snapshot-id"] != metadata["current-snapshot-id"]:
            return None
        return version_of(snapshot["summary"], latest, snapshot["timestamp-ms"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


def lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors; where a parent expired, continue with the newest proven ancestor."""
    older = iter(sorted(table.snapshots(), key=_order, reverse=True))
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = _parent(table, snapshot) or _continued(table, snapshot, dropwhile(partial(_is_not_before, snapshot), older))


def _parent(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """Return the parent of a snapshot; ``None`` if it expired or does not exist."""
    parent = snapshot.parent_snapshot_id
    return table.snapshot_by_id(parent) if parent is not None else None


def _continued(table: Table, snapshot: Snapshot, older: Iterator[Snapshot]) -> Snapshot | None:
    """Return the newest snapshot that is proven to be an ancestor of one whose parent expired; ``None`` if there is no proof.

    Others may have rolled back to the parent. The snapshots in between are then older, but not ancestors.

    :param older: the snapshots before it, newest first.
    """
    if (line := told(snapshot).get(LINE)) is not None:
        return next((other for other in older if _is_in(line, int(told(other).get(NUMBER) or 0))), None)
    newest = next(older, None)
    if newest is None or TOKEN in told(snapshot) or _root(table, newest).sequence_number == 1:
        return newest
    version = next(filter(None, map(_version, (newest, *older))), None)
    is_read = version is not None and find_files(table, version.token, current_only=True) is not None
    return newest if is_read else None


def _root(table: Table, snapshot: Snapshot) -> Snapshot:
    """Return the oldest known ancestor of a snapshot."""
    while (parent := _parent(table, snapshot)) is not None:
        snapshot = parent
    return snapshot


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _is_not_before(newer: Snapshot, snapshot: Snapshot) -> bool:
    return _order(snapshot) >= _order(newer)


def _spans(line: str) -> list[tuple[int, int]]:
    """Parse a :data:`LINE` into the first and last number of each run."""
    spans = (span.partition("-") for span in line.split(",") if span)
    return [(int(first), int(last or first)) for first, _, last in spans]


def _is_in(line: str, number: int) -> bool:
    return any(first <= number <= last for first, last in _spans(line))


def line(table: Table, number: int | None = None) -> dict[str, str]:
    """Return the :data:`LINE` property of a new snapshot.

    :param number: the number of its version; ``None`` if it is not a version.
    """
    base = current(table)
    known = _summary_of(table, base).get(LINE) if base is not None else ""
    continued = _spans(known) if known is not None else sorted((one.number, one.number) for one in versions(table))
    spans: list[tuple[int, int]] = []
    for first, last in (*continued, *(((number, number),) if number is not None else ())):
        if spans and first == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return {LINE: ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)}


def _summary_of(table: Table, version: Version) -> Mapping[str, str]:
    """Return the snapshot summary of the current version even if it expired; an empty line for an unknown version."""
    if version.number == 0:
        return {LINE: ""}
    snapshot = table.snapshot_by_id(int(version.snapshot))
    summary: Mapping[str, str] = told(snapshot) if snapshot is not None else json.loads(table.properties[LATEST])["summary"]
    return summary


def versions(table: Table) -> Iterator[Version]:
    """Yield the kept versions along the lineage of the current snapshot, newest first."""
    return filter(None, map(_version, lineage(table)))


def current(table: Table | None) -> Version | None:
    """Return the current version even if another engine expired its snapshot; ``None`` before the first commit.

    An expired version is current only if the current snapshot descends from it. If that is unknown, the version has number 0 and
    no data timestamp.
    """
    if table is None:
        return None
    kept = next(versions(table), None)
    latest = _remembered(table)
    if latest is None or (kept is not None and latest.number <= kept.number):
        return kept
    if table.snapshot_by_id(int(latest.snapshot)) is None:
        return _forgotten(table, kept, latest)
    return kept or Version(0, "", snapshot_id(table), None, latest.committed_at)


def _forgotten(table: Table, kept: Version | None, latest: Version) -> Version:
    """Return the current version if the snapshot of the latest version expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if kept is not None and str(snapshot.snapshot_id) == kept.snapshot:
            return kept  # another engine rolled back to it, and expired the later ones
        if str(snapshot.parent_snapshot_id) == latest.snapshot or _is_in(told(snapshot).get(LINE, ""), latest.number):
            return latest
        snapshot = _parent(table, snapshot)
    # A snapshot in between expired, too: only the files show which version it continues.
    if find_files(table, latest.token, current_only=True) is not None:
        return latest
    return Version(0, "", snapshot_id(table), None, latest.committed_at)


def is_new(table: Table) -> bool:
    """Return whether nothing was committed yet: new tables have no columns."""
    return not table.schema().fields


def filled(table: Table | None, path: ObjectPath, catalog: str) -> Table:
    """Return the table if it has a snapshot.

    :raises TableNotFoundError: if the table does not exist or has no version yet.
    """
    if table is None or is_new(table) or table.current_snapshot() is None:
        raise TableNotFoundError(f"Table {path} in catalog {catalog} does not exist or has no version yet.")
    return table


def keeps_files(table: Table) -> str | None:
    """Return why no files may be deleted; Iceberg's own library refuses it for the same reason."""
    if property_as_bool(table.properties, _DELETABLE, True):
        return None
    return f"has the property {_DELETABLE}=false, by which an engine states that other tables read its files"


def layout(table: Table) -> TableLayout:
    """Return the layout that the next refresh has to match."""
    return TableLayout(columns_of(table.schema()), keys_of(table.spec(), table.schema()))


def dropped(table: Table) -> set[str]:
    """Return the columns dropped when all rows were replaced; columns dropped by other engines may still be in files."""
    return set(json.loads(table.properties.get(_DROPPED) or "[]"))


def are_former(table: Table, added: Sequence[Column]) -> bool:
    """Return whether an added column was in the table before, and has to get its former field id.

    Files that another engine wrote before it dropped the column have its values by that id. A column of another type is only
    former if all its rows were replaced since.
    """
    types = {column.name: column.type for column in added}
    earlier = (field for schema in table.schemas().values() for field in schema.fields if field.name in types)
    return bool(dropped(table) & types.keys()) or any(_is_of(field.field_type, types[field.name]) for field in earlier)


def _is_of(kind: IcebergType, spark_type: str) -> bool:
    try:
        return to_spark(kind) == spark_type
    except UnsupportedError:
        return False


def remember_dropped(transaction: Transaction, table: Table, columns: Iterable[str]) -> None:
    """Record the dropped columns when a transaction keeps only the given columns and replaces all rows."""
    names = {*dropped(table), *(field.name for field in table.schema().fields)} - {*columns}
    transaction.set_properties({_DROPPED: json.dumps(sorted(names))})


def next_number(table: Table) -> int:
    """Return the next version number: above all known numbers, even after a rollback by another tool."""
    latest = _remembered(table)
    numbers = [int(told(snapshot).get(NUMBER) or 0) for snapshot in table.snapshots()]
    return 1 + max([*numbers, latest.number if latest is not None else 0])


def find(table: Table | None, token: str) -> Version | None:
    """Return the version committed with a token, if the table still records it; a compaction has number 0."""
    if table is None:
        return None
    for snapshot in table.snapshots():
        if told(snapshot).get(COMPACTION) == token:
            return Version(0, token, str(snapshot.snapshot_id), None, _time(snapshot.timestamp_ms))
        if told(snapshot).get(TOKEN) == token:
            return _version(snapshot)
    latest = _remembered(table)
    return latest if latest is not None and latest.token == token else None


def find_files(table: Table | None, token: str, *, current_only: bool = False) -> Version | None:
    """Return the version committed with a token if only files of its stage show it: its number is unknown, 0.

    Another engine may expire a snapshot, and the token with it, while newer snapshots still refer to its files.
    """
    if table is None:
        return None
    stage = f"/data/{quote(token, safe='')}/"
    seen: set[str] = set()
    current_snapshot = [snapshot] if (snapshot := table.current_snapshot()) is not None else []
    for snapshot in current_snapshot if current_only else reversed(table.snapshots()):
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=current_only)
            if entry := next((entry for entry in entries if stage in entry.data_file.file_path), None):
                return Version(0, token, str(entry.snapshot_id or ""), None, _time(snapshot.timestamp_ms))
    return None


def told(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the summary of a snapshot without its operation."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def keeps_rows(snapshot: Snapshot) -> bool:
    """Return whether a snapshot leaves the rows unchanged: it rewrote files, or is a fence."""
    is_rewritten = snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
    return is_rewritten or FENCE in told(snapshot)


def _version(snapshot: Snapshot) -> Version | None:
    properties = told(snapshot)
    return version_of(properties, str(snapshot.snapshot_id), snapshot.timestamp_ms) if TOKEN in properties else None


def _remembered(table: Table) -> Version | None:
    """Return the latest version as recorded in the table properties, which survive expiry and ``CREATE OR REPLACE``."""
    if (text := table.properties.get(LATEST)) is None:
        return None
    latest = json.loads(text)
    return version_of(latest["summary"], latest["snapshot"], latest["timestamp-ms"])


def remember(transaction: Transaction, summary: Mapping[str, str], snapshot_id: int, timestamp_ms: int) -> None:
    """Record the version of a transaction in the table properties, too."""
    latest = {"snapshot": str(snapshot_id), "timestamp-ms": timestamp_ms, "summary": dict(summary)}
    transaction.set_properties({LATEST: json.dumps(latest, sort_keys=True)})


def as_of(table: Table, snapshot_id: int) -> Table:
    """Return the table with the columns it had at a snapshot."""
    schema_id = next(snapshot.schema_id for snapshot in table.snapshots() if snapshot.snapshot_id == snapshot_id)
    then = copy(table)
    if schema_id is not None:
        then.metadata = table.metadata.model_copy(update={"current_schema_id": schema_id})
    return then


def at_snapshot(table: Table, snapshot_id: int) -> Table:
    """Return the table with the rows and columns it had at a snapshot."""
    then = copy(as_of(table, snapshot_id))
    then.metadata = then.metadata.model_copy(update={"current_snapshot_id": snapshot_id})
    return then


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def count(table: Table | None, asked: PartitionSet) -> RowCounts | None:
    """Count rows by partition from the manifests of the current snapshot; ``None`` without a snapshot, or if unknown."""
    if table is None or is_new(table) or table.current_snapshot() is None:
        return None
    deleted: Mapping[str, tuple[int, ...]] = {}
    if has_delete_files(table):
        live = live_rows(table)
        if isinstance(live, str):
            return None
        deleted = live.deleted
    schema = table.schema()
    files = list(data_files(table))
    if any(is_split(file, spec, schema, asked) for file, spec in files):
        return None
    counted = ((partition(file, spec, schema), file.record_count - len(deleted.get(file.file_path, ()))) for file, spec in files)
    return RowCounts.of(counted, asked)


def snapshot_id(table: Table) -> str:
    """Return the id of the current snapshot, or an empty string."""
    snapshot = table.current_snapshot()
    return str(snapshot.snapshot_id) if snapshot else ""


def content(table: Table, path: ObjectPath) -> TableContent:
    """Return the table as files that Spark reads by column name.

    :raises UnsupportedError: if that would return wrong rows.
    """
    if why := unreadable_by_name(table):
        raise _needs_runtime(path, why)
    live = live_rows(table)
    if isinstance(live, str):
        raise _needs_runtime(path, live)
    if any(file.file_format != FileFormat.PARQUET for file in live.files):
        raise _needs_runtime(path, "holds files that are not Parquet")
    if why := unreadable_in_files(table, live.files):
        raise _needs_runtime(path, why)
    listed = placed(table, live.files)
    files = tuple(file.file_path for _, file in listed)
    schema = spark_ddl(columns_of(table.schema()))
    there = replace(
        state(table, lasting_fingerprints(_listed(listed, live))),
        sizes=partition_sizes((spec, file.file_size_in_bytes) for spec, file in listed),
    )
    return TableContent(snapshot_id(table), files, schema, parts=parts(listed, live.deleted), state=there)


def _listed(
    placed: Iterable[tuple[dict[str, str | None], DataFile]], live: LiveRows
) -> Iterator[tuple[dict[str, str | None], tuple[str, Mapping[str, object]]]]:
    """Yield the input of fingerprints: data files are immutable, so name and size identify their content."""
    for spec, file in placed:
        yield spec, (file.file_path, {"size": file.file_size_in_bytes})
        if rows := live.deleted.get(file.file_path):
            yield spec, (f"{file.file_path} without {rows}", {"size": len(rows)})


def placed(table: Table, files: Iterable[DataFile]) -> list[tuple[dict[str, str | None], DataFile]]:
    """Return files with their partitions, in the order of their paths."""
    return sorted(((_partition(table, file), file) for file in files), key=lambda each: str(each[1].file_path))


def parts(
    files: Iterable[tuple[dict[str, str | None], DataFile]], deleted: Mapping[str, tuple[int, ...]]
) -> tuple[SourcePart, ...]:
    """Return the files of each partition, and each file with deleted rows apart; empty without partitions and deleted rows.

    :param files: with their partitions.
    :param deleted: the positions of the deleted rows by file.
    """
    unchanged: dict[str, list[str]] = {}
    apart = []
    for spec, file in files:
        if rows := deleted.get(file.file_path):
            apart.append(SourcePart((file.file_path,), deleted=rows, partition=describe(spec)))
        else:
            unchanged.setdefault(describe(spec), []).append(file.file_path)
    if not apart and unchanged.keys() <= {""}:
        return ()
    return (*(SourcePart(tuple(paths), partition=text) for text, paths in sorted(unchanged.items())), *apart)


def state(table: Table, partitions: Mapping[str, str] | None = None) -> SourceState:
    """Return the state of a table.

    :param partitions: their fingerprints; without them, the snapshot represents all partitions.
    """
    snapshot = snapshot_id(table)
    same_rows, changed_at = _same_rows(table)
    return SourceState(
        version=snapshot,
        identity=str(table.metadata.table_uuid),
        location=table.location(),
        schema=schema_digest(str(table.schema())),  # includes the field ids of the columns
        partitions=partitions if partitions is not None else {"": snapshot},
        same_rows=tuple(same_rows),
        changed_at=changed_at,
    )


def still_in(table: Table, recorded: SourceState) -> SourceState | None:
    """Return the state of a table that is still in a recorded one, without reading its manifests; ``None`` if it has to be read.

    A snapshot of a table always has the same files. Whether these can be read by column name depends on the schemas, and they can
    be listed if every manifest has its length.
    """
    if recorded.partitions is None or (now := state(table, recorded.partitions)) != recorded:
        return None
    if unreadable_by_name(table) or not knows_all_schemas(table) or not _has_manifests(table):
        return None
    return now


def _has_manifests(table: Table) -> bool:
    """Return whether every manifest of the current snapshot exists and is complete."""
    snapshot = table.current_snapshot()
    try:
        with as_os_errors():
            manifests = snapshot.manifests(table.io) if snapshot is not None else []
            return all(len(table.io.new_input(each.manifest_path)) == each.manifest_length for each in manifests)
    except (OSError, ValueError):
        return False


def _same_rows(table: Table) -> tuple[list[str], datetime | None]:
    """Return the snapshots before the current one whose files were only rewritten since, and the time of the last change of rows.

    The time is ``None`` if there is no change, or its snapshot has expired.
    """
    earlier: list[str] = []
    snapshot = table.current_snapshot()
    while snapshot is not None and keeps_rows(snapshot):
        before = snapshot.parent_snapshot_id
        earlier += [str(before)] if before is not None else []
        snapshot = table.snapshot_by_id(before) if before is not None else None
    return earlier, _time(snapshot.timestamp_ms) if snapshot is not None else None


def _partition(table: Table, file: DataFile) -> dict[str, str | None]:
    return partition(file, table.specs()[file.spec_id], table.schema())


def find_columns_by_name(transaction: Transaction) -> None:
    """Set a name mapping, because files of the job contain no field ids and are unreadable without one."""
    metadata = transaction.table_metadata
    if TableProperties.DEFAULT_NAME_MAPPING not in metadata.properties:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _needs_runtime(path: ObjectPath, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"Iceberg table {path} {why}; to read it, add the Iceberg Spark runtime jar (spark.jars.packages) and "
        "spark.sql.catalog.<catalog> to the 'spark.conf' of the definition."
    )
