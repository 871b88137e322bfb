"""How often a loop looks for new partitions of sources that have a watermark. What it finds, every refresh finds by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_dynamic_tables.services.continuous.base import Work
from airflow_dynamic_tables.services.continuous.micro_refresh import Batch, MicroRefresh
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest


class Monitor:
    """Lets a turn look at the sources of its table, but not more often than they say (``streaming-source.monitor-interval``).

    :param seconds: a clock that never jumps.
    """

    def __init__(self, work: Work, seconds: Callable[[], float] = time.monotonic) -> None:
        marks = (source.watermark for name, source in work.sources.items() if name in work.table.upstream)
        intervals = (mark.monitor_interval for mark in marks if mark is not None)
        self._interval = min((interval.total_seconds() for interval in intervals if interval is not None), default=0)
        self._seconds = seconds
        self._looked_at: float | None = None

    def next_batch(self, request: RefreshRequest) -> Batch | None:
        """The batch of a turn; ``None`` when somebody looked just now."""
        now = self._seconds()
        if self._looked_at is not None and now - self._looked_at < self._interval:
            return None
        self._looked_at = now
        return Batch(request)


def watched(work: Work) -> MicroRefresh:
    """The strategy of ordinary refreshes, with a monitor of what its table reads."""
    return MicroRefresh(work, Monitor(work).next_batch)
