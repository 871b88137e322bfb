"""Delta tables as sources: binding to a version, row counts, and changes for streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import DeltaFile, DeltaSnapshot, file_uri, open_snapshot
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.formats.delta.table import EXTENSION, content, restricted, unreadable_by_name
from airflow_dynamic_tables.formats.incremental_scan import Increment, why_another


def bind(source: Source, store: Store | None, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a Delta table to its current version.

    :raises TableNotFoundError: if it does not exist.
    :raises CatalogUnavailableError: if its log cannot be read.
    :raises UnsupportedError: if its rows cannot be read from its files alone, and Spark lacks the Delta library.
    """
    has_library = EXTENSION in conf.get("spark.sql.extensions", "")
    return content(_opened(source), source.identifier, has_library=has_library).bound(source.identifier, view)


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
    return Increment(restricted(now, snapshot, added).bound(source.identifier, view)) if added else Increment()


def _added(snapshot: DeltaSnapshot, since: int) -> list[DeltaFile] | str:
    """Return the files added after a version, or why there were other changes as well."""
    if snapshot.version < since:
        return f"it has version {snapshot.version}, and {since} was read"
    files: list[DeltaFile] = []
    log = DeltaLog(snapshot.location)
    for version in range(since + 1, snapshot.version + 1):
        entry = log.entry(version)
        if entry is None:
            return f"nobody knows what was done to it since version {since}: its log does not reach back so far any more"
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
        raise ConfigurationError(f"Source {source.identifier}: nobody says where it lies; its catalog entry has no location.")
    snapshot = open_snapshot(source.path.rstrip("/"))
    if snapshot is None:
        raise TableNotFoundError(f"Source {source.identifier}: there is no Delta table in {source.path}.")
    return snapshot
