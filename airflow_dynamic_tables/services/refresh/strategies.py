"""Choice of the strategy of a table in continuous mode, from the definitions alone, so that ``plan`` starts fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import StrategyName
from airflow_dynamic_tables.definitions.model import DynamicTable


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy and the reason for it, as a sentence."""

    strategy: StrategyName
    reason: str


def refusal_of_servers(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> str | None:
    """Return why a Spark Connect server cannot refresh a table, and the remedy; ``None`` if it can. Pure."""
    if not table.is_continuous or (choice := choose(table, sources)).strategy is not StrategyName.STREAM:
        return None
    return (
        f"{table.identifier} is kept fresh by a stream ({choice.reason}), which runs by spark-submit alone, and connection "
        f"{table.spark.conn_id!r} leads to a Spark Connect server; name one of type spark under spark.conn_id"
    )


def choose(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> Choice:
    """Return the strategy of a table in continuous mode: the declared one, or the one that its sources require; pure."""
    declared = table.continuous.strategy
    if declared is not StrategyName.AUTO:
        return Choice(declared, f"strategy {declared} is declared")
    if waits := next((name for name in table.upstream if name in sources and sources[name].event_time is not None), None):
        return Choice(StrategyName.STREAM, f"{waits} has a watermark, up to which rows are kept between two batches")
    if endless := next((name for name in table.upstream if name in sources and sources[name].endless is not None), None):
        return Choice(StrategyName.STREAM, f"{endless} never ends, so only a stream reads it")
    return Choice(StrategyName.MICRO_REFRESH, "every source has files, and nothing has to be kept between two batches")
