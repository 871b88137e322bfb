"""How a table comes along: how fast its refreshes are, and up to where they read each source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a refresh that made a version took, all steps together, and how many rows it wrote in each second of that."""

    token: str
    version: int | None
    finished_at: datetime | None
    seconds: float
    rows: int | None
    bytes: int | None
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Up to where a version of a table has read one source.

    ``version`` is that of the source; ``partitions`` is how many it had then, and ``last_partition`` the one whose text sorts
    last; ``None`` when it has none, or nobody knows. ``version_now`` is its version now, and ``moved`` whether that is another
    one; ``None``: nobody looked, or nobody can tell.
    """

    source: str
    version: str
    partitions: int | None = None
    last_partition: str | None = None
    version_now: str | None = None
    moved: bool | None = None


def pace_of(refresh: Refresh) -> Pace:
    """What its steps and rows come to; a step with a dot is a part of another one."""
    seconds = sum(value for step, value in refresh.seconds.items() if "." not in step)
    return Pace(
        token=refresh.token,
        version=refresh.version,
        finished_at=refresh.finished_at,
        seconds=round(seconds, 3),
        rows=refresh.rows,
        bytes=refresh.bytes,
        rows_per_second=round(refresh.rows / seconds, 1) if refresh.rows is not None and seconds else None,
    )


def positions_of(
    version: Version, states: Mapping[str, SourceState], now: Mapping[str, SourceState]
) -> tuple[SourcePosition, ...]:
    """Up to where a version has read its sources, by their names.

    :param states: what is recorded of the sources of that version.
    :param now: what they are like now, as far as somebody looked.
    """
    return tuple(_position(source, read, states.get(source), now.get(source)) for source, read in sorted(version.sources.items()))


def _position(source: str, version: str, state: SourceState | None, now: SourceState | None) -> SourcePosition:
    partitions = sorted(filter(None, (state.partitions or {}) if state else {}))
    return SourcePosition(
        source=source,
        version=version,
        partitions=len(partitions) or None,
        last_partition=partitions[-1] if partitions else None,
        version_now=now.version if now else None,
        moved=_moved(version, now) if now else None,
    )


def _moved(version: str, now: SourceState) -> bool | None:
    if now.version == version:
        return False
    # Without parts it is a server's own count, which goes up whatever anybody does there.
    return True if now.partitions is not None else None


def paces_of(refreshes: Iterable[Refresh]) -> tuple[Pace, ...]:
    """Those of the refreshes that made a version."""
    return tuple(pace_of(refresh) for refresh in refreshes if refresh.state is RefreshState.SUCCEEDED)
