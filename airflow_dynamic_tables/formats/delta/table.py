"""Delta tables as tables and as sources: content for Spark without the Delta library, row counts, and changes for streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from airflow_dynamic_tables.clients.delta.log import Action, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import DeltaFile, DeltaSnapshot, file_uri, open_snapshot
from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.clients.stores import EntryStore, Store
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet, describe
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column, TableLayout, spark_ddl
from airflow_dynamic_tables.core.versions import Retention, StreamPosition, Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from airflow_dynamic_tables.formats.base import (
    ChangedFiles,
    Increment,
    LakeTable,
    ListedFile,
    LoadedTable,
    RowCounts,
    TableContent,
    kept_version,
    why_another,
)
from airflow_dynamic_tables.formats.data_files import first_rows
from airflow_dynamic_tables.formats.delta.history import DeltaHistory, delete_orphans, expire
from airflow_dynamic_tables.formats.delta.stage import DeltaStagedTable
from airflow_dynamic_tables.formats.fingerprints import lasting_fingerprints, partition_sizes, schema_digest
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles

FORMAT = "delta"

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
"""Class name of the Delta library in ``spark.sql.extensions``."""

_MAPPING = "delta.columnMapping.mode"

_HARMLESS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features that do not change how files and columns are read; the first two only while unused."""


def content(snapshot: DeltaSnapshot, name: object, *, has_library: bool = False) -> TableContent:
    """Return a version of a table as read by Spark.

    :param has_library: whether Spark has the Delta library, used only if the files are not sufficient.
    :raises UnsupportedError: if reading its files alone would return wrong rows, and there is no library.
    """
    version = str(snapshot.version)
    if snapshot.properties.get(_MAPPING) == "id":  # Delta's library then asks for spark.sql.parquet.fieldId.write.enabled
        raise UnsupportedError(
            f"Delta table {name} maps its columns by id, and no refresh has the settings that Delta's library needs for that; "
            "read a copy of it whose columns are mapped by name, or not at all."
        )
    if why := unreadable_by_name(snapshot):
        if not has_library:
            raise UnsupportedError(
                f"Delta table {name} {why}; to read it, add Delta's library for Spark (spark.jars.packages), "
                f"spark.sql.extensions: {EXTENSION} and spark.sql.catalog.spark_catalog: "
                "org.apache.spark.sql.delta.catalog.DeltaCatalog to the 'spark.conf' of the definition."
            )
        return TableContent(version, format=FORMAT, table=snapshot.location, state=state(snapshot, by_files=False))
    return TableContent(
        snapshot=version,
        files=tuple(file.uri for file in snapshot.files),
        schema=spark_ddl(snapshot.columns),
        partition_keys=snapshot.partition_keys,
        parts=parts(snapshot.files, snapshot),
        state=state(snapshot),
    )


def restricted(whole: TableContent, snapshot: DeltaSnapshot, files: Sequence[DeltaFile]) -> TableContent:
    """Return the content with only these files."""
    return replace(whole, files=tuple(file.uri for file in files), parts=parts(files, snapshot))


def unreadable_by_name(snapshot: DeltaSnapshot) -> str | None:
    """Return why the rows of a version cannot be read from its data files by column name; ``None`` if they can."""
    if snapshot.properties.get(_MAPPING, "none") != "none":
        return "has columns that are called otherwise in its files (column mapping)"
    if unknown := sorted(snapshot.protocol.reader_features - _HARMLESS):
        return f"needs a reader that knows {', '.join(unknown)}"
    if snapshot.hides_rows:
        return "holds deletion vectors, or may do so"
    if keys := [column.name for column in _keys(snapshot) if column.type == "binary"]:
        return f"has a partition key that is binary, {keys[0]}"
    return None


_MOST_REWRITES = 10
"""Most entries of the log that are looked at for compactions."""


