"""Metrics of writes and tables through Airflow's client: StatsD, DogStatsD or OpenTelemetry, as Airflow is configured.

Each metric has the tag ``table``, and those of writes have ``action`` and ``outcome``. Plain StatsD has no tags; there, their
values are appended to the name: ``dynamic_tables.lag.lake__sales__revenue``.

Airflow initializes the client in its tasks, and in each process that imports ``airflow.sdk.serde``: commands, the api-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType

from airflow.providers.common.compat.sdk import Stats, conf

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome

_COUNTED = (Operation.REFRESH, Operation.ROLLBACK, Operation.COMPACTION, Operation.PUBLISH, Operation.VERIFICATION)
"""Operations with metrics; the others only hold a table, or create one that is not dynamic."""


class Counter(StrEnum):
    """A metric that counts."""

    WRITES = "dynamic_tables.writes"
    """Ended writes, and refreshes that found nothing to write."""
    ROWS = "dynamic_tables.rows"
    """Committed rows."""
    BYTES = "dynamic_tables.bytes"
    """Committed bytes."""
    DROPPED_ROWS = "dynamic_tables.dropped_rows"
    """Rows that expectations dropped. A row that violates two of them counts twice."""


class Timer(StrEnum):
    """A metric that distributes durations."""

    DURATION = "dynamic_tables.duration"
    """Duration of writes, Spark included."""
    WAITING = "dynamic_tables.waiting"
    """Time that a refresh was deferred because a parent was not fresh, or data was not there."""


class Gauge(StrEnum):
    """A metric with a current value."""

    DIRTY_PARTITIONS = "dynamic_tables.dirty_partitions"
    """Partitions that the latest comparison with the sources found to be out of date, and that no refresh has replaced since."""
    LAG = "dynamic_tables.lag"
    """Seconds that the table lies behind."""
    ALLOWED_LAG = "dynamic_tables.allowed_lag"
    """Seconds that it may lie behind at this time."""
    LATE = "dynamic_tables.late"
    """1 if it lies further behind than allowed, or had no version in time; otherwise 0."""
    SHARE_OF_DAY = "dynamic_tables.share_within_freshness_24h"
    """Share of the last 24 hours in which it was not late, from 0 to 1."""
    SHARE_OF_WEEK = "dynamic_tables.share_within_freshness_7d"
    """Share of the last seven days in which it was not late, from 0 to 1."""
    MISSING_PARTITIONS = "dynamic_tables.missing_partitions"
    """Partitions that it lacks because ticks failed or never ran."""
    QUARANTINED = "dynamic_tables.quarantined"
    """Refreshes that wait in quarantine for a decision."""


def are_sent() -> bool:
    """Return whether Airflow is configured to send metrics."""
    return any(_is_on(option) for option in ("statsd_datadog_enabled", "statsd_on", "otel_on"))


def emit_outcome(outcome: WriteOutcome) -> None:
    """Emit the metrics of a write of a dynamic table; a listener of outcomes."""
    if outcome.operation not in _COUNTED:
        return
    table, tags = outcome.table, {"action": str(outcome.action or outcome.operation.upper())}
    _count(Counter.WRITES, table, 1, {**tags, "outcome": str(outcome.ending)})
    steps = [seconds for step, seconds in outcome.seconds.items() if not step.startswith("spark.")]
    if steps:
        _time(Timer.DURATION, table, timedelta(seconds=sum(steps)), tags)
    if outcome.ending is Ending.COMMITTED:
        for metric, amount in ((Counter.ROWS, outcome.rows), (Counter.BYTES, outcome.bytes)):
            if amount is not None:
                _count(metric, table, amount)
    if outcome.dropped and _is_final(outcome):
        _count(Counter.DROPPED_ROWS, table, outcome.dropped)
    dirty = _dirty_after(outcome)
    if dirty is not None:
        set_gauge(Gauge.DIRTY_PARTITIONS, table, dirty)


def emit_waiting(table: TableIdentifier, waited: timedelta) -> None:
    """Emit the time that a refresh was deferred."""
    _time(Timer.WAITING, table, waited)


def set_gauge(metric: Gauge, table: TableIdentifier, value: float) -> None:
    """Set a gauge of a table."""
    name, tags = _named(metric, table)
    Stats.gauge(name, value, tags=tags)


def _count(metric: Counter, table: TableIdentifier, amount: int, more: Mapping[str, str] = MappingProxyType({})) -> None:
    name, tags = _named(metric, table, more)
    Stats.incr(name, amount, tags=tags)


def _time(metric: Timer, table: TableIdentifier, duration: timedelta, more: Mapping[str, str] = MappingProxyType({})) -> None:
    name, tags = _named(metric, table, more)
    Stats.timing(name, duration, tags=tags)


def _is_final(outcome: WriteOutcome) -> bool:
    """Return whether dropped rows stay dropped: with a version, or as all rows of a batch of a stream."""
    is_empty_batch = outcome.reason is not None and outcome.reason.code is ReasonCode.NOTHING_TO_REFRESH
    return outcome.ending is Ending.COMMITTED or (outcome.ending is Ending.SKIPPED and is_empty_batch)


def _dirty_after(outcome: WriteOutcome) -> int | None:
    """Return the number of partitions that are known to be out of date after a refresh; ``None`` if it is unknown."""
    if outcome.left is None or outcome.ending is Ending.UNKNOWN:
        return None
    if outcome.ending in (Ending.COMMITTED, Ending.SKIPPED):
        return outcome.left
    return None if outcome.partitions.is_whole else outcome.left + len(outcome.partitions)


def _named(metric: StrEnum, table: TableIdentifier, more: Mapping[str, str] = MappingProxyType({})) -> tuple[str, dict[str, str]]:
    """Return the name and the tags under which a metric is sent.

    :param more: the tags besides that of the table.
    """
    if _has_tags():
        return metric.value, {"table": str(table), **more}
    # Unique, and valid in names.
    of_table = table.workflow_id.removeprefix("dynamic_table__").replace(".", "__")
    return ".".join((metric.value, of_table, *more.values())), {}


def _has_tags() -> bool:
    """Return whether Airflow's client sends tags, in the order in which Airflow chooses its client."""
    if _is_on("statsd_datadog_enabled") or not _is_on("statsd_on"):
        return True
    return _is_on("statsd_influxdb_enabled")


def _is_on(option: str) -> bool:
    return bool(conf.getboolean("metrics", option, fallback=False))
