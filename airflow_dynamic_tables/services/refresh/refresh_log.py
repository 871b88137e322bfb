"""Log messages of a refresh: action and reason, sources, written rows, and the resulting version."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.services.watermarks.increments import Growth

log = logging.getLogger(__name__)

_MOST_EMPTY = 10
"""Limit of empty partitions named in the log, because a backfill of years would fill it."""


def log_progress(growth: Growth) -> None:
    """Log late and removed partitions of sources with a watermark."""
    if growth.late:
        log.warning("%s partitions came, or changed, after their time was over: %s", len(growth.late), ", ".join(growth.late))
    for name, one in growth.sources.items():
        if one.batch.gone:
            log.info("%s partitions of %s are gone; rows of them stay: %s", len(one.batch.gone), name, ", ".join(one.batch.gone))


def log_plan(planned: RefreshPlan) -> None:
    """Log the action, its reason, and the version of every source."""
    time = planned.schedule_time.isoformat()
    log.info("Refresh of %s for %s: %s, %s.", planned.identifier, time, planned.action, planned.reason)
    for source in planned.sources:
        log.info("Source %s: version %s%s.", source.identifier, source.version, _files(source))
    if not planned.sources:
        log.info("The query reads no table.")


def _files(source: SourceBinding) -> str:
    number = len(source.files) + sum(len(part.files) for part in source.parts)
    return f", {source.format}, files: {number}" if number else ""


def log_result(planned: RefreshPlan, result: RefreshResult) -> None:
    """Log the output of Spark, with a warning about empty partitions or an empty table, except for stream batches."""
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
