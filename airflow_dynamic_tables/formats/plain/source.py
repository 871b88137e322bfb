"""How a folder of files is read: exactly the files that it has when it is looked at."""

from __future__ import annotations

from airflow_dynamic_tables.clients.files import fingerprint, list_files
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError


def bind(source: Source, store: Store | None, view: str) -> SourceBinding:  # noqa: ARG001 - it says itself where it lies
    """Bind a folder to the files that it has now.

    :raises ConfigurationError: when it is missing, or empty and without a schema.
    """
    try:
        files = list_files(source.path or "")
    except FileNotFoundError as error:
        raise ConfigurationError(f"Source {source.identifier}: there is nothing at {source.path}.") from error
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
    )
