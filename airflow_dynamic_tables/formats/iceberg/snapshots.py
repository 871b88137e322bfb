"""Looking at Iceberg tables: their versions, their files, their partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import partial
from itertools import dropwhile
from urllib.parse import quote

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot

from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog
from airflow_dynamic_tables.clients.iceberg.content import data_files, has_delete_files, is_split, partition
from airflow_dynamic_tables.clients.iceberg.damage import damage_named
from airflow_dynamic_tables.clients.iceberg.keys import keys_of
from airflow_dynamic_tables.clients.iceberg.types import columns_of
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import TableLayout, spark_ddl
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.commits import COMPACTION, NUMBER, TOKEN, version_of
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.fingerprints import lasting_fingerprints, schema_digest
from airflow_dynamic_tables.formats.iceberg.columns.names import unreadable_by_name, unreadable_in_files
from airflow_dynamic_tables.formats.iceberg.deletions.positions import LiveRows, live_rows

LATEST = "dynamic-tables.latest"
"""Property of a table with what the summary of its latest version says."""

_PLAIN_TYPE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary|decimal\(\d+, ?\d+\)|fixed\[\d+\]"
)
"""Types of columns that are no struct, list or map, as metadata spell them."""

LINE = "dynamic-tables.line"
"""Property of a snapshot of ours with the numbers of the versions that it continues, and its own: ``1-7,12-13``. Others may make
the table go back, and the snapshots expire that were parents of those that stay."""

_DROPPED = "dynamic-tables.dropped-columns"
"""Property of a table with the columns that went when it was made anew, so that no file of it that is read has them."""


def load(store: IcebergStore, path: ObjectPath) -> Table | None:
    """A table of the catalog as it is now; ``None`` when there is none.

    :raises CatalogUnavailableError: when the catalog's database or the table's metadata cannot be reached, or are damaged.
    """
    try:
        with store.errors(), as_os_errors(), damage_named(path, store.catalog):
            return store.tables.load_table((path.database, path.name))
    except NoSuchTableError:
        return None
    except OSError as error:
        raise CatalogUnavailableError(f"Cannot read the metadata of table {path} in catalog {store.catalog}: {error}") from error


def glance(store: IcebergStore, path: ObjectPath) -> Version | None:
    """The current version of one of many tables that are looked at, where its metadata file alone tells: one of our commits made
    the current snapshot.

    PyIceberg takes ten times as long for the file, and the time of its import.

    :return: ``None`` where :func:`current` has to tell.
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
    """The current snapshot, its parent, and so on; where one was forgotten, the newest that is surely continued comes next."""
    older = iter(sorted(table.snapshots(), key=_order, reverse=True))
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = _parent(table, snapshot) or _continued(table, snapshot, dropwhile(partial(_is_not_before, snapshot), older))


