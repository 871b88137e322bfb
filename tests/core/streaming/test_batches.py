"""Which partitions are read next, and which of the table are published: Flink's cases, each by its order."""
# ruff: noqa: DTZ001 - times on the wall have no zone

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.streaming.partition_commits import partitions_of, read_after, to_publish
from airflow_dynamic_tables.core.streaming.source_watermarks import (
    PartitionOrder,
    PartitionWatermark,
    SeenPartition,
    TimeExtractor,
    choose,
    reached_by,
)

DAY = datetime(2021, 3, 19)
KEYS = ("pt_day", "pt_hour")
HOURLY = {"ds": "yyyy-MM-dd", "hh": "HH"}
DAILY = {"ds": "yyyy-MM-dd"}
EXTRACTOR = TimeExtractor("$pt_day $pt_hour:00:00")
WATERMARK = PartitionWatermark(timedelta(hours=1), EXTRACTOR, order=PartitionOrder.TIME)


def time_of(spec: Mapping[str, str]) -> datetime:
    return EXTRACTOR.time_of(spec, KEYS)


def hour(number: int, fingerprint: str = "f", obstacle: str | None = None, created: int | None = None) -> SeenPartition:
    start = DAY + timedelta(hours=number)
    name = describe({"pt_day": f"{start:%Y-%m-%d}", "pt_hour": f"{start:%H}"})
    created_at = None if created is None else datetime(2021, 3, 19, created, tzinfo=UTC)
    return SeenPartition(name, start, start + timedelta(hours=1), fingerprint, created_at, obstacle)


class Table:
    """What a table over that source publishes, turn by turn."""

    def __init__(self, formatters: Mapping[str, str] = HOURLY, watermark: PartitionWatermark = WATERMARK) -> None:
        self.formatters = formatters
        self.watermark = watermark
        self.read: dict[str, str] = {}
        self.late: list[str] = []

    def turn(self, *seen: SeenPartition) -> list[str]:
        """One turn; the partitions that it publishes."""
        reached = reached_by(self.read, time_of, self.watermark)
        batch = choose(seen, self.read, self.watermark, reached)
        if batch.rewritten is not None:
            return []
        published = to_publish(batch.taken, reached, batch.watermark, self.formatters)
        if not published.is_empty:
            self.late += [one.name[-2:] for one in batch.late]
            self.read = read_after(batch, self.read, published, self.formatters)
        return [str(describe(spec)) for spec in published]


def hours(*numbers: int) -> list[str]:
    return [f"ds=2021-03-19/hh={number:02}" for number in numbers]


def test_a_window_is_published_when_its_partition_is_whole_not_when_the_next_one_comes() -> None:
    table = Table()
    assert table.turn(hour(10, obstacle="no _SUCCESS")) == []
    assert table.turn(hour(10)) == hours(10)
    assert table.turn(hour(10)) == []
    assert table.turn(hour(10), hour(11, obstacle="no _SUCCESS")) == []
    assert table.turn(hour(10), hour(11)) == hours(11)


def test_partitions_are_published_in_order() -> None:
    assert Table().turn(hour(12), hour(10), hour(11)) == hours(10, 11, 12)


def test_one_that_is_not_whole_holds_back_those_behind_it() -> None:
    table = Table()
    assert table.turn(hour(10), hour(11, obstacle="no _SUCCESS"), hour(12)) == hours(10)
    assert table.turn(hour(10), hour(11), hour(12)) == hours(11, 12)
    assert table.late == []


def test_one_that_never_comes_is_closed_empty_by_the_next_one() -> None:
    table = Table()
    assert table.turn(hour(10)) == hours(10)
    assert table.turn(hour(10), hour(12)) == hours(11, 12)


def test_one_that_comes_after_its_time_is_late_and_holds_nothing_back() -> None:
    table = Table()
    table.turn(hour(10), hour(12))
    assert table.turn(hour(10), hour(11, obstacle="no _SUCCESS"), hour(12), hour(13)) == hours(13)
    assert table.turn(hour(10), hour(11), hour(12), hour(13)) == hours(11)
    assert table.late == ["11"]


def test_a_late_file_makes_its_window_anew_and_no_other() -> None:
    table = Table()
    table.turn(hour(10), hour(11))
    assert table.turn(hour(10, "more"), hour(11)) == hours(10)
    assert table.turn(hour(10, "more"), hour(11)) == []
    assert table.late == ["10"]


