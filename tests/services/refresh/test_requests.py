"""What a request may ask for, and how people write it."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.schedule import parse_schedule_time
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


@pytest.mark.parametrize(
    ("text", "formatters", "found"),
    [
        ("ds=2024-02-28..ds=2024-03-01", {"ds": "yyyy-MM-dd"}, ["ds=2024-02-28", "ds=2024-02-29", "ds=2024-03-01"]),
        ("ds=2024-02-28..ds=2024-02-28", {"ds": "yyyy-MM-dd"}, ["ds=2024-02-28"]),
        ("m=2024-11..m=2025-01", {"m": "yyyy-MM"}, ["m=2024-11", "m=2024-12", "m=2025-01"]),
        (
            "ds=2024-01-01/hh=22..ds=2024-01-02/hh=01",
            {"ds": "yyyy-MM-dd", "hh": "HH"},
            ["ds=2024-01-01/hh=22", "ds=2024-01-01/hh=23", "ds=2024-01-02/hh=00", "ds=2024-01-02/hh=01"],
        ),
        ("c=de/ds=2024-01-01..c=de/ds=2024-01-02", {"ds": "yyyy-MM-dd"}, ["c=de/ds=2024-01-01", "c=de/ds=2024-01-02"]),
        (
            "ds=2024-01-05, ds=2024-01-01..ds=2024-01-02",
            {"ds": "yyyy-MM-dd"},
            ["ds=2024-01-05", "ds=2024-01-01", "ds=2024-01-02"],
        ),
        ("path=a..b", {}, ["path=a..b"]),
        ("path=a../x=1", {}, ["path=a../x=1"]),
    ],
)
def test_ranges_are_both_ends_and_what_lies_between(text: str, formatters: dict[str, str], found: list[str]) -> None:
    assert [describe(spec) for spec in parse_partitions(text, formatters)] == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ds=2024-01-31..ds=2024-01-01", "the range ends before it begins: ds=2024-01-31..ds=2024-01-01"),
        ("ds=2024-01-01..ds=2024-01-02..ds=2024-01-03", "a range has two ends"),
        ("ds=2024-01-01..ds=2024-02-30", "ds=2024-02-30 is no date as 'yyyy-MM-dd' writes it"),
        ("ds=2024-01-01..c=de", "the same keys at both ends, not ds and c"),
        ("ds=2024-01-01/c=de..ds=2024-01-02/c=fr", "no date formatter says what lies between c=de and c=fr"),
        ("c=de..c=de", "a range needs 'ds', too"),
        ("ds=0200-01-01..ds=9800-01-01", "more than the 10,000 partitions that one refresh takes"),
    ],
)
def test_ranges_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_partitions(text, {"ds": "yyyy-MM-dd"})
