"""Which strategy keeps a table fresh, and why: from the definitions alone, so that ``plan`` starts fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.continuous import StrategyName
from airflow_dynamic_tables.definitions.model import DynamicTable


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and a sentence that says why it is that one."""

    strategy: StrategyName
    reason: str


def choose(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> Choice:
    """The strategy of a table in continuous mode: the declared one, else what its sources and its query need; pure."""
    declared = table.continuous.strategy
    if declared is not StrategyName.AUTO:
        return Choice(declared, f"strategy {declared} is declared")
    if waits := next((name for name in table.upstream if name in sources and sources[name].event_time is not None), None):
        return Choice(StrategyName.STREAM, f"{waits} has a watermark, up to which rows are kept between two batches")
    return Choice(StrategyName.MICRO_REFRESH, "every source has files, and nothing has to be kept between two batches")