def test_one_that_is_written_anew_is_not_read_by_half() -> None:
    table = Table()
    table.turn(hour(10))
    assert table.turn(hour(10, "half", obstacle="changed 3 s ago"), hour(11)) == []
    assert table.turn(hour(10, "anew"), hour(11)) == hours(10, 11)


def test_a_marker_that_is_taken_away_changes_nothing() -> None:
    table = Table()
    table.turn(hour(10))
    assert table.turn(hour(10, obstacle="no _SUCCESS"), hour(11)) == hours(11)


def test_one_that_is_gone_keeps_its_rows_and_the_watermark() -> None:
    table = Table()
    table.turn(hour(10), hour(11))
    assert table.turn(hour(11)) == []
    assert table.turn(hour(11), hour(12)) == hours(12)
    assert table.turn(hour(10), hour(11), hour(12)) == []


def test_a_day_waits_for_all_its_hours() -> None:
    table = Table(DAILY)
    assert table.turn(*map(hour, range(23))) == []
    assert table.turn(*map(hour, range(24))) == ["ds=2021-03-19"]
    assert table.turn(*map(hour, range(25))) == []
    assert table.turn(hour(3, "more"), *(hour(number) for number in range(25) if number != 3)) == ["ds=2021-03-19"]
    assert table.late == ["03"]


def test_a_day_of_the_source_is_all_its_hours() -> None:
    day = SeenPartition("pt_day=2021-03-19/pt_hour=00", DAY, DAY + timedelta(days=1))
    assert Table().turn(day) == hours(*range(24))


def test_a_table_without_time_partitions_is_made_anew_by_every_new_one() -> None:
    table = Table({})
    assert table.turn(hour(10)) == [""]
    assert table.turn(hour(10)) == []
    assert table.turn(hour(10), hour(11)) == [""]
    assert table.turn(hour(11)) == []


def test_a_year_of_hours_is_chosen_from_at_once() -> None:
    year = [hour(number) for number in range(9_000)]
    began = time.process_time()
    table = Table()
    assert len(table.turn(*year)) == 9_000
    assert table.turn(*year[:5_000], hour(5_000, "late"), *year[5_001:]) == hours_of(5_000)
    assert time.process_time() - began < 20  # two when measured; with a list in the place of a set, minutes


def hours_of(number: int) -> list[str]:
    return [f"{DAY + timedelta(hours=number):ds=%Y-%m-%d/hh=%H}"]


def test_keys_that_are_numbers_have_no_leading_zeros() -> None:
    batch = choose([hour(9)], {}, WATERMARK, None)
    published = PartitionSet.of([{"ds": "2021-03-19", "hh": "9"}])  # as a column of type int spells it
    assert read_after(batch, {}, published, HOURLY) == {"pt_day=2021-03-19/pt_hour=09": "f"}


def test_order_of_making_and_first_one_to_read() -> None:
    created = PartitionWatermark(timedelta(hours=1), EXTRACTOR, order=PartitionOrder.CREATED)
    batch = choose([hour(10, created=12), hour(11, created=11)], {}, created, None)
    assert [one.name[-2:] for one in batch.taken] == ["11", "10"]
    for order, start in (
        (PartitionOrder.NAME, "pt_day=2021-03-19/pt_hour=11"),
        (PartitionOrder.TIME, "2021-03-19 11:00:00"),
        (PartitionOrder.CREATED, "2021-03-19 11:00:00"),
    ):
        watermark = PartitionWatermark(timedelta(hours=1), EXTRACTOR, order=order, start=start)
        batch = choose([hour(10, created=10), hour(11, created=11)], {}, watermark, None)
        assert [one.name[-2:] for one in batch.taken] == ["11"]