def state(snapshot: DeltaSnapshot, *, by_files: bool = True) -> SourceState:
    """Return the state of a version.

    :param by_files: whether to compute the partitions from its files; otherwise the version is indivisible.
    """
    version = str(snapshot.version)
    same_rows, changed_at = _same_rows(snapshot, by_files=by_files)
    # Data files are immutable, so name and size identify their content.
    listed = ((file.partition, (file.uri, {"size": file.bytes})) for file in (snapshot.files if by_files else ()))
    return SourceState(
        version=version,
        identity=snapshot.id,
        location=snapshot.location,
        schema=schema_digest(f"{snapshot.schema} {','.join(snapshot.partition_keys)}"),
        partitions=lasting_fingerprints(listed) if by_files else {"": version},
        same_rows=tuple(map(str, same_rows)),
        sizes=partition_sizes((file.partition, file.bytes) for file in snapshot.files) if by_files else None,
        changed_at=changed_at,
    )


def _same_rows(snapshot: DeltaSnapshot, *, by_files: bool) -> tuple[list[int], datetime | None]:
    """Return earlier versions with the same rows in other files, newest first, and the time of the last change of the rows.

    These are the versions before others' compactions. A log may declare any change to be none. So the partitions, and the number
    of rows of each, must be the same, too. Without ``by_files``, every version counts as a change.
    """
    log = DeltaLog(snapshot.location)
    earlier: list[int] = []
    try:
        latest = entry = log.entry(snapshot.version) or []
        while by_files and _only_rewrites(entry) and snapshot.version - len(earlier) > 0 and len(earlier) < _MOST_REWRITES:
            earlier.append(snapshot.version - len(earlier) - 1)
            entry = log.entry(earlier[-1]) or []
        before = open_snapshot(snapshot.location, earlier[-1]) if earlier else None
    except (CatalogUnavailableError, VersionNotFoundError):
        return [], None  # the log does not reach back so far any more
    if before is not None and _rows(before) == _rows(snapshot) is not None:
        return earlier, None if _only_rewrites(entry) else _committed_at(entry)
    return [], _committed_at(latest)


