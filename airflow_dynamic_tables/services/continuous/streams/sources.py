"""Sources of a stream: files as they arrive, or new data in a table, which the worker detects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.formats import VIEW, Endless
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import NotFoundError, UnsupportedError, UpstreamError
from airflow_dynamic_tables.formats import registry
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.services.refresh.binding import connection_variable
from airflow_dynamic_tables.services.watermarks import source_progress as partitions
from airflow_dynamic_tables.services.workspace import Workspace

INSTEAD = "use strategy micro-refresh"
"""The remedy if a stream is not supported."""

Look = Callable[[SourceState | None], Increment]
"""Returns the changes of a table since a state was read; everything if there is none."""


def stream_source(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> SourceBinding:
    """Return the binding by which the job of a stream reads a source as ``view``.

    :param source: the declaration of the source; ``None`` for an undeclared table.
    :raises UnsupportedError: if a stream cannot read it; the message contains the reason and the remedy.
    :raises UpstreamError: if it has no version yet.
    """
    if source is not None and source.endless is not None:
        return _endless(source, source.endless, view)
    look = look_of(workspace, table, identifier, source, view)
    if source is not None and look is None:
        return _files(identifier, source, view)
    if look is None:
        raise UnsupportedError(f"{identifier} has no folder of files that a stream could read; {INSTEAD}.")
    found = look(None).binding
    if found is None or found.schema is None:
        raise UnsupportedError(f"A stream reads {identifier} before it has files: give the source a 'schema', or {INSTEAD}.")
    return SourceBinding(
        identifier=str(identifier),
        view=view,
        format=found.format,
        version=_version(source),
        files=(),
        schema=found.schema,
        partition_keys=found.partition_keys,
        options=found.options,
        parts=(),
        event_time=source.event_time if source is not None else None,
        is_fed=True,
    )


def look_of(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> Look | None:
    """Return the function that detects changes of a source; ``None`` if Spark detects them itself, or they cannot be detected.

    :raises UpstreamError: if the source has no version yet.
    """
    watermark = source.watermark if source is not None else None
    if source is not None and watermark is not None:
        return lambda since: partitions.added_since(workspace, source, watermark, table.timezone, view, since)
    described = source or _described(workspace, identifier)
    if not registry.tells_news(described.format):
        return None
    stores = workspace.readable(identifier.catalog).stores()

    def look(since: SourceState | None) -> Increment:
        try:
            return registry.added_since(described, stores, view, since)
        except NotFoundError as error:
            raise UpstreamError(f"{identifier} has no version yet; refresh it first.") from error

    return look


def _described(workspace: Workspace, identifier: TableIdentifier) -> Source:
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except NotFoundError as error:
        raise UpstreamError(f"{identifier} has no version yet; refresh it first.") from error
    return Source(identifier, VIEW) if isinstance(entry, CatalogView) else Source(identifier, entry.format, entry.location)


def _version(source: Source | None) -> str:
    """Return an identifier of how the stream reads a source; it changes with the watermark."""
    if source is None or source.watermark is None:
        return "stream"
    decisive = replace(source.watermark, monitor_interval=None)
    return f"whole partitions {hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]}"


def _endless(source: Source, endless: Endless, view: str) -> SourceBinding:
    """Return the binding of an unbounded source. Its connection options are in the job's environment, not in the plan."""
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=source.format,
        version="stream",
        files=(),
        options={**endless.presets, **source.options},
        password_variable=connection_variable(source.conn_id) if source.conn_id else None,
        parts=(),
        has_files=False,
        event_time=source.event_time,
        conn_id=source.conn_id,
    )


def _files(identifier: TableIdentifier, source: Source, view: str) -> SourceBinding:
    """Return the binding of a folder whose files are read as they arrive.

    :raises UnsupportedError: if there is no folder of files, or their columns are not declared.
    """
    if source.path is None:
        raise UnsupportedError(f"{identifier} has no folder of files that a stream could read; {INSTEAD}.")
    if source.schema is None:
        raise UnsupportedError(f"A stream reads {identifier} before it has files: give the source a 'schema', or {INSTEAD}.")
    return SourceBinding(
        identifier=str(identifier),
        view=view,
        format=source.format,
        version="stream",
        files=(),
        base_path=source.path,
        schema=source.schema,
        partition_keys=source.partition_keys,
        options=dict(source.options),
        parts=(),
        event_time=source.event_time,
    )