@pytest.mark.parametrize(
    ("order", "made", "published"),
    [
        pytest.param(PartitionOrder.NAME, {9: 8, 10: 9}, [[], hours(9, 10)], id="10 stands before 9"),
        pytest.param(PartitionOrder.TIME, {9: 9, 10: 8}, [hours(9), hours(10)], id="by time"),
        pytest.param(PartitionOrder.CREATED, {9: 8, 10: 9}, [hours(9), hours(10)], id="made in order"),
        pytest.param(PartitionOrder.CREATED, {9: 9, 10: 8}, [[], hours(9, 10)], id="made the other way round"),
    ],
)
def test_by_each_order_what_is_not_whole_holds_back_what_comes_behind_it(
    order: PartitionOrder, made: Mapping[int, int], published: list[list[str]]
) -> None:
    nine, ten = (replace(hour(number, created=made[number]), name=f"pt_day=2021-03-19/pt_hour={number}") for number in (9, 10))
    table = Table(watermark=PartitionWatermark(timedelta(hours=1), EXTRACTOR, order=order))
    assert [table.turn(nine, replace(ten, obstacle="no _SUCCESS")), table.turn(nine, ten), table.turn(nine, ten)] == [
        *published,
        [],
    ]
    assert table.late == []


def test_a_mistyped_year_moves_no_watermark() -> None:
    ahead = SeenPartition("pt_day=9021-03-19/pt_hour=10", datetime(9021, 3, 19, 10), datetime(9021, 3, 19, 11), is_ahead=True)
    table = Table()
    assert table.turn(hour(10), ahead) == hours(10)
    assert table.turn(hour(10), hour(11), ahead) == hours(11)


def test_no_hour_is_lost_or_doubled_where_clocks_are_changed() -> None:
    """Autumn's double hour is one partition; spring's hour that is missing is closed, empty, by the next one."""
    autumn = datetime(2024, 10, 27)
    table = Table()
    turns = [table.turn(*(replaced(autumn, number) for number in range(last + 1))) for last in range(1, 5)]
    assert turns == [[f"ds=2024-10-27/hh={n:02}" for n in more] for more in ([0, 1], [2], [3], [4])]
    spring = datetime(2024, 3, 31)
    table = Table()
    assert table.turn(replaced(spring, 1)) == ["ds=2024-03-31/hh=01"]
    assert table.turn(replaced(spring, 1), replaced(spring, 3)) == ["ds=2024-03-31/hh=02", "ds=2024-03-31/hh=03"]


def replaced(day: datetime, number: int) -> SeenPartition:
    start = day + timedelta(hours=number)
    return SeenPartition(f"pt_day={start:%Y-%m-%d}/pt_hour={start:%H}", start, start + timedelta(hours=1))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 30), st.tuples(st.sampled_from("abc"), st.booleans()), max_size=6), min_size=1, max_size=10
    ),
    st.sampled_from([HOURLY, DAILY, {}]),
)
def test_the_end_is_the_query_over_all_whole_partitions(
    schedule: list[dict[int, tuple[str, bool]]], formatters: Mapping[str, str]
) -> None:
    """Late, empty, rewritten and missing partitions, in whatever order: every row once, and none of what is not whole."""
    table = Table(formatters)
    there: dict[int, SeenPartition] = {}
    rows: dict[str, dict[str, str]] = {}  # of each partition of the table: those of the source that it was made of
    for changes in schedule:
        for number, (fingerprint, whole) in changes.items():
            there[number] = hour(number, fingerprint, None if whole else "no _SUCCESS")
        publish(table, there, rows)
    for number, one in there.items():
        there[number] = hour(number, one.fingerprint)
    there[31] = hour(31)
    there[48] = hour(48)  # closes the second day
    publish(table, there, rows)
    publish(table, there, rows)
    expected: dict[str, dict[str, str]] = {}
    for one in there.values():
        for name in names_of(one, formatters):
            if formatters != DAILY or one.start < DAY + timedelta(days=2):
                expected.setdefault(name, {})[one.name] = one.fingerprint
    assert {name: content for name, content in rows.items() if content} == expected


def names_of(one: SeenPartition, formatters: Mapping[str, str]) -> list[str]:
    return [describe(spec) for spec in partitions_of(one, formatters)]


def publish(table: Table, there: Mapping[int, SeenPartition], rows: dict[str, dict[str, str]]) -> None:
    """What a refresh of the published partitions does: exactly they are replaced, by what is read."""
    before = dict(table.read)
    published = table.turn(*there.values())
    reached = reached_by(before, time_of, WATERMARK)
    readable = choose(there.values(), before, WATERMARK, reached).readable
    for name in published:
        rows[name] = {one.name: one.fingerprint for one in readable if name in names_of(one, table.formatters)}
