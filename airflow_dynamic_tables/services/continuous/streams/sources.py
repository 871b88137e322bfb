"""Which sources a stream can read, and how its job does."""

from __future__ import annotations

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import UnsupportedError

INSTEAD = "use strategy micro-refresh"
"""What to do where a stream is none."""


def stream_source(identifier: TableIdentifier, source: Source | None, view: str) -> SourceBinding:
    """How the job of a stream reads a source, as ``view``.

    :param source: its declaration; ``None`` for a table that has none.
    :raises UnsupportedError: when a stream cannot read it; says why, and what to do.
    """
    return _files(identifier, source, view)


def _files(identifier: TableIdentifier, source: Source | None, view: str) -> SourceBinding:
    """All files of its folder, as they come.

    :raises UnsupportedError: when it has no folder of files, or nobody says which columns they have.
    """
    if source is None or source.path is None:
        raise UnsupportedError(f"{identifier} has no folder of files that a stream could read; {INSTEAD}.")
    if source.schema is None:
        raise UnsupportedError(f"A stream reads {identifier} before it has files: give the source a 'schema', or {INSTEAD}.")
    if source.watermark is not None:
        raise UnsupportedError(f"A stream does not read {identifier} by whole partitions (watermark: source); {INSTEAD}.")
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