def _parent(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """The parent of a snapshot; ``None`` when it was forgotten, or there is none."""
    parent = snapshot.parent_snapshot_id
    return table.snapshot_by_id(parent) if parent is not None else None


def _continued(table: Table, snapshot: Snapshot, older: Iterator[Snapshot]) -> Snapshot | None:
    """The newest snapshot that one whose parent was forgotten surely continues; ``None`` when nothing proves it of any.

    Others may have gone back to the parent: then those in between are older, and not continued all the same.

    :param older: those before it, the newest first.
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
    """The first of the ancestors of a snapshot that are known."""
    while (parent := _parent(table, snapshot)) is not None:
        snapshot = parent
    return snapshot


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _is_not_before(newer: Snapshot, snapshot: Snapshot) -> bool:
    return _order(snapshot) >= _order(newer)


def _spans(line: str) -> list[tuple[int, int]]:
    """The numbers of a :data:`LINE`, as the first and the last of each run."""
    spans = (span.partition("-") for span in line.split(",") if span)
    return [(int(first), int(last or first)) for first, _, last in spans]


def _is_in(line: str, number: int) -> bool:
    return any(first <= number <= last for first, last in _spans(line))


def line(table: Table, number: int | None = None) -> dict[str, str]:
    """What a snapshot is to say of the versions that it continues: :data:`LINE`.

    :param number: of the version that it makes; ``None`` when it makes none.
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
    """What the snapshot of the current version says, also when it was forgotten since; an empty line of an unknown version."""
    if version.number == 0:
        return {LINE: ""}
    snapshot = table.snapshot_by_id(int(version.snapshot))
    summary: Mapping[str, str] = told(snapshot) if snapshot is not None else json.loads(table.properties[LATEST])["summary"]
    return summary


def versions(table: Table) -> Iterator[Version]:
    """The table's versions that are kept, newest first, along the lineage of its current snapshot."""
    return filter(None, map(_version, lineage(table)))


def current(table: Table | None) -> Version | None:
    """The current version, also when another engine made its snapshot forgotten; ``None`` before the first commit.

    A version that was forgotten is the current one only if the current snapshot descends from it. When that is not known, its
    number is 0, and it is fresh up to no time.
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
    """The current version when the snapshot of the latest one is forgotten.

    :param kept: the newest version that is kept.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if kept is not None and str(snapshot.snapshot_id) == kept.snapshot:
            return kept  # another engine went back to it, and let the later ones expire
        if str(snapshot.parent_snapshot_id) == latest.snapshot or _is_in(told(snapshot).get(LINE, ""), latest.number):
            return latest
        snapshot = _parent(table, snapshot)
    # A snapshot in between was forgotten, too: only the files tell which version it continued.
    if find_files(table, latest.token, current_only=True) is not None:
        return latest
    return Version(0, "", snapshot_id(table), None, latest.committed_at)


def is_new(table: Table) -> bool:
    """Whether nothing was ever committed: a table is made without columns."""
    return not table.schema().fields


def filled(table: Table | None, path: ObjectPath, catalog: str) -> Table:
    """The table, which has a snapshot.

    :raises TableNotFoundError: when there is no such table, or nothing in it yet.
    """
    if table is None or is_new(table) or table.current_snapshot() is None:
        raise TableNotFoundError(f"Table {path} in catalog {catalog} does not exist or has no version yet.")
    return table


def layout(table: Table) -> TableLayout:
    """What a refresh has to fit."""
    return TableLayout(columns_of(table.schema()), keys_of(table.spec(), table.schema()))


def dropped(table: Table) -> set[str]:
    """Columns that went when the table was made anew; those that another engine dropped may still be in files."""
    return set(json.loads(table.properties.get(_DROPPED) or "[]"))


def remember_dropped(transaction: Transaction, table: Table, columns: Iterable[str]) -> None:
    """Write down which columns are dropped, when a transaction leaves these and replaces all rows."""
    names = {*dropped(table), *(field.name for field in table.schema().fields)} - {*columns}
    transaction.set_properties({_DROPPED: json.dumps(sorted(names))})


def next_number(table: Table) -> int:
    """The number of the next version: above any that is still known, even when somebody went back with another tool."""
    latest = _remembered(table)
    numbers = [int(told(snapshot).get(NUMBER) or 0) for snapshot in table.snapshots()]
    return 1 + max([*numbers, latest.number if latest is not None else 0])


def find(table: Table | None, token: str) -> Version | None:
    """The version that a token's commit made, if the table still knows the token; that of a compaction has the number 0."""
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
    """The version that a token's commit made, when only files of its stage tell of it: its number is unknown, 0.

    Another engine may make the table forget a snapshot, and with it the token, while newer ones still refer to the files.

    :param current_only: whether only the files count that the table has now.
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
    """What the summary of a snapshot says, beside its operation."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _version(snapshot: Snapshot) -> Version | None:
    properties = told(snapshot)
    return version_of(properties, str(snapshot.snapshot_id), snapshot.timestamp_ms) if TOKEN in properties else None


def _remembered(table: Table) -> Version | None:
    """The latest version as the properties of the table tell of it: expiry and ``CREATE OR REPLACE`` leave them be."""
    if (text := table.properties.get(LATEST)) is None:
        return None
    latest = json.loads(text)
    return version_of(latest["summary"], latest["snapshot"], latest["timestamp-ms"])


def remember(transaction: Transaction, summary: Mapping[str, str], snapshot_id: int, timestamp_ms: int) -> None:
    """Write the version that a transaction makes into the properties of the table, too."""
    latest = {"snapshot": str(snapshot_id), "timestamp-ms": timestamp_ms, "summary": dict(summary)}
    transaction.set_properties({LATEST: json.dumps(latest, sort_keys=True)})


def as_of(table: Table, snapshot_id: int) -> Table:
    """A table with the columns that it had at a snapshot, however they changed since then."""
    schema_id = next(snapshot.schema_id for snapshot in table.snapshots() if snapshot.snapshot_id == snapshot_id)
    then = copy(table)
    if schema_id is not None:
        then.metadata = table.metadata.model_copy(update={"current_schema_id": schema_id})
    return then


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def count(table: Table | None, asked: PartitionSet) -> RowCounts | None:
    """Rows by partition, as the manifests of the current snapshot say; ``None`` when there is none, or nobody knows."""
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
    """The id of the current snapshot, empty when there is none."""
    snapshot = table.current_snapshot()
    return str(snapshot.snapshot_id) if snapshot else ""


def content(table: Table, path: ObjectPath) -> TableContent:
    """The table as it is now, as files that Spark reads by the names of their columns.

    :raises UnsupportedError: when that would give wrong rows.
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
    files = tuple(sorted(file.file_path for file in live.files))
    schema = spark_ddl(columns_of(table.schema()))
    there = state(table, lasting_fingerprints(_listed(table, live)))
    return TableContent(snapshot_id(table), files, schema, parts=_parts(files, live), state=there)


def _listed(table: Table, live: LiveRows) -> Iterator[tuple[dict[str, str | None], tuple[str, Mapping[str, object]]]]:
    """What fingerprints are made of: nobody rewrites a data file in place, so its name and size say what it holds."""
    for file in live.files:
        yield _partition(table, file), (file.file_path, {"size": file.file_size_in_bytes})
        if rows := live.deleted.get(file.file_path):
            yield _partition(table, file), (f"{file.file_path} without {rows}", {"size": len(rows)})


def _parts(files: Sequence[str], live: LiveRows) -> tuple[SourcePart, ...]:
    """The files that are read as they are, and each of the others by itself; none when all are as they are."""
    if not live.deleted:
        return ()
    whole = tuple(file for file in files if file not in live.deleted)
    others = (SourcePart((file,), deleted=live.deleted[file]) for file in files if file in live.deleted)
    return (*((SourcePart(whole),) if whole else ()), *others)


def state(table: Table, partitions: Mapping[str, str] | None = None) -> SourceState:
    """What a table is like.

    :param partitions: their fingerprints; without them the snapshot stands for all.
    """
    snapshot = snapshot_id(table)
    return SourceState(
        version=snapshot,
        identity=str(table.metadata.table_uuid),
        location=table.location(),
        schema=schema_digest(str(table.schema())),  # with the ids of the columns
        partitions=partitions if partitions is not None else {"": snapshot},
    )


def _partition(table: Table, file: DataFile) -> dict[str, str | None]:
    return partition(file, table.specs()[file.spec_id], table.schema())


def find_columns_by_name(transaction: Transaction) -> None:
    """Files of the job carry no field ids: without a name mapping nobody could read them."""
    metadata = transaction.table_metadata
    if TableProperties.DEFAULT_NAME_MAPPING not in metadata.properties:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _needs_runtime(path: ObjectPath, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"Iceberg table {path} {why}; to read it, add the Iceberg Spark runtime jar (spark.jars.packages) and "
        "spark.sql.catalog.<catalog> to the 'spark.conf' of the definition."
    )
