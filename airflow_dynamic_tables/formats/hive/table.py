"""Hive tables as refreshed tables, and as sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import Deleted, fingerprint, is_settled
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import (
    PROVIDER,
    columns_of,
    file_uri,
    format_of,
    is_transactional,
    location_of,
    partition_keys_of,
)
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column, TableLayout, partition_name, spark_ddl
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import ConflictError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import Increment, LakeTable, LoadedTable, RowCounts, TableContent, Undone, why_another
from airflow_dynamic_tables.formats.commits import ATTEMPTS
from airflow_dynamic_tables.formats.data_files import first_rows
from airflow_dynamic_tables.formats.fingerprints import SameRows, added_files
from airflow_dynamic_tables.formats.hive import compaction as looking
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import HiveCommits, Values
from airflow_dynamic_tables.formats.hive.compaction import CompactableStage
from airflow_dynamic_tables.formats.hive.folders import (
    Files,
    Folder,
    FolderListing,
    by_partition,
    delete_orphans,
    list_folders,
    notes,
    state,
)
from airflow_dynamic_tables.formats.hive.records import find_undone
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles


class HiveTable(LakeTable):
    """A table of a Hive metastore.

    :param file_format: ``parquet`` or ``orc``.
    """

    limits = tables.LIMITS
    remembers_undone = True

    def __init__(self, store: MetastoreStore, path: ObjectPath, file_format: str) -> None:
        self._metastore = store.metastore
        self._path = path
        self._format = file_format

    def stage(self, token: str) -> CompactableStage:
        return CompactableStage(self._metastore, self._path, self._format, token)

    def load(self) -> _LoadedHiveTable:
        return _LoadedHiveTable(self._metastore, self._path)

    def scattered(self, limits: Limits, *, is_cheap: bool = False) -> list[PartitionSet]:
        return looking.scattered(self._metastore, self._path, self._format, limits, is_cheap=is_cheap)

    def count_files(self, limits: Limits) -> list[PartitionFiles]:
        table = tables.load(self._metastore, self._path)
        if table is None:
            raise TableNotFoundError(f"Table {self._path} is not in the Hive metastore.")
        if why := looking.why_not(table, self._format):
            raise UnsupportedError(f"{self._path} {why}, so it is not compacted.")
        return looking.count_files(table, looking.partitions_of(self._metastore, self._path, table), limits)

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        return delete_orphans(self._metastore, self._path, before, held)


class _LoadedHiveTable(LoadedTable):
    """A table as loaded from the metastore. Its partitions are read on first use, and then kept."""

    def __init__(self, metastore: Metastore, path: ObjectPath) -> None:
        self._metastore = metastore
        self._path = path
        self._table = tables.load(metastore, path)

    def folder(self) -> str | None:
        return tables.root(self._table) if self._table is not None else None

    def current(self) -> Version | None:
        return next(reversed(self._versions), None)

    def layout(self) -> TableLayout | None:
        return tables.layout(self._metastore, self._table) if self._table is not None else None

    def versions(self) -> list[Version]:
        """See :meth:`LoadedTable.versions`; the newest twenty are kept."""
        return self._versions

    def undone(self) -> list[Undone]:
        """See :meth:`LoadedTable.undone`; for a partitioned table, the recorded versions are checked."""
        return self._undone

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - always read from files
        seen = self._seen
        keys = partition_keys_of(seen.table)
        listing = self._listing
        return TableContent(
            snapshot=seen.version.snapshot,
            files=tuple(sorted(listing.files)),
            schema=spark_ddl(seen.columns),
            format=format_of(seen.table),
            base_path=listing.only.base_path if listing.only is not None and keys else None,
            partition_keys=keys,
            parts=listing.parts if listing.only is None else (),
            state=state(seen.table, seen.version.snapshot, list(seen.folders.items()), listing.files, seen.compacted),
        )

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        try:
            seen = self._seen
        except TableNotFoundError:
            return None
        if any(rows is None for rows in seen.rows):
            return None
        return RowCounts.of(zip(seen.folders.values(), map(int, filter(None, seen.rows)), strict=True), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LoadedTable.sample`; only the current version can be read.

        :raises UnsupportedError: for any other version.
        """
        seen = self._seen
        if version is not None and version != seen.version.number:
            raise UnsupportedError(f"Version {version} of {self._path} cannot be read: a Hive table shows only its current one.")
        files = ((file, seen.folders[file.rpartition("/")[0]]) for file in self._listing.files)
        return first_rows(files, seen.columns, format_of(seen.table), rows)

    @cached_property
    def _versions(self) -> list[Version]:
        versions = tables.versions(self._table)
        pending = tables.pending(self._table)
        if pending is not None and pending.version.number and HiveCommits(self._metastore, self._path).landed(pending):
            versions.append(pending.version)
        return versions

    @cached_property
    def _undone(self) -> list[Undone]:
        return find_undone(self._metastore, self._path, self._table) or []

    @cached_property
    def _listing(self) -> FolderListing:
        return list_folders(self._seen.folders.items())

    @cached_property
    def _seen(self) -> _Seen:
        """The table, its version and its folders, read consistently."""
        torn: list[str] = []
        again = self._table
        for _ in range(ATTEMPTS):
            if (table := again) is None:
                break
            keys = partition_keys_of(table)
            partitions: Mapping[Values, Table | Partition] = {(): table}
            if keys:
                partitions = HiveCommits(self._metastore, self._path).partitions(table)
            again = tables.load(self._metastore, self._path)
            if again is None or (tables.revision(again), again.sd.location) != (tables.revision(table), table.sd.location):
                continue
            before, torn = torn, tables.torn(table, partitions.values())
            if torn and torn != before:
                continue  # the metastore read locations before a commit, and parameters after it
            if (version := _version(table, partitions.values())) is None:
                break
            held = {values: one for values, one in partitions.items() if not tables.left_in(table, one.sd.location)}
            folders = {file_uri(one.sd.location).rstrip("/"): dict(zip(keys, spec, strict=True)) for spec, one in held.items()}
            # Others moved the partitions that still do not match, without counting rows.
            rows = tuple(None if one.sd.location in torn else one.parameters.get(tables.ROWS) for one in held.values())
            compacted = notes((dict(zip(keys, values, strict=True)), one) for values, one in held.items())
            return _Seen(table, version, _columns(table, version), folders, rows, compacted)
        else:
            raise ConflictError(f"{self._path} was changed {ATTEMPTS} times while it was looked at; try again.")
        raise TableNotFoundError(f"Table {self._path} in the Hive metastore does not exist or has no version yet.")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A version of a table: folders with their partitions, row counts if known, and records of compactions."""

    table: Table
    version: Version
    columns: tuple[Column, ...]
    folders: Mapping[str, Mapping[str, str]]
    rows: tuple[str | None, ...]
    compacted: Mapping[str, SameRows]


def _version(table: Table, parts: Collection[Table | Partition]) -> Version | None:
    """Return the version that a table and its partitions show: the pending commit may have succeeded already."""
    versions = tables.versions(table)
    pending = tables.pending(table)
    if pending is not None and pending.version.number and any(tables.is_of(table, one, pending.version.token) for one in parts):
        return pending.version
    if not table.partitionKeys:
        last = next(reversed(versions), None)
        return next((version for version in versions if tables.is_of(table, table, version.token)), last)
    return next(reversed(versions), None)


def _columns(table: Table, version: Version) -> tuple[Column, ...]:
    """Return the columns of a version: the table does not show those of a pending commit yet."""
    pending = tables.pending(table)
    return pending.columns if pending is not None and pending.version == version else columns_of(table)


_READABLE = ("parquet", "orc", "csv", "json")
_NESTED = ("array<", "map<", "struct<")


def bind(source: Source, store: MetastoreStore, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a Hive table to its current files; the version changes with its files and partitions.

    :raises TableNotFoundError: if it is not in the metastore.
    :raises UnsupportedError: if Spark cannot read it without Hive.
    """
    return _listed(source, store, view)[0]


