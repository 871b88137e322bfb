"""Registry of the strategies of tables in continuous mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_dynamic_tables.core.schedule import StrategyName
from airflow_dynamic_tables.services.continuous.base import Strategy, Work
from airflow_dynamic_tables.services.continuous.loop import watched
from airflow_dynamic_tables.services.continuous.streams.strategy import Streaming
from airflow_dynamic_tables.services.continuous.tidying import Tidying
from airflow_dynamic_tables.services.refresh.strategies import choose

STRATEGIES: Mapping[StrategyName, Callable[[Work], Strategy]] = {
    StrategyName.MICRO_REFRESH: watched,
    StrategyName.STREAM: Streaming,
}
"""Factory of each strategy."""


def strategy_of(work: Work) -> Strategy:
    """Create the strategy of a table."""
    return Tidying(work, STRATEGIES[choose(work.table, work.sources).strategy](work))
