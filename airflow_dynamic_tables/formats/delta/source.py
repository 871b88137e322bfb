"""How a Delta table is read that nobody here refreshes: one version of it; its rows counted, and what came into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import DeltaFile, DeltaSnapshot, file_uri, open_snapshot
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.formats.delta.reading import EXTENSION, content, restricted, unreadable_by_name
from airflow_dynamic_tables.formats.news import News, why_another


def bind(source: Source, store: Store | None, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - all is in its path
    """Bind a Delta table to the version that it has now.

    :raises TableNotFoundError: when there is none.
    :raises CatalogUnavailableError: when its log cannot be read.
    :raises UnsupportedError: when its files alone do not say what its rows are, and Spark has no library that knows.
    """
    has_library = EXTENSION in conf.get("spark.sql.extensions", "")
    return content(_opened(source), source.identifier, has_library=has_library).bound(source.identifier, view)


def count(source: Source, store: Store | None, partition: Mapping[str, str], least: int) -> int:  # noqa: ARG001 - see bind
    """Rows of a version as its log tells them, or those of some partitions.

    :raises TableNotFoundError: when there is no such table.
    :raises ConfigurationError: when it has no such partition key.
    :raises CatalogUnavailableError: when nobody counted them.
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


def news(source: Source, store: Store | None, view: str, since: SourceState | None) -> News:  # noqa: ARG001 - see bind
    """The rows that were added, see :func:`~airflow_dynamic_tables.formats.registry.news`.

    Files that were rewritten with the same rows are nothing new; the rows are read from where they were added.

    :raises TableNotFoundError: as of :func:`bind`, as for CatalogUnavailableError and UnsupportedError.
    """
    snapshot = _opened(source)
    now = content(snapshot, source.identifier)
    if since is None:
        return News(now.bound(source.identifier, view))
    if now.state is not None and (why := why_another(since, now.state)):
        return News(ended=why)
    if since.version == now.snapshot:
        return News()
    added = _added(snapshot, int(since.version))
    if isinstance(added, str):
        return News(ended=added)
    return News(restricted(now, snapshot, added).bound(source.identifier, view)) if added else News()


def _added(snapshot: DeltaSnapshot, since: int) -> list[DeltaFile] | str:
    """The files that were added after a version, or why that is not all that was done."""
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
    """Whether a file came or went with its rows; others hold what was there before."""
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
