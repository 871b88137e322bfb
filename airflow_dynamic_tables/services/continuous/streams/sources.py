"""Which sources a stream can read, and how: files as they come, or what is new in a table, which the worker finds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.formats import VIEW, Endless
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import NotFoundError, UnsupportedError, UpstreamError
from airflow_dynamic_tables.formats import registry
from airflow_dynamic_tables.formats.news import News
from airflow_dynamic_tables.services.refresh.binding import connection_variable
from airflow_dynamic_tables.services.watermarks import news as partitions
from airflow_dynamic_tables.services.workspace import Workspace

INSTEAD = "use strategy micro-refresh"
"""What to do where a stream is none."""

Look = Callable[[SourceState | None], News]
"""What is new in a table since somebody read it; all that it has when nobody did."""


def stream_source(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> SourceBinding:
    """How the job of a stream reads a source, as ``view``.

    :param source: its declaration; ``None`` for a table that has none.
    :raises UnsupportedError: when a stream cannot read it; says why, and what to do.
    :raises UpstreamError: when it has no version yet.
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
    """What tells a stream what is new in a source; ``None`` where Spark finds that itself, or nobody does.

    :raises UpstreamError: when it has no version yet.
    """
    watermark = source.watermark if source is not None else None
    if source is not None and watermark is not None:
        return lambda since: partitions.news(workspace, source, watermark, table.timezone, view, since)
    described = source or _described(workspace, identifier)
    if not registry.tells_news(described.format):
        return None
    stores = workspace.readable(identifier.catalog).stores()

    def look(since: SourceState | None) -> News:
        try:
            return registry.news(described, stores, view, since)
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
    """What the stream reads of a source; with another watermark that is something else."""
    if source is None or source.watermark is None:
        return "stream"
    decisive = replace(source.watermark, monitor_interval=None)
    return f"whole partitions {hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]}"


def _endless(source: Source, endless: Endless, view: str) -> SourceBinding:
    """Rows that come and come; what a connection says of them is not in the plan, but in the environment of the job."""
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
    """All files of its folder, as they come.

    :raises UnsupportedError: when it has no folder of files, or nobody says which columns they have.
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
