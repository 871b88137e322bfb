"""What has to be there before a refresh: names with times in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import AwaitedData
from airflow_dynamic_tables.core.schedule import Freshness

EVENTS = TableIdentifier("lake", "raw", "events")


def due(text: str, freshness: str, time: datetime, timezone: str = "UTC") -> list[str]:
    data = AwaitedData(text, EVENTS).due(time, Freshness.parse(freshness), timezone)
    assert {each.source for each in data} == {EVENTS}
    return [each.text for each in data]


MIDNIGHT = datetime(2024, 3, 1, tzinfo=UTC)


def test_times_are_those_of_the_partitions_that_are_due() -> None:
    assert due("ds={yyyy-MM-dd}", "1 day", MIDNIGHT) == ["ds=2024-02-29"]
    assert due("ds={yyyy-MM-dd}", "2 days", MIDNIGHT) == ["ds=2024-02-28", "ds=2024-02-29"]
    assert due("a\\{yyyyMMdd}/{HH}/{yyyyMMdd}", "2 hours", MIDNIGHT) == [r"a\20240229/22/20240229", r"a\20240229/23/20240229"]
    assert due("ds={yyyy-MM-dd}", "1 hour", datetime(2024, 3, 1, 22, 30, tzinfo=UTC), "Asia/Tokyo") == ["ds=2024-03-02"]


def test_a_name_without_a_time_is_the_same_every_day() -> None:
    assert due("ds=latest", "1 day", MIDNIGHT) == ["ds=latest"]


@pytest.mark.parametrize("text", ["ds={yyyy-MM-dd}/hh={HH}", "ds=now", "ds={yyyy}"])
def test_what_can_be_looked_for(text: str) -> None:
    AwaitedData(text, EVENTS).check()
