"""The strategies that this release has, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_dynamic_tables.core.schedule.continuous import StrategyName
from airflow_dynamic_tables.services.continuous.base import Strategy, Work
from airflow_dynamic_tables.services.continuous.monitor import watched
from airflow_dynamic_tables.services.continuous.streams.strategy import Streaming
from airflow_dynamic_tables.services.continuous.tidying import Tidying
from airflow_dynamic_tables.services.refresh.strategies import choose

STRATEGIES: Mapping[StrategyName, Callable[[Work], Strategy]] = {
    StrategyName.MICRO_REFRESH: watched,
    StrategyName.STREAM: Streaming,
}
"""How each strategy that this release has is made."""


def strategy_of(work: Work) -> Strategy:
    """The strategy that keeps the table of some work fresh, ready to turn."""
    return Tidying(work, STRATEGIES[choose(work.table, work.sources).strategy](work))
