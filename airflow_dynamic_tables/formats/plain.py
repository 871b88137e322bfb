"""Folders of files as sources: bindings, and row counts from footers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_dynamic_tables.clients.files import as_os_errors, fingerprint, last_changed, list_files, paths_below
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import partition_of
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    StageRejectedError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_dynamic_tables.formats.base import Increment, ListedFile, why_another
from airflow_dynamic_tables.formats.data_files import count_rows
from airflow_dynamic_tables.formats.fingerprints import File, added_files, fingerprints, partition_sizes, schema_digest, unsettled

_AT_ONCE = 64
"""Number of footers read per step: few more than needed, and enough for all threads."""


def count(source: Source, store: Store | None, partition: Mapping[str, str], least: int) -> int:  # noqa: ARG001 - see bind
    """Count the rows in a folder, or in one partition of it, up to ``least``.

    :raises TableNotFoundError: if the folder does not exist.
    :raises CatalogUnavailableError: if it cannot be listed completely, or a file is missing, damaged or incomplete.
    """
    try:
        files = list_files(source.path or "")
    except FileNotFoundError as error:
        raise TableNotFoundError(f"Source {source.identifier}: there is nothing at {source.path}.") from error
    folders = folders_of(source, files)
    covered = {folder for folder in set(folders.values()) if partition.items() <= partition_of(folder).items()}
    wanted = [file for file in files if folders[file] in covered]
    rows = 0
    try:
        with as_os_errors():
            for start in range(0, len(wanted), _AT_ONCE):
                rows += sum(count_rows(wanted[start : start + _AT_ONCE], source.format))
                if rows >= least:
                    break
    except (OSError, StageRejectedError) as error:
        raise CatalogUnavailableError(f"Source {source.identifier}: {error}") from error
    return rows


def bind(source: Source, store: Store | None, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a folder to its current files.

    :raises ConfigurationError: if it does not exist, or is empty and has no schema.
    :raises CatalogUnavailableError: if it cannot be listed completely.
    """
    return _listed(source, view)[0]


def files_since(source: Source, store: Store | None, view: str, since: SourceState) -> Increment:  # noqa: ARG001 - see bind
    """Return the files added to a folder, see :func:`~airflow_dynamic_tables.formats.registry.files_since`.

    :raises ConfigurationError: see :func:`bind`, also for CatalogUnavailableError.
    """
    binding, files = _listed(source, view)
    if not source.schema:
        return Increment(ended="its columns are those of its files; declare a schema")
    listed = _by_partition(source, files)
    if astray := next((file for spec, (file, _) in listed if len(spec) < len(source.partition_keys)), None):
        # Spark reads such a file only without the others.
        return Increment(ended=f"{astray} is in no folder of a partition")
    added = why_another(since, binding.state or since) or added_files(listed, since)
    if isinstance(added, str):
        return Increment(ended=added)
    names = {name for _, group in added for name in group}
    if not names:
        return Increment()
    size = sum(int(files[name].get("size") or 0) for name in names)
    return Increment(replace(binding, files=tuple(name for name in binding.files if name in names)), bytes=size)


def _listed(source: Source, view: str) -> tuple[SourceBinding, Mapping[str, Mapping[str, Any]]]:
    """Return the binding of a folder to its current files, and these files with their attributes."""
    seen_at = datetime.now(UTC)
    try:
        files = list_files(source.path or "")
    except FileNotFoundError as error:
        raise ConfigurationError(f"Source {source.identifier}: there is nothing at {source.path}.") from error
    except CatalogUnavailableError as error:
        raise CatalogUnavailableError(f"Source {source.identifier}: {error}") from error
    if not files and not source.schema:
        raise ConfigurationError(
            f"Source {source.identifier}: no data files under {source.path} and no schema in its definition."
        )
    binding = SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=source.format,
        version=fingerprint(files),
        files=tuple(files),
        base_path=source.path if source.partition_keys else None,
        schema=source.schema,
        partition_keys=source.partition_keys,
        options=dict(source.options),
        state=_state(source, files, seen_at),
    )
    return binding, files


def list_files_at(source: Source, store: Store | None, columns: Collection[str], state: SourceState) -> list[ListedFile]:  # noqa: ARG001 - see bind
    """Return the files of a folder, see :func:`~airflow_dynamic_tables.formats.registry.list_files`.

    :raises VersionNotFoundError: if they are not those of the state.
    """
    try:
        files = list_files(source.path or "")
    except FileNotFoundError as error:
        raise VersionNotFoundError(f"there is nothing at {source.path}") from error
    if fingerprint(files) != state.version:
        raise VersionNotFoundError("its files changed just now")
    folders = folders_of(source, files)
    specs = {folder: _spec(source, folder) for folder in set(folders.values())}
    return [
        ListedFile(file, describe(specs[folder]), {key.lower(): value for key, value in specs[folder].items()})
        for file, folder in folders.items()
    ]


def _spec(source: Source, folder: str) -> dict[str, str]:
    """Return the partition of a folder, by the keys of the source."""
    spec = partition_of(folder)
    return {key: spec[key] for key in source.partition_keys if key in spec}


def folders_of(source: Source, files: Iterable[str]) -> dict[str, str]:
    """Return the folder of each file relative to the source: the name of its partition."""
    return {file: path.rpartition("/")[0] for file, path in paths_below(source.path or "", files).items()}


def _by_partition(source: Source, files: Mapping[str, Mapping[str, Any]]) -> list[tuple[Mapping[str, str], File]]:
    """Return the files of a folder, each with its partition."""
    folders = folders_of(source, files)
    partitions = {folder: _spec(source, folder) for folder in set(folders.values())}
    return [(partitions[folders[file]], (file, info)) for file, info in files.items()]


def _state(source: Source, files: Mapping[str, Mapping[str, Any]], seen_at: datetime) -> SourceState:
    listed = _by_partition(source, files)
    return SourceState(
        version=fingerprint(files),
        location=source.path,
        schema=schema_digest(source.schema or ""),
        partitions=fingerprints(listed),
        unsettled=unsettled(listed, seen_at),
        sizes=partition_sizes((spec, int(files[file].get("size") or 0)) for spec, (file, _) in listed),
        changed_at=last_changed(files.values()),
    )
