"""Registry of the strategies of tables in continuous mode, and compaction between their turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow_dynamic_tables.core.schedule import StrategyName
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.services.continuous.base import Strategy, TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.loop import watched
from airflow_dynamic_tables.services.continuous.streams.strategy import Streaming
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.preview import choose

STRATEGIES: Mapping[StrategyName, Callable[[Work], Strategy]] = {
    StrategyName.MICRO_REFRESH: watched,
    StrategyName.STREAM: Streaming,
}
"""Factory of each strategy."""


def strategy_of(work: Work) -> Strategy:
    """Create the strategy of a table."""
    return Tidying(work, STRATEGIES[choose(work.table, work.sources).strategy](work))


_MB = 1024 * 1024

LIMITS = Limits(small=8 * _MB, target=32 * _MB, most=32 * _MB, whole=32 * _MB)
"""Limits of a compaction between turns, which takes about a second. The rest is left to the maintenance."""

log = logging.getLogger(__name__)


class Tidying:
    """A strategy that compacts its table after a turn that left too many small files."""

    def __init__(self, work: Work, strategy: Strategy) -> None:
        self._work = work
        self._strategy = strategy

    def turn(self, number: int) -> TurnOutcome:
        """See :meth:`Strategy.turn`. A failed compaction is left to the maintenance."""
        outcome = self._strategy.turn(number)
        if outcome.versions and not outcome.more:
            try:
                compact(self._work.workspace, self._work.table.identifier, LIMITS, is_cheap=True)
            except Exception:
                log.exception("%s could not be compacted; the maintenance does it.", self._work.table.identifier)
        return outcome

    def close(self) -> None:
        """See :meth:`Strategy.close`."""
        self._strategy.close()
