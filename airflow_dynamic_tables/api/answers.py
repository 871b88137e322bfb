"""What is answered: models with examples, made of the values of services by the names of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT

TABLE = "lake.sales.daily_revenue"
TIME = "2024-01-02T00:00:00Z"


class Answer(BaseModel):
    """What all answers have in common: fields in camel case, and examples."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)

    @classmethod
    def every(cls) -> Iterator[type[Answer]]:
        """All answers that there are."""
        for one in cls.__subclasses__():
            yield one
            yield from one.every()


def examples(*values: Mapping[str, Any]) -> ConfigDict:
    """The examples of an answer."""
    return ConfigDict(json_schema_extra={"examples": [dict(value) for value in values]})


_GLANCE: dict[str, Any] = {
    "identifier": TABLE,
    "defined": True,
    "format": DEFAULT_FORMAT,
    "refreshMode": "FULL",
    "freshness": "1 day",
    "freshnessSeconds": 86400,
    "jobState": "RUNNING",
    "suspendedBecause": None,
    "version": 7,
    "dataTimestamp": TIME,
    "freshUntil": TIME,
    "lagSeconds": 3600,
    "allowedLagSeconds": 172800,
    "late": False,
    "watermark": None,
    "missingPartitions": 0,
    "missing": None,
    "problem": None,
    "behind": [{"table": "lake.sales.orders", "version": 3, "read": 2}],
    "lastRefresh": "SUCCEEDED",
    "lastError": None,
    "workflowId": "dynamic_table__lake__sales__daily_revenue",
    "dagPaused": False,
}


class NewerParentAnswer(Answer):
    """A dynamic table that has a newer version than the one that a table read."""

    model_config = examples({"table": "lake.sales.orders", "version": 3, "read": 2})

    table: str
    version: int
    read: int | None = Field(description="The number of the version that was read; null: it is not known.")


class TableGlance(Answer):
    """One dynamic table at a glance; what nobody knows is null."""

    model_config = examples(_GLANCE)

    identifier: str
    defined: bool | None = Field(description="Whether the definitions have it; null: the server cannot tell.")
    format: str
    refresh_mode: str
    freshness: str
    freshness_seconds: int | None
    job_state: str | None = Field(
        description="INITIALIZING before the first refresh, RUNNING when refreshes are enabled, whether or not one runs now, or "
        "SUSPENDED; null: its catalog does not have it yet."
    )
    suspended_because: str | None = Field(description="Why it is suspended, as far as somebody said.")
    version: int | None
    data_timestamp: datetime | None
    fresh_until: datetime | None
    lag_seconds: int | None
    allowed_lag_seconds: int | None
    late: bool | None
    watermark: datetime | None = Field(description="Up to when all partitions of its sources are there; null: they have none.")
    missing_partitions: int = Field(description="How many partitions of ticks that failed or never ran it lacks.")
    missing: str | None = Field(description="Which ones: the first and the last, or a few.")
    problem: str | None = Field(description="Why it is not known how fresh it is.")
    behind: list[NewerParentAnswer] = Field(
        description="The dynamic tables that have a newer version than its current one read; only those that the caller may see."
    )
    last_refresh: str | None
    last_error: str | None
    workflow_id: str
    dag_paused: bool | None = Field(
        default=None, description="Whether its DAG is paused; null: Airflow was not asked, as for lists, or does not say."
    )


class TablePage(Answer):
    """Some tables, in order of their names."""

    model_config = examples({"tables": [_GLANCE], "next": TABLE}, {"tables": [], "next": None})

    tables: list[TableGlance]
    next: str | None = Field(description="Where the next page begins: send it as `after`. Null: this was the last one.")


class ColumnAnswer(Answer):
    """A column, its type in Spark's words."""

    model_config = examples({"name": "revenue", "type": "decimal(18,2)", "comment": None})

    name: str
    type: str
    comment: str | None = None


class TableAnswer(TableGlance):
    """One dynamic table as it is, looked at itself; without a version it has no columns yet."""

    model_config = examples(
        {
            **_GLANCE,
            "comment": "Revenue per day",
            "columns": [{"name": "ds", "type": "string", "comment": None}],
            "partitionKeys": ["ds"],
            "query": "SELECT ds, sum(amount) AS revenue FROM raw.orders GROUP BY ds",
        }
    )

    comment: str | None = None
    columns: list[ColumnAnswer] = []
    partition_keys: list[str] = []
    query: str | None = None


