"""What a request may ask for, and how people write it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.schedule.wall_clock import parse_schedule_time
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    asked_time,
    in_time_zone,
    latest_schedule_time,
    parse_partitions,
)

DAY = datetime(2024, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> DynamicTable:
    (tmp_path / "tables.yaml").write_text(
        "dynamic_tables:\n- {name: t, freshness: 1 day, timezone: Europe/Berlin, partitioned_by: [ds], "
        "query: 'SELECT 1 AS x, 2 AS ds'}\n"
    )
    (table,) = load_definitions(tmp_path / "tables.yaml").tables.values()
    return table


def test_a_request_that_cannot_be_fulfilled_is_not_made(table: DynamicTable) -> None:
    request = RefreshRequest(table, {}, DAY, "t1", "somebody", parse_partitions("ds=2024-01-01"))
    with pytest.raises(ConfigurationError, match="partition and full_refresh exclude each other; give one of them"):
        replace(request, full_refresh=True)
    with pytest.raises(ConfigurationError, match="partition 'hh=01' does not fit the partition keys ds"):
        replace(request, partitions=parse_partitions("hh=01"))
    with pytest.raises(ConfigurationError, match="the table is not partitioned"):
        replace(request, table=replace(table, partition_keys=()))


def test_partitions_are_written_with_commas_between() -> None:
    assert parse_partitions("ds=2024-01-01, ds=a%2Cb") == PartitionSet.of([{"ds": "2024-01-01"}, {"ds": "a,b"}])
    with pytest.raises(ValueError, match="is no partition"):
        parse_partitions("ds=2024-01-01,")


def test_a_time_without_offset_is_in_the_tables_time_zone(table: DynamicTable) -> None:
    assert in_time_zone(parse_schedule_time(" 2024-01-02 06:00:00 "), table) == datetime(
        2024, 1, 2, 6, tzinfo=timezone(timedelta(hours=1))
    )
    assert in_time_zone(parse_schedule_time("2024-01-02T12:00:00Z"), table) == DAY


def test_a_time_in_the_future_is_refused(table: DynamicTable) -> None:
    assert asked_time(DAY, table, DAY) == DAY
    assert asked_time(DAY + timedelta(minutes=59), table, DAY) == DAY + timedelta(minutes=59), "clocks differ"
    assert asked_time(parse_schedule_time("2024-01-02 13:30:00"), table, DAY) == DAY + timedelta(minutes=30)
    with pytest.raises(
        ConfigurationError, match=r"schedule_time 2034-01-02T12:00:00\+00:00 is in the future; no data is as fresh"
    ):
        asked_time(DAY.replace(year=2034), table, DAY)


def test_when_nobody_says_it_is_the_latest_tick(table: DynamicTable) -> None:
    assert latest_schedule_time(table, DAY) == datetime(2024, 1, 1, 23, tzinfo=UTC)
    assert latest_schedule_time(replace(table, cron=None), DAY) == DAY
