"""Changes of a table since it was last read by a stream."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState


@dataclass(frozen=True, slots=True)
class Increment:
    """The rows added to a table.

    ``binding`` reads exactly these rows, and its state is what has been read afterwards; ``None`` if there are none. ``ended``
    states why previously read rows have changed, so that a new stream is required. ``waiting`` states which changes cannot be
    read yet, and ``late`` lists partitions that arrived or changed after their window was closed. All texts have no full stop.
    """

    binding: SourceBinding | None = None
    ended: str = ""
    waiting: str = ""
    late: tuple[str, ...] = ()


def why_another(since: SourceState, now: SourceState) -> str:
    """Return why a table is not the one read before; empty if it is."""
    if since.identity != now.identity:
        return "it was dropped and made anew"
    return "its columns changed" if since.schema != now.schema else ""
