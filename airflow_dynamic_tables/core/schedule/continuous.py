"""How a table is kept fresh that is refreshed all the time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from airflow_dynamic_tables.core.schedule.freshness import Freshness

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StrategyName(StrEnum):
    """What a turn of such a table is; AUTO is only ever declared, never chosen."""

    AUTO = "auto"
    MICRO_REFRESH = "micro-refresh"
    """An ordinary refresh, every freshness."""
    STREAM = "stream"
    """Batches of a streaming query, which keeps its state between them."""


@dataclass(frozen=True, slots=True)
class ContinuousSettings:
    """What a definition says of it.

    A task holds its place for ``hold`` at most. It ends ``events`` after the first commit that Airflow has not heard of, because
    Airflow takes asset events only from tasks that end.
    """

    strategy: StrategyName = StrategyName.AUTO
    hold: timedelta = timedelta(hours=1)
    events: timedelta = timedelta(minutes=1)


DEFAULT_CONTINUOUS = ContinuousSettings()
"""What holds for a table that says nothing."""


def grid_time(now: datetime, freshness: Freshness) -> datetime:
    """The last time up to now that is a multiple of the freshness since 1970, in UTC: the schedule time of a turn."""
    return now - (now.astimezone(UTC) - _EPOCH) % freshness.period
