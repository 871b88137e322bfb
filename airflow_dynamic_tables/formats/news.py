"""What is new in a table since a stream has read it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState


@dataclass(frozen=True, slots=True)
class News:
    """What came, when nothing else happened to a table.

    ``binding`` reads just that, and its state is what has been read then; ``None`` when nothing came. ``ended`` says why what was
    read before is not all there any more as it was, so that only a new stream has the rows of the table. ``waiting`` says what is
    there and cannot be read yet, ``late`` names what came after its time was over; all without a full stop.
    """

    binding: SourceBinding | None = None
    ended: str = ""
    waiting: str = ""
    late: tuple[str, ...] = ()


def why_another(since: SourceState, now: SourceState) -> str:
    """Why a table is not the one that was read; empty when it is."""
    if since.identity != now.identity:
        return "it was dropped and made anew"
    return "its columns changed" if since.schema != now.schema else ""