class RefreshAnswer(Answer):
    """One line of the history."""

    model_config = examples(
        {
            "token": "3f1d6a5e-1c1b-4b1c-9d5e-0a4c8a1f7f11",
            "action": "PARTITIONS",
            "reason": "scheduled for 2024-01-02T00:00:00+00:00: ds=2024-01-01",
            "state": "SUCCEEDED",
            "scheduleTime": TIME,
            "startedAt": TIME,
            "finishedAt": TIME,
            "version": 7,
            "dataTimestamp": TIME,
            "partitions": [{"ds": "2024-01-01"}],
            "rows": 12,
            "bytes": 4096,
            "files": 1,
            "seconds": {"spark": 4.2},
            "sources": {"lake.raw.orders": "8271638172636"},
            "error": None,
        }
    )

    token: str
    action: str
    reason: str
    state: str
    schedule_time: datetime
    started_at: datetime
    finished_at: datetime | None
    version: int | None
    data_timestamp: datetime | None
    partitions: list[dict[str, str | None]] | None = Field(description="Null: the whole table.")
    rows: int | None
    bytes: int | None
    files: int | None
    seconds: dict[str, float]
    sources: dict[str, str]
    error: str | None


class HistoryAnswer(Answer):
    """The latest refreshes of a table, newest first."""

    model_config = examples({"refreshes": []})

    refreshes: list[RefreshAnswer]


class VersionAnswer(Answer):
    """What a commit produced."""

    model_config = examples(
        {
            "number": 7,
            "token": "3f1d6a5e-1c1b-4b1c-9d5e-0a4c8a1f7f11",
            "snapshot": "8271638172636",
            "dataTimestamp": TIME,
            "committedAt": TIME,
            "sources": {"lake.raw.orders": "8271638172636"},
        }
    )

    number: int
    token: str
    snapshot: str
    data_timestamp: datetime | None
    committed_at: datetime
    sources: dict[str, str]


class VersionsAnswer(Answer):
    """The kept versions of a table, newest first."""

    model_config = examples({"versions": []})

    versions: list[VersionAnswer]


class LineageAnswer(Answer):
    """What a table reads and what reads it: directly, and at all. Tables that the caller may not look at are left out."""

    model_config = examples(
        {
            "identifier": TABLE,
            "upstream": ["lake.raw.orders"],
            "downstream": ["lake.sales.monthly_revenue"],
            "ancestors": ["lake.raw.orders"],
            "descendants": ["lake.sales.monthly_revenue"],
        }
    )

    identifier: str
    upstream: list[str]
    downstream: list[str]
    ancestors: list[str]
    descendants: list[str]


class PlanAnswer(Answer):
    """What a scheduled refresh would do at a time."""

    model_config = examples(
        {
            "identifier": TABLE,
            "freshnessSeconds": 86400,
            "refreshMode": "FULL",
            "reason": "declared",
            "cron": "0 0 * * *",
            "timezone": "UTC",
            "scheduleTime": TIME,
            "partitions": [{"ds": "2024-01-01"}],
            "upstream": ["lake.raw.orders"],
            "statement": "SELECT * FROM (\nSELECT ds FROM raw.orders\n)\nWHERE ds = '2024-01-01'",
            "atomicity": "staged",
            "unchanged": "skipped",
            "catchUp": [{"ds": "2023-12-31"}],
            "catchUpReason": "it makes up for ds=2023-12-31",
        }
    )

    identifier: str
    freshness_seconds: int
    refresh_mode: str
    reason: str
    cron: str | None
    timezone: str
    schedule_time: datetime
    partitions: list[dict[str, str | None]] = Field(description="Empty: the whole table.")
    upstream: list[str]
    statement: str
    atomicity: str
    unchanged: str
    catch_up: list[dict[str, str | None]] | None = Field(
        description="Partitions of missed ticks that its first commit makes beside. Empty: the whole table; null: none."
    )
    catch_up_reason: str | None


class StateAnswer(Answer):
    """What became of a table that was suspended or resumed."""

    model_config = examples({"identifier": TABLE, "before": "RUNNING", "now": "SUSPENDED", "reason": "", "workflow": ""})

    identifier: str
    before: str
    now: str
    reason: str = Field(default="", description="Why it is suspended now.")
    workflow: str = Field(default="", description="What its scheduler made of that; empty: it was not asked.")


class DropAnswer(Answer):
    """What became of a table that was to be dropped."""

    model_config = examples({"identifier": TABLE, "dropped": True, "location": "/warehouse/sales/daily", "deletedFiles": 0})

    identifier: str
    dropped: bool = Field(description="False: it was not there.")
    location: str | None = Field(default=None, description="Where its files stay, if it had any.")
    deleted_files: int = Field(default=0, description="How many of its files were deleted.")
