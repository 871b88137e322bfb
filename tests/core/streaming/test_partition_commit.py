"""Partition commit: when a partition is complete, by Flink's two triggers."""
# ruff: noqa: DTZ001 - times on the wall have no zone

from datetime import UTC, datetime, timedelta

import pytest

from airflow_dynamic_tables.core.streaming.partition_commits import (
    CommitPolicy,
    CommitTrigger,
    PartitionCommit,
    commit_problems,
    read_partition_commit,
)

NOW = datetime(2021, 3, 19, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEN = datetime(2021, 3, 19, 10)


@pytest.mark.parametrize(
    ("delay", "age", "due"),
    [
        (timedelta(), timedelta(), True),
        (timedelta(), -HOUR, True),
        (HOUR, HOUR, False),
        (HOUR, HOUR + timedelta(seconds=1), True),
    ],
)
def test_process_time_counts_from_the_first_commit(delay: timedelta, age: timedelta, due: bool) -> None:
    assert PartitionCommit(delay=delay).is_due(NOW - age, NOW) is due


@pytest.mark.parametrize(
    ("delay", "watermark", "zone", "timezone", "passed"),
    [
        (timedelta(), None, None, "UTC", False),
        (timedelta(), TEN, None, "UTC", False),
        (timedelta(), TEN + HOUR, None, "UTC", True),
        (HOUR, TEN + HOUR, None, "UTC", False),
        (HOUR, TEN + 2 * HOUR, None, "UTC", True),
        # 10:00 in UTC is 11:00 in Berlin, where the watermark is.
        (timedelta(), TEN + HOUR, "UTC", "Europe/Berlin", False),
        (timedelta(), TEN + 2 * HOUR, "UTC", "Europe/Berlin", True),
        (timedelta(), TEN + HOUR, None, "Europe/Berlin", True),
    ],
)
def test_partition_time_waits_for_the_watermark(
    delay: timedelta, watermark: datetime | None, zone: str | None, timezone: str, passed: bool
) -> None:
    commit = PartitionCommit(CommitTrigger.PARTITION_TIME, delay, zone)
    assert commit.is_passed(TEN, watermark, timezone) is passed


def test_options_of_a_table() -> None:
    options = {
        "sink.partition-commit.trigger": "partition-time",
        "sink.partition-commit.delay": "1 h",
        "sink.partition-commit.policy.kind": "Custom, SUCCESS-FILE,custom",
        "sink.partition-commit.policy.class": "company.lake:Policy",
        "sink.partition-commit.success-file.name": "_DONE",
        "sink.partition-commit.watermark-time-zone": "Europe/Berlin",
    }
    assert list(commit_problems(options, is_continuous=True, has_times=True, has_watermark=True, table_format="parquet")) == []
    policies = (CommitPolicy.CUSTOM, CommitPolicy.SUCCESS_FILE)
    assert read_partition_commit(options) == PartitionCommit(
        CommitTrigger.PARTITION_TIME, HOUR, "Europe/Berlin", policies, "company.lake:Policy", "_DONE"
    )
    assert read_partition_commit({"x": "y"}) is None
    assert read_partition_commit({"sink.partition-commit.delay": "0 s"}) == PartitionCommit()
