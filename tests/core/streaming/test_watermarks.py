"""How far a source has come once a partition is read, on the wall and by the calendar."""
# ruff: noqa: DTZ001 - times on the wall have no zone

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from airflow_dynamic_tables.core.streaming.partition_commits import to_publish
from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionWatermark, SeenPartition

DAYS = {"ds": "yyyy-MM-dd"}


@pytest.mark.parametrize(
    ("start", "months", "end"),
    [
        (datetime(2024, 2, 1), 1, datetime(2024, 3, 1)),
        (datetime(2023, 12, 1), 1, datetime(2024, 1, 1)),
        (datetime(2024, 1, 1), 3, datetime(2024, 4, 1)),
        (datetime(2024, 1, 1), 12, datetime(2025, 1, 1)),
        (datetime(2024, 1, 31, 6), 1, datetime(2024, 2, 29, 6)),
        (datetime(2024, 2, 29), 12, datetime(2025, 2, 28)),
    ],
)
def test_months_are_those_of_the_calendar(start: datetime, months: int, end: datetime) -> None:
    assert PartitionWatermark(timedelta(), months=months).end_of(start) == end


def test_no_calendar_has_a_month_after_the_last_one() -> None:
    with pytest.raises(OverflowError):
        PartitionWatermark(timedelta(), months=1).end_of(datetime(9999, 12, 1))


def test_a_month_of_the_source_publishes_its_days_and_no_other() -> None:
    watermark = PartitionWatermark(timedelta(), months=1)
    months = [SeenPartition(start.strftime("m=%Y-%m"), start, watermark.end_of(start)) for start in (datetime(2024, 2, 1),)]
    published = [str(spec["ds"]) for spec in to_publish(months, None, datetime(2024, 3, 1), DAYS)]
    assert published == [f"2024-02-{day:02}" for day in range(1, 30)]
    assert to_publish(months, None, datetime(2024, 2, 29), DAYS) != to_publish(months, None, datetime(2024, 3, 1), DAYS)