def added_since(source: Source, store: MetastoreStore, view: str, since: SourceState | None) -> Increment:
    """Return the files added to a table, see :func:`~airflow_dynamic_tables.formats.registry.added_since`.

    A file that may change again without a visible difference is deferred.

    :raises TableNotFoundError: see :func:`bind`, also for UnsupportedError.
    """
    seen_at = datetime.now(UTC)
    binding, folders, files = _listed(source, store, view)
    then = dict(since.partitions or {}) if since is not None else {}
    now: dict[str, str] = {}
    new: dict[tuple[tuple[str, str], ...], list[str]] = {}
    waiting: list[str] = []
    for spec, (file, info) in by_partition(folders, files.items()):
        name = f"{describe(spec)} {file}"
        if name not in then and not is_settled(info, seen_at):
            waiting.append(file)
            continue
        now[name] = fingerprint({file: info})
        if name not in then:
            new.setdefault(tuple(spec.items()), []).append(file)

    known = binding.state or SourceState(binding.version)
    if since is not None and (why := why_another(since, known) or _why_changed(then, now)):
        return Increment(ended=why)
    why_waiting = f"{waiting[0]} changed just now, or is a link; so did {len(waiting) - 1} others" if waiting else ""
    if since is not None and not new:
        return Increment(waiting=why_waiting)
    parts = tuple(SourcePart(tuple(names), values=dict(spec)) for spec, names in new.items())
    read = replace(known, partitions=now, unsettled=())
    return Increment(replace(binding, files=(), base_path=None, parts=parts, state=read), waiting=why_waiting)


def files_since(source: Source, store: MetastoreStore, view: str, since: SourceState) -> Increment:
    """Return the files added to a table, see :func:`~airflow_dynamic_tables.formats.registry.files_since`.

    :raises TableNotFoundError: see :func:`bind`, also for UnsupportedError.
    """
    binding, folders, files = _listed(source, store, view)
    named = [*((folder, {}) for folder, _ in folders), *files.items()]
    added = why_another(since, binding.state or since) or added_files(by_partition(folders, named), since)
    if isinstance(added, str):
        return Increment(ended=added)
    if not added:
        return Increment()
    size = sum(int(files[name]["size"]) for _, group in added for name in group)
    if binding.files:
        names = {name for _, group in added for name in group}
        return Increment(replace(binding, files=tuple(name for name in binding.files if name in names)), bytes=size)
    parts = tuple(SourcePart(tuple(group), values=dict(spec)) for spec, group in added)  # partitions may share a folder
    return Increment(replace(binding, parts=parts), bytes=size)


