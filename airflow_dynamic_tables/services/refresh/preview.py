"""Preview of a scheduled refresh, and the choice of a strategy, from the definition alone, so that both start fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import scheduled_partitions
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import BoundTime, FunctionBinding, named_times
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import StrategyName
from airflow_dynamic_tables.core.streaming.partition_commits import PREFIX as COMMIT
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import bind_times, variation
from airflow_dynamic_tables.definitions.table_problems import is_known
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER, known_schedulers

MANY_VERSIONS = 1000
"""Number of retained versions above which a warning is issued. The default retention keeps about a hundred."""

VERSION_BYTES = 900
"""Size in bytes of a version in the metadata of an Iceberg table; ``make bench`` prints the size for 10,000 of them."""

VERSION_SECONDS = 0.00005
"""CPU seconds that each version adds to a commit; measured by ``make bench``, too."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The plan of a scheduled refresh at ``schedule_time``."""

    identifier: str
    freshness_seconds: int
    refresh_mode: str
    mode_reason: str
    """Why the table has this refresh mode."""
    cron: str | None
    timezone: str
    schedule_time: datetime
    partitions: PartitionSet
    """Empty: the complete table."""
    upstream: tuple[str, ...]
    statement: str
    atomicity: str
    unchanged: str
    """The result of the refresh if no source has changed."""
    strategy: StrategyName | None = None
    """The strategy of a table in continuous mode."""
    strategy_reason: str | None = None
    catch_up: PartitionSet | None = None
    """Partitions of missed ticks that the first commit also makes. Empty: the complete table; null: none, or not looked up."""
    catch_up_reason: str | None = None
    times: tuple[str, ...] | None = None
    """The values of the query's functions of time."""
    frozen: str | None = None
    """The condition of partitions that refreshes leave as they are."""


def preview(table: DynamicTable, schedule_time: datetime, sources: Mapping[TableIdentifier, Source]) -> TablePlan:
    """Return the plan of the scheduled refresh at a time; pure.

    :param schedule_time: timezone-aware.
    """
    choice = choose(table, sources) if table.is_continuous else None
    is_streamed = choice is not None and choice.strategy is StrategyName.STREAM
    times = () if is_streamed else bind_times(table.expanded_query, schedule_time, table.timezone, table.spark.conf)
    scheduled = scheduled_partitions(schedule_time, table.freshness, table.formatters, table.timezone)
    partitions = WHOLE_TABLE if table.is_incremental else scheduled
    return TablePlan(
        identifier=str(table.identifier),
        freshness_seconds=table.freshness.seconds,
        refresh_mode=table.mode.value,
        mode_reason=table.mode_reason,
        cron=table.cron,
        timezone=table.timezone,
        schedule_time=schedule_time,
        partitions=partitions,
        upstream=tuple(map(str, table.upstream)),
        statement=statement(table.expanded_query, partitions),
        atomicity=table.atomicity,
        unchanged=_when_unchanged(table, times),
        strategy=choice.strategy if choice else None,
        strategy_reason=choice.reason if choice else None,
        times=tuple(f"{name} is {sql}" for name, sql in named_times(table.expanded_query, times).items()) or None,
        frozen=table.frozen,
    )


def _when_unchanged(table: DynamicTable, times: Sequence[BoundTime]) -> str:
    if not table.skip_unchanged:
        return "refreshed: skip_unchanged is false"
    if why := why_it_varies(table, table.expanded_query, times):
        return f"refreshed: {why}"
    return "refreshed when a time that the query names is another one" if times else "skipped"


def why_it_varies(
    table: DynamicTable, query: str, times: Sequence[BoundTime], functions: Sequence[FunctionBinding] = ()
) -> str | None:
    """Return why a refresh may return different rows for the same inputs, without a full stop; ``None`` if it does not.

    :param query: the expanded query, with the names of the functions in the job if these are given.
    :param times: the times that are bound in it.
    """
    if varying := next((function.identifier for function in functions if not function.deterministic), None):
        return f"the catalog does not declare that {varying}() is deterministic"
    conditions = filter(None, (expectation.predicate for expectation in table.expectations))
    return variation(query, conditions, times=times, steady=[function.function for function in functions])


def statement(query: str, partitions: PartitionSet) -> str:
    """Return the SQL of a refresh for display: the query, restricted to the partitions unless they are the complete table."""
    where = "" if partitions.is_whole else f"\nWHERE {partitions.predicate}"
    return f"SELECT * FROM (\n{query}\n){where}"


def warnings(table: DynamicTable) -> Iterator[str]:
    """Yield warnings about unknown options and about a retention that keeps thousands of versions."""
    if options := [name for name in table.options if not (is_known(name) or name.startswith(COMMIT))]:
        yield f"nothing heeds {', '.join(map(repr, options))} among its options; the catalog keeps them for others"
    versions = table.retention.versions_kept(table.freshness.period)
    if versions <= MANY_VERSIONS or not FORMATS[table.format].has_history:
        return
    yield (
        f"its retention keeps about {versions:,} versions, and every commit reads and writes what the table says of all of them, "
        f"about {versions * VERSION_BYTES / 1e6:.1f} MB in {versions * VERSION_SECONDS:.1f} s of CPU; set a shorter "
        "version_max_age or fewer versions_to_keep, or neither: then fewer are kept the older they are"
    )


def not_schedulable(table: DynamicTable) -> str | None:
    """Return why the table's scheduler cannot refresh it; ``None`` if it can."""
    if table.scheduler in (None, DEFAULT_SCHEDULER):
        return None
    if table.scheduler not in known_schedulers():
        return f"there is no scheduler {table.scheduler!r}; known are {', '.join(known_schedulers())}"
    if table.dag:
        return f"only Airflow refreshes several tables in one 'dag', and its scheduler is {table.scheduler}; write 'dag: none'"
    if table.on or table.cron is None:
        return f"only Airflow refreshes by updates of assets, or all the time, and its scheduler is {table.scheduler}"
    return None


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
