"""Previewing: what a scheduled refresh would do, from the definition alone. No catalog is imported, so that it starts fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.continuous import StrategyName
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.streaming.partition_commit import PREFIX as COMMIT
from airflow_dynamic_tables.core.tables.dates import scheduled_partitions
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.placing.foreign import is_known
from airflow_dynamic_tables.definitions.queries.text import variation
from airflow_dynamic_tables.schedulers.registry import DEFAULT_SCHEDULER, known_schedulers
from airflow_dynamic_tables.services.refresh.strategies import choose

MANY_VERSIONS = 1000
"""Kept versions of a table above which somebody is warned. By default it keeps about a hundred, which no commit feels."""

VERSION_BYTES = 900
"""Bytes that a version takes in the metadata of an Iceberg table; ``make bench`` prints the size for 10,000 of them."""

VERSION_SECONDS = 0.00005
"""Seconds of CPU that a version adds to each commit, also from ``make bench``."""


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


def preview(table: DynamicTable, schedule_time: datetime, sources: Mapping[TableIdentifier, Source]) -> TablePlan:
    """What the schedule would refresh at that time; pure.

    :param schedule_time: timezone-aware.
    :param sources: the sources of the definitions.
    """
    choice = choose(table, sources) if table.is_continuous else None
    partitions = scheduled_partitions(schedule_time, table.freshness, table.formatters, table.timezone)
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
        unchanged=_when_unchanged(table),
        strategy=choice.strategy if choice else None,
        strategy_reason=choice.reason if choice else None,
    )


def _when_unchanged(table: DynamicTable) -> str:
    if not table.skip_unchanged:
        return "refreshed: skip_unchanged is false"
    why = why_it_varies(table)
    return f"refreshed: {why}" if why else "skipped"


def why_it_varies(table: DynamicTable) -> str | None:
    """Why a refresh may give other rows though what it reads stays the same, without a full stop; ``None`` when it does not."""
    conditions = (expectation.predicate for expectation in table.expectations)
    return variation(table.expanded_query, filter(None, conditions))


def statement(query: str, partitions: PartitionSet) -> str:
    """The SQL of a refresh as a person reads it: the query, restricted to the partitions unless they are the whole table."""
    where = "" if partitions.is_whole else f"\nWHERE {partitions.predicate}"
    return f"SELECT * FROM (\n{query}\n){where}"


def warnings(table: DynamicTable) -> Iterator[str]:
    """What somebody should know whose table has options that nothing heeds, or keeps thousands of versions."""
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


def not_supported_yet(table: DynamicTable) -> str | None:
    """Why a table that is defined rightly cannot be refreshed by this release; ``None`` when it can."""
    if table.mode in (RefreshMode.FULL, RefreshMode.CONTINUOUS):
        return not_schedulable(table)
    return f"{table.mode.lower()} refresh is not supported yet ({table.mode_reason}); set refresh_mode: full"


def not_schedulable(table: DynamicTable) -> str | None:
    """Why its scheduler cannot have a table refreshed; ``None`` when it can."""
    if table.scheduler in (None, DEFAULT_SCHEDULER):
        return None
    if table.scheduler not in known_schedulers():
        return f"nobody brings a scheduler {table.scheduler!r}; known are {', '.join(known_schedulers())}"
    if table.dag:
        return f"only Airflow refreshes several tables in one 'dag', and its scheduler is {table.scheduler}; write 'dag: none'"
    if table.on or table.cron is None:
        return f"only Airflow refreshes by updates of assets, or all the time, and its scheduler is {table.scheduler}"
    return None
