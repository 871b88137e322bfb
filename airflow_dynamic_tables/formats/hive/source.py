"""Hive tables as sources: a table of a metastore is bound to its exact files, in any folders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import fingerprint, is_settled
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
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column, partition_name, spark_ddl
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.folders import Files, Folder, by_partition, list_folders, notes, state
from airflow_dynamic_tables.formats.incremental_scan import Increment, why_another

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
        partitions = {**PartitionCommits(store.metastore, path).partitions(table)}
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
    """Return the options for Hive's OpenCSVSerde."""
    parameters = table.sd.serdeInfo.parameters or {}
    header = (table.parameters or {}).get("skip.header.line.count", "0") == "1"
    return {
        "sep": parameters.get("separatorChar", ","),
        "quote": parameters.get("quoteChar", '"'),
        "escape": parameters.get("escapeChar", "\\"),
        "header": "true" if header else "false",
        "enforceSchema": "true",
    }
