"""How a folder of files is read: exactly the files that it has when it is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_dynamic_tables.clients.files import fingerprint, list_files, plain_path
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.formats.fingerprints import fingerprints, schema_digest, unsettled


def bind(source: Source, store: Store | None, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - all is in its path
    """Bind a folder to the files that it has now.

    :raises ConfigurationError: when it is missing, or empty and without a schema.
    :raises CatalogUnavailableError: when it cannot be listed in full.
    """
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
    return SourceBinding(
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


def folders_of(source: Source, files: Iterable[str]) -> dict[str, str]:
    """The folder of each file, below that of the source: the name of a partition."""
    below = len(plain_path(source.path or "").rstrip("/")) + 1
    return {file: plain_path(file)[below:].rpartition("/")[0] for file in files}


def _state(source: Source, files: Mapping[str, Mapping[str, Any]], seen_at: datetime) -> SourceState:
    folders = folders_of(source, files)
    specs = {folder: partition_of(folder) for folder in set(folders.values())}
    partitions = {folder: {key: spec[key] for key in source.partition_keys if key in spec} for folder, spec in specs.items()}
    listed = [(partitions[folders[file]], (file, info)) for file, info in files.items()]
    return SourceState(
        version=fingerprint(files),
        location=source.path,
        schema=schema_digest(source.schema or ""),
        partitions=fingerprints(listed),
        unsettled=unsettled(listed, seen_at),
    )