def _committed_at(entry: Sequence[Action]) -> datetime | None:
    """Return the time of an entry according to its writer; ``None`` if it does not tell a time."""
    info = next((action["commitInfo"] for action in entry if "commitInfo" in action), {})
    milliseconds: Any = info.get("inCommitTimestamp") or info.get("timestamp")
    with suppress(TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    return None


def _only_rewrites(entry: Sequence[Action]) -> bool:
    """Return whether an entry leaves rows, columns and properties as they are, according to itself."""
    changes = [said for action in entry for kind, said in action.items() if kind in ("add", "remove")]
    is_other = any(kind in ("metaData", "protocol") for action in entry for kind in action)
    return bool(entry) and not is_other and not any(map(_changes_rows, changes))


def _rows(snapshot: DeltaSnapshot) -> Counter[tuple[tuple[str, str | None], ...]] | None:
    """Return the number of rows of each partition; ``None`` if the log does not say it."""
    rows: Counter[tuple[tuple[str, str | None], ...]] = Counter()
    for file in snapshot.files:
        if file.rows is None:
            return None
        rows[tuple(sorted(file.partition.items()))] += file.rows
    return rows


def parts(files: Sequence[DeltaFile], snapshot: DeltaSnapshot) -> tuple[SourcePart, ...]:
    """Group the files of a partitioned table into parts that Spark reads together; empty without partition keys.

    Only the log determines the partition of a file. Where the folder names agree, Spark reads the values from them, many
    partitions at once; otherwise the values are passed with the files.
    """
    keys = snapshot.partition_keys
    if not keys:
        return ()
    times = {column.name for column in _keys(snapshot) if column.type == "timestamp"}
    below: dict[str, list[str]] = {}
    beside: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        # Timestamps in folder names are in the session time zone, those in the log in UTC.
        root = _root(file, keys) if not times else None
        if root is not None:
            below.setdefault(root, []).append(file.uri)
        else:
            values = tuple(_spelled(file.partition.get(key), in_utc=key in times) for key in keys)
            beside.setdefault(values, []).append(file.uri)
    return (
        *(SourcePart(tuple(uris), root) for root, uris in below.items()),
        *(SourcePart(tuple(uris), values=dict(zip(keys, values, strict=True))) for values, uris in beside.items()),
    )


def _keys(snapshot: DeltaSnapshot) -> list[Column]:
    return [column for column in snapshot.columns if column.name in snapshot.partition_keys]


def _spelled(value: str | None, *, in_utc: bool = False) -> str:
    """Return a partition value as used in source parts; an empty text is null in Delta's protocol."""
    if not value:
        return NULL_PARTITION
    return f"{value}+00:00" if in_utc and not value.endswith(("Z", "+00:00")) else value


def _root(file: DeltaFile, keys: Sequence[str]) -> str | None:
    """Return the base folder whose Hive-style subfolders agree with the log for a file; ``None`` if they do not."""
    *above, _ = file.uri.split("/")
    told = [_read_by_spark(folder) for folder in above[-len(keys) :]]
    if told != [(key, _spelled(file.partition.get(key))) for key in keys]:
        return None
    return "/".join(above[: -len(keys)])


def _read_by_spark(folder: str) -> tuple[str, str]:
    """Return the key and value that Spark parses from a folder name: escapes are decoded to one character per byte."""
    key, _, value = folder.partition("=")
    return unquote(key, encoding="latin-1"), unquote(value, encoding="latin-1")


class DeltaLakeTable(LakeTable):
    """A Delta table whose location is in its catalog entry."""

    can_add = True
    library = EXTENSION

    def __init__(self, store: EntryStore, path: ObjectPath, file_format: str = "parquet") -> None:  # noqa: ARG002 - only one format
        self._store = store
        self._path = path

    def stage(self, token: str) -> DeltaStagedTable:
        return DeltaStagedTable(self.folder, self._path, token)

    def load(self) -> _LoadedDeltaTable:
        return _LoadedDeltaTable(self._store, self._path)

    def expire(self, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int = 1) -> int:
        location = self.folder()
        return expire(location, retention, now, pinned, least) if location is not None else 0

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        location = self.folder()
        return delete_orphans(location, before, held) if location is not None else Deleted()

    def count_files(self, limits: Limits) -> list[PartitionFiles]:  # noqa: ARG002
        raise UnsupportedError(
            f"{self._path} is a Delta table, so it is not compacted here; OPTIMIZE of another engine may do it."
        )


class _LoadedDeltaTable(LoadedTable):
    """The location of a table in the catalog, and its log, read on first use."""

    def __init__(self, store: EntryStore, path: ObjectPath) -> None:
        self._catalog = store.catalog
        self._path = path
        self._location = store.location(path, FORMAT)

    def folder(self) -> str | None:
        return self._location

    def current(self) -> Version | None:
        return self._history and self._history.current()

    def layout(self) -> TableLayout | None:
        return self._history and self._history.layout()

    def position(self) -> StreamPosition | None:
        return self._history and self._history.position()

    def versions(self) -> list[Version]:
        return list(self._history.versions())[::-1] if self._history is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:
        return content(self._filled, self._path, has_library=spark_name is not None)

    def read_at(self, snapshot: str, spark_name: str | None = None) -> TableContent:
        then = open_snapshot(self._filled.location, int(snapshot))
        if then is None:
            raise VersionNotFoundError(f"version {snapshot} of {self._path} is not in its log any more")
        return content(then, self._path, has_library=spark_name is not None)

    def changed_files(self, columns: Collection[str], since: SourceState, now: SourceState) -> ChangedFiles:
        return changes_of(self._filled, columns, since, now)

    def list_files(self, columns: Collection[str], state: SourceState) -> list[ListedFile]:
        return files_of(self._filled, columns, state)

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        try:
            files = self._filled.files
        except TableNotFoundError:
            return None
        if any(file.rows is None for file in files) or unreadable_by_name(self._filled):
            return None
        return RowCounts.of(((file.partition, file.rows or 0) for file in files), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        snapshot = self._filled
        if version is not None:
            kept = kept_version(self.versions(), version, self._path)
            snapshot = open_snapshot(snapshot.location, int(kept.snapshot)) or snapshot
        if why := unreadable_by_name(snapshot):
            raise UnsupportedError(f"Delta table {self._path} {why}; read it with a Delta reader that knows this.")
        return first_rows(((file.uri, file.partition) for file in snapshot.files), snapshot.columns, "parquet", rows)

    @cached_property
    def _history(self) -> DeltaHistory | None:
        return DeltaHistory.at(self._location) if self._location is not None else None

    @property
    def _filled(self) -> DeltaSnapshot:
        if self._history is None or self._history.snapshot is None or self._history.is_new:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._catalog} does not exist or has no version yet.")
        return self._history.snapshot


def bind(source: Source, store: Store | None, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a Delta table to its current version.

    :raises TableNotFoundError: if it does not exist.
    :raises CatalogUnavailableError: if its log cannot be read.
    :raises UnsupportedError: if its rows cannot be read from its files alone, and Spark lacks the Delta library.
    """
    has_library = EXTENSION in conf.get("spark.sql.extensions", "")
    return content(_opened(source), source.identifier, has_library=has_library).bound(source.identifier, view)


def bind_at(source: Source, store: Store | None, view: str, conf: Mapping[str, str], version: str) -> SourceBinding:  # noqa: ARG001 - see bind
    """Bind a Delta table to an earlier version, see :func:`~airflow_dynamic_tables.formats.registry.bind_at`."""
    then = open_snapshot(_opened(source).location, int(version))
    if then is None:
        raise VersionNotFoundError(f"version {version} of {source.identifier} is not in its log any more")
    has_library = EXTENSION in conf.get("spark.sql.extensions", "")
    return content(then, source.identifier, has_library=has_library).bound(source.identifier, view)


def changed_files(
    source: Source,
    store: Store | None,  # noqa: ARG001 - see bind
    columns: Collection[str],
    since: SourceState,
    now: SourceState,
) -> ChangedFiles:
    """Return the files that differ between two states, see :func:`~airflow_dynamic_tables.formats.registry.changed_files`."""
    return changes_of(_opened(source), columns, since, now)


def changes_of(latest: DeltaSnapshot, columns: Collection[str], since: SourceState, now: SourceState) -> ChangedFiles:
    """Return the ranges of columns in each file that was added or removed between two states, by partition.

    :raises VersionNotFoundError: if an earlier version is not in the log, or another one has its number.
    :raises UnsupportedError: if its files alone do not tell its rows.
    """
    found: list[dict[str, DeltaFile]] = []
    ranges: dict[str, dict[str, ColumnRange]] = {}
    for known in (since, now):
        snapshot = _snapshot_at(latest, known)
        found.append({file.uri: file for file in snapshot.files})
        ranges |= snapshot.ranges(columns)
    changed: dict[str, list[dict[str, ColumnRange]]] = {}
    for own, other in (found, found[::-1]):
        for uri in own.keys() - other.keys():
            changed.setdefault(describe(own[uri].partition), []).append(ranges.get(own[uri].path, {}))
    return changed


def list_files(source: Source, store: Store | None, columns: Collection[str], state: SourceState) -> list[ListedFile]:  # noqa: ARG001 - see bind
    """Return the files of a version, see :func:`~airflow_dynamic_tables.formats.registry.list_files`."""
    return files_of(_opened(source), columns, state)


def files_of(latest: DeltaSnapshot, columns: Collection[str], known: SourceState) -> list[ListedFile]:
    """Return the files of a version with the ranges of some columns.

    :raises VersionNotFoundError: if it is not in the log, or another one has its number.
    :raises UnsupportedError: if its files alone do not tell its rows.
    """
    snapshot = _snapshot_at(latest, known)
    ranges = snapshot.ranges(columns)
    return [
        ListedFile(
            file.uri,
            describe(file.partition),
            {key.lower(): value for key, value in file.partition.items()},
            ranges.get(file.path, {}),
        )
        for file in snapshot.files
    ]


def _snapshot_at(latest: DeltaSnapshot, known: SourceState) -> DeltaSnapshot:
    """Return a version that was read before.

    :raises VersionNotFoundError: if it is not in the log, or another one has its number.
    :raises UnsupportedError: if its files alone do not tell its rows.
    """
    is_latest = known.version == str(latest.version)
    snapshot = open_snapshot(latest.location, int(known.version)) if known.version.isdecimal() and not is_latest else latest
    # A log that was written again has other versions of the same numbers.
    if snapshot is None or state(snapshot).partitions != known.partitions:
        raise VersionNotFoundError(f"version {known.version} is not in the log")
    if why := unreadable_by_name(snapshot):
        raise UnsupportedError(f"it {why}")
    return snapshot


def count(source: Source, store: Store | None, partition: Mapping[str, str], least: int) -> int:  # noqa: ARG001 - see bind
    """Count the rows of the current version, or of some partitions, from the log.

    :raises TableNotFoundError: if the table does not exist.
    :raises ConfigurationError: if it has no such partition key.
    :raises CatalogUnavailableError: if the log contains no row counts.
    """
    snapshot = _opened(source)
    if unknown := sorted(partition.keys() - {*snapshot.partition_keys}):
        keys = ", ".join(snapshot.partition_keys) or "none"
        raise ConfigurationError(f"Source {source.identifier} has no partition key {unknown[0]}; it has: {keys}.")
    if why := unreadable_by_name(snapshot):
        raise CatalogUnavailableError(f"The rows of source {source.identifier} cannot be counted: it {why}.")
    rows = 0
    for file in snapshot.files:
        if all(file.partition[key] == value for key, value in partition.items()):
            if file.rows is None:
                raise CatalogUnavailableError(f"The log of source {source.identifier} does not say how many rows {file.uri} has.")
            rows += file.rows
    return rows


def added_since(source: Source, store: Store | None, view: str, since: SourceState | None) -> Increment:  # noqa: ARG001 - see bind
    """Return the rows added to a table, see :func:`~airflow_dynamic_tables.formats.registry.added_since`.

    Rewritten files with the same rows are ignored; the rows are read from the files that added them.

    :raises TableNotFoundError: see :func:`bind`, also for CatalogUnavailableError and UnsupportedError.
    """
    snapshot = _opened(source)
    now = content(snapshot, source.identifier)
    if since is None:
        return Increment(now.bound(source.identifier, view))
    if now.state is not None and (why := why_another(since, now.state)):
        return Increment(ended=why)
    if since.version == now.snapshot:
        return Increment()
    added = _added(snapshot, int(since.version))
    if isinstance(added, str):
        return Increment(ended=added)
    if not added:
        return Increment()
    size = sum(file.bytes for file in added)
    return Increment(restricted(now, snapshot, added).bound(source.identifier, view), bytes=size)


def _added(snapshot: DeltaSnapshot, since: int) -> list[DeltaFile] | str:
    """Return the files added after a version, or why there were other changes as well."""
    if snapshot.version < since:
        return f"it has version {snapshot.version}, and {since} was read"
    files: list[DeltaFile] = []
    log = DeltaLog(snapshot.location)
    for version in range(since + 1, snapshot.version + 1):
        entry = log.entry(version)
        if entry is None:
            return f"its changes since version {since} are unknown: its log does not reach back so far any more"
        if any("remove" in action and _changes_rows(action["remove"]) for action in entry):
            return f"version {version} replaced or removed rows of it"
        added = (action["add"] for action in entry if "add" in action and _changes_rows(action["add"]))
        files += (_added_file(snapshot.location, told) for told in added)
    return files


def _changes_rows(told: Mapping[str, Any]) -> bool:
    """Return whether adding or removing the file changed rows; otherwise it was a rewrite."""
    return bool(told.get("dataChange", True))


def _added_file(location: str, told: Mapping[str, Any]) -> DeltaFile:
    path = told["path"]
    return DeltaFile(path, file_uri(location, path), told["partitionValues"], None, told["size"], told["modificationTime"])


def _opened(source: Source) -> DeltaSnapshot:
    if source.path is None:
        raise ConfigurationError(f"Source {source.identifier}: its location is unknown; its catalog entry has none.")
    snapshot = open_snapshot(source.path.rstrip("/"))
    if snapshot is None:
        raise TableNotFoundError(f"Source {source.identifier}: there is no Delta table in {source.path}.")
    return snapshot
