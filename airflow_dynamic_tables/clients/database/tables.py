"""The SQL tables as defined by the latest migration. All names begin with ``dt_``."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Dialect, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A timezone-aware time, stored as UTC (SQLite keeps no zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert the time to UTC.

        :raises ValueError: for a naive time.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert the time to an aware one in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData()


def _keys(*names: str) -> list[Column[str]]:
    """Columns of the key of a database, table or function."""
    return [Column(name, String(255), primary_key=True) for name in names]


databases = Table(
    "dt_databases",
    metadata,
    *_keys("catalog", "name"),
    Column("value", JSON, nullable=False),
)

catalog_tables = Table(
    "dt_tables",
    metadata,
    *_keys("catalog", "database", "name"),
    Column("kind", String(32), nullable=False),
    Column("value", JSON, nullable=False),
)

catalog_functions = Table(
    "dt_functions",
    metadata,
    *_keys("catalog", "database", "name"),
    Column("value", JSON, nullable=False),
)

catalog_partitions = Table(
    "dt_partitions",
    metadata,
    *_keys("catalog", "database", "name"),
    Column("spec", String(2048), primary_key=True),
    Column("value", JSON, nullable=False),
)
"""Partitions of tables whose format does not store its partitions."""

installation = Table("dt_installation", metadata, Column("id", String(64), primary_key=True))
"""A single row that identifies the installation. In a copied database the row is deleted, so that a new id is created."""

table_locks = Table("dt_table_locks", metadata, Column("table_name", String(767), primary_key=True))
"""One row per table, locked while its stages are opened, because overlapping partition sets cannot be a unique key."""

stages = Table(
    "dt_stages",
    metadata,
    Column("token", String(255), primary_key=True),
    Column("table_name", String(767), nullable=False),
    Column("location", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("format", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("partitions", JSON, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("lease_until", UtcDateTime, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("creates", String(767)),
    Column("search", Integer),
    Index("dt_stages_table_state", "table_name", "state"),
    Index("dt_stages_table_ordinal", "table_name", "ordinal"),
    Index("dt_stages_state", "state"),
)

refreshes = Table(
    "dt_refreshes",
    metadata,
    Column("token", String(255), primary_key=True),
    Column("table_name", String(767), nullable=False),
    Column("action", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    Column("reason_code", String(32)),
    Column("state", String(16), nullable=False),
    Column("schedule_time", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("data_timestamp", UtcDateTime),
    Column("version", Integer),
    Column("snapshot", String(64)),
    Column("partitions", JSON, nullable=False),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("seconds", JSON, nullable=False),
    Column("sources", JSON, nullable=False),
    Column("application_id", String(255)),
    Column("error", Text),
    Column("expectations", JSON),
    Column("report", String(16)),
    Column("recipe", String(64)),
    Column("unbroken", Boolean),
    Column("complete_until", UtcDateTime),
    Column("watermark", UtcDateTime),
    Column("restores", Integer),
    Column("source_bytes", BigInteger),
    Column("occurrences", Integer, nullable=False, server_default="1"),
    Column("referenced", JSON, nullable=False, server_default="{}"),
    Index("dt_refreshes_table_started", "table_name", "started_at"),
    Index("dt_refreshes_table_schedule", "table_name", "schedule_time", "started_at"),
    Index("dt_refreshes_started", "started_at"),
    Index("dt_refreshes_report", "report", "finished_at"),
)

source_states = Table(
    "dt_source_states",
    metadata,
    Column("token", String(255), primary_key=True),
    Column("source", String(767), primary_key=True),
    Column("table_name", String(767), nullable=False),
    Column("version", Text, nullable=False),
    Column("identity", Text),
    Column("location", Text),
    Column("schema", Text),
    Column("reading", Integer),
    Index("dt_source_states_reading", "table_name", "source", "reading"),
)
"""One row per source of a refresh; null means unknown. A reading is the number of a state of the source, by table and source."""

source_partitions = Table(
    "dt_source_partitions",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("source", String(767), primary_key=True),
    Column("partition", String(2048), primary_key=True),
    Column("reading", Integer, primary_key=True),
    Column("fingerprint", Text),
    Column("unsettled", Boolean, nullable=False),
)
"""One row for each reading at which a partition of a source changed; without a fingerprint, it is gone."""

made_partitions = Table(
    "dt_made_partitions",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("partition", String(2048), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("token", String(255)),
    Column("recipe", String(64)),
    Column("search", Integer),
)
"""One row per partition of a table: the refresh that made it last, or null if it is no longer as that refresh made it."""

dirty_findings = Table(
    "dt_dirty_findings",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("found_at", UtcDateTime, nullable=False),
    Column("partitions", JSON),
    Column("count", Integer, nullable=False),
    Column("before", String(32)),
)
"""One row per table whose partitions were compared with its sources: the dirty ones that the last search found."""

published_partitions = Table(
    "dt_published_partitions",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("partition", String(767), primary_key=True),
    Column("token", String(255), nullable=False),
    Column("published_at", UtcDateTime, nullable=False),
    Column("done", String(255)),
    Column("offered", String(255)),
    Column("told", String(255)),
)
"""One row per time partition of a table that notifies its consumers of complete partitions."""

jobs = Table(
    "dt_jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("caller", String(255), nullable=False),
    Column("accepted_at", UtcDateTime, nullable=False),
    Column("lease_until", UtcDateTime, nullable=False),
    Column("wish", JSON, nullable=False),
    Column("idempotency_key", String(255)),
    Column("digest", String(64), nullable=False),
    Index("dt_jobs_caller_key", "caller", "idempotency_key", unique=True),
    Index("dt_jobs_accepted", "accepted_at", "id"),
)
"""Refreshes that were requested together and run asynchronously. An idempotency key is scoped to its caller."""

job_refreshes = Table(
    "dt_job_refreshes",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("table_name", String(767), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("token", String(255)),
    Column("state", String(16), nullable=False),
    Column("cluster", JSON, nullable=False),
    Column("error", Text),
)
"""One row per table of a job."""

failed_runs = Table(
    "dt_failed_runs",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("run", String(767), primary_key=True),
    Column("noted_at", UtcDateTime, nullable=False),
    Column("counts", Boolean, nullable=False),
)
"""One row per scheduled run of a table that failed finally; it counts until a refresh of the table succeeds."""

watched_tables = Table(
    "dt_watched_tables",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("since", UtcDateTime, nullable=False),
    Column("checked_at", UtcDateTime),
    Column("late_from", UtcDateTime),
)
"""One row per table whose freshness is watched, with its last check."""

late_periods = Table(
    "dt_late_periods",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("since", UtcDateTime, primary_key=True),
    Column("until", UtcDateTime, nullable=False),
    Column("is_certain", Boolean, nullable=False),
)
"""One row per period of the last days in which a watched table was late, or may have been."""

late_notices = Table(
    "dt_late_notices",
    metadata,
    Column("table_name", String(767), primary_key=True),
    Column("callback", String(64), primary_key=True),
    Column("claimed_until", UtcDateTime, nullable=False),
    Column("notified_at", UtcDateTime),
)
"""One row per late table and callback; it is deleted when the table is fresh again."""
