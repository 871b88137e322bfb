"""What a refresh tells in the log: what it does and why, what it reads, what Spark wrote, which version that became."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.tables.partitions import PartitionSet, describe
from airflow_dynamic_tables.services.watermarks.growth import Growth

log = logging.getLogger(__name__)

_MOST_EMPTY = 10
"""How many empty partitions are named: a backfill of years would fill the log."""


def tell_growth(growth: Growth) -> None:
    """What of sources with a watermark came late, and what is there no more."""
    if growth.late:
        log.warning("%s partitions came, or changed, after their time was over: %s", len(growth.late), ", ".join(growth.late))
    for name, one in growth.sources.items():
        if one.batch.gone:
            log.info("%s partitions of %s are gone; rows of them stay: %s", len(one.batch.gone), name, ", ".join(one.batch.gone))


def tell_plan(planned: RefreshPlan) -> None:
    """Tell what is refreshed and why, and which version of every source is read."""
    time = planned.schedule_time.isoformat()
    log.info("Refresh of %s for %s: %s, %s.", planned.identifier, time, planned.action, planned.reason)
    for source in planned.sources:
        log.info("Source %s: version %s%s.", source.identifier, source.version, _files(source))
    if not planned.sources:
        log.info("The query reads no table.")


def _files(source: SourceBinding) -> str:
    number = len(source.files) + sum(len(part.files) for part in source.parts)
    return f", {source.format}, files: {number}" if number else ""


def tell_written(planned: RefreshPlan, result: RefreshResult) -> None:
    """Tell what Spark wrote; a partition, or a whole table, that comes out empty is a warning, but not a batch of a stream."""
    numbers = (result.rows, len(result.files), result.bytes)
    log.info("Spark %s wrote rows: %s, files: %s, bytes: %s%s.", result.application_id, *numbers, _as_text(result.seconds))
    if planned.partitions.is_whole:
        if result.rows == 0 and planned.position is None:
            log.warning("The query returned no rows for %s.", planned.identifier)
        return
    empty = [spec for spec in planned.partitions if not any(PartitionSet.of([spec]).covers(one) for one in result.partitions)]
    if empty:
        more = f" and {len(empty) - _MOST_EMPTY} more" if len(empty) > _MOST_EMPTY else ""
        named = ", ".join(map(describe, empty[:_MOST_EMPTY])) + more
        log.warning("The query returned no rows for %s of %s.", named, planned.identifier)


def _as_text(seconds: Mapping[str, float]) -> str:
    return "; " + ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()) if seconds else ""