def _why_changed(then: dict[str, str], now: dict[str, str]) -> str:
    """Return which file was changed or removed after it was read; empty if none."""
    for name, known in then.items():
        if name not in now:
            return f"file {name.strip()} was read, and is gone"
        if now[name] != known:
            return f"file {name.strip()} was read, and has changed since"
    return ""


def _listed(source: Source, store: MetastoreStore, view: str) -> tuple[SourceBinding, Collection[Folder], Files]:
    """Return the binding of the current table, its partition folders, and the attributes of their files."""
    path = source.identifier.path
    table = tables.load(store.metastore, path)
    if table is None or (table.dbName, table.tableName) != (path.database, path.name):  # the metastore ignores case
        raise TableNotFoundError(f"Table (or view) {path} does not exist in catalog {store.catalog}.")
    columns = columns_of(table)
    keys = partition_keys_of(table)
    file_format, options = _reading(path, table, columns)
    partitions: dict[Values, Table | Partition] = {(): table}
    if keys:
        partitions = {**HiveCommits(store.metastore, path).partitions(table)}
    specs = {values: dict(zip(keys, values, strict=True)) for values in partitions}
    locations = {values: one.sd.location if keys else location_of(table) for values, one in partitions.items()}
    folders = [(file_uri(location).rstrip("/"), specs[values]) for values, location in locations.items() if location]
    compacted = notes((specs[values], one) for values, one in partitions.items())
    seen_at = datetime.now(UTC)
    listing = list_folders(folders)
    names = (f"{partition_name(keys, tuple(spec.values()))}={folder}" for folder, spec in folders)
    version = fingerprint({**{name: {} for name in names}, **listing.files})
    binding = SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=file_format,
        version=version,
        files=listing.only.files if listing.only is not None else (),
        base_path=listing.only.base_path if listing.only is not None and keys else None,
        schema=spark_ddl(columns),
        partition_keys=keys,
        options={**options, **source.options},
        parts=listing.parts if listing.only is None else (),
        state=state(table, version, folders, listing.files, compacted, seen_at),
    )
    return binding, folders, listing.files


def _reading(path: ObjectPath, table: Table, columns: tuple[Column, ...]) -> tuple[str, dict[str, str]]:
    """Return Spark's name of a table's file format, and its reader options.

    :raises UnsupportedError: if the files alone do not determine the rows, or Spark cannot read them without Hive.
    """
    file_format = format_of(table)
    if table.tableType == "VIRTUAL_VIEW":
        raise UnsupportedError(f"{path} is a view; declare it as a source of format view.")
    if is_transactional(table):
        raise UnsupportedError(f"{path} is a transactional Hive table; only Hive can read its files.")
    if file_format == "text" or (file_format == "csv" and PROVIDER not in (table.parameters or {})):
        if nested := [column.name for column in columns if column.type.startswith(_NESTED)]:
            raise UnsupportedError(f"{path}: column {nested[0]!r} of a text table is nested, which takes Hive to read.")
        return "csv", _text_options(path, table) if file_format == "text" else _csv_options(table)
    if file_format not in _READABLE:
        raise UnsupportedError(f"{path} has the format {file_format}; a hive source has one of {', '.join(_READABLE)} or text.")
    options = table.sd.serdeInfo.parameters or {}
    return file_format, {key: value for key, value in options.items() if key not in ("path", "serialization.format")}


def _text_options(path: ObjectPath, table: Table) -> dict[str, str]:
    """Return the options for Hive's text format: a separator, an optional escape, no quotes."""
    parameters = table.sd.serdeInfo.parameters or {}
    options = {
        "sep": parameters.get("field.delim", "\x01"),
        "quote": "",
        "escape": parameters.get("escape.delim", ""),
        "nullValue": parameters.get("serialization.null.format", "\\N"),
        "emptyValue": "",
    }
    lines = (table.parameters or {}).get("skip.header.line.count", "0")
    if lines not in ("0", "1"):
        raise UnsupportedError(f"{path} skips {lines} lines of every file; a hive source can skip one.")
    return {**options, "header": "true" if lines == "1" else "false", "enforceSchema": "true"}


def _csv_options(table: Table) -> dict[str, str]:
    parameters = table.sd.serdeInfo.parameters or {}
    header = (table.parameters or {}).get("skip.header.line.count", "0") == "1"
    return {
        "sep": parameters.get("separatorChar", ","),
        "quote": parameters.get("quoteChar", '"'),
        "escape": parameters.get("escapeChar", "\\"),
        "header": "true" if header else "false",
        "enforceSchema": "true",
    }
