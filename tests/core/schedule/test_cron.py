"""Cron: derived from a freshness, checked, walked as Airflow walks it."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable
from hypothesis import given
from hypothesis import strategies as st
from pendulum import instance

from airflow_dynamic_tables.core.cron import (
    allowed_lag,
    check_cron,
    cron_for,
    late_from,
    next_tick,
    previous_tick,
    quartz_expression,
    ticks,
)
from airflow_dynamic_tables.core.schedule import Freshness
from tests.support.clock import FIVE_ZONES, ODD_ZONES, YEAR, changes, ticks_of, wall

DERIVED = {
    **{f"{n} minutes": f"*/{n} * * * *" for n in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    **{f"{n} hours": f"0 */{n} * * *" for n in (2, 3, 4, 6, 8, 12)},
    "1 minute": "* * * * *",
    "1 hour": "0 * * * *",
    "1 day": "0 0 * * *",
    "1 week": "0 0 * * 0",
    # Flink refuses these, which are the same lengths of time.
    "60 seconds": "* * * * *",
    "60 minutes": "0 * * * *",
    "24 hours": "0 0 * * *",
    "7 days": "0 0 * * 0",
}


@pytest.mark.parametrize(("freshness", "cron"), DERIVED.items())
def test_a_freshness_becomes_a_schedule(freshness: str, cron: str) -> None:
    assert cron_for(Freshness.parse(freshness)) == cron
    check_cron(cron)


NEAREST = {
    "30 seconds": "'1 minute', or",
    "100 seconds": "'1 minute' or '2 minutes', or",
    "7 minutes": "'6 minutes' or '10 minutes', or",
    "40 minutes": "'30 minutes' or '1 hour', or",
    "45 minutes": "'30 minutes' or '1 hour', or",
    "90 minutes": "'1 hour' or '2 hours', or",
    "5 hours": "'4 hours' or '6 hours', or",
    "13 hours": "'12 hours' or '1 day', or",
    "36 hours": "'1 day' or '1 week', or",
    "2 days": "'1 day' or '1 week', or",
    "30 days": "'1 week', or",
}


@pytest.mark.parametrize(("freshness", "nearest"), NEAREST.items())
def test_no_schedule_names_the_nearest(freshness: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no cron schedule ticks every .*; use {nearest} set 'schedule'"):
        cron_for(Freshness.parse(freshness))


@pytest.mark.parametrize(
    "cron",
    [
        "0 6 * * *",
        "*/7 9-17 * * mon-fri",
        "0 0 L * *",
        "0 0 29 2 *",
        "0 0 * * 5#3",
        "0 0 1,15 * *",
        "@daily",
        "@hourly",
        "@weekly",
    ],
)
def test_any_cron_of_five_fields_is_legal(cron: str) -> None:
    check_cron(cron)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("", "has 0 fields"),
        ("0 6 * *", "has 4 fields"),
        ("0 0 6 * * *", "has 6 fields; a schedule has five"),
        ("0 0 6 * * * 2024", "has 7 fields"),
        ("0 25 * * *", "is no cron expression"),
        ("a b c d e", "is no cron expression"),
        ("5-60/0 * * * *", "is no cron expression"),
        ("@reboot", "is no cron expression"),
        ("@continuous", "is no cron expression"),
        ("0 0 31 2 *", "never ticks"),
        ("H * * * *", "leaves a number to chance"),
        ("0 R(0-6) * * *", "leaves a number to chance"),
    ],
)
def test_what_is_no_cron(cron: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_cron(cron)


def airflow_ticks(cron: str, timezone: str, start: datetime, end: datetime) -> list[float]:
    """When Airflow's scheduler would start a run, one after the other, with catch-up."""
    timetable = CronTriggerTimetable(cron, timezone=timezone)
    restriction = TimeRestriction(earliest=instance(start), latest=instance(end - timedelta(seconds=1)), catchup=True)
    found: list[float] = []
    last: DataInterval | None = None
    while info := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction):
        last = info.data_interval
        found.append(info.run_after.timestamp())
    return found


def our_ticks(cron: str, timezone: str, start: datetime, end: datetime) -> list[float]:
    return [tick.timestamp() for tick in ticks(cron, timezone, start, end)]


@pytest.mark.parametrize("timezone", FIVE_ZONES)
@pytest.mark.parametrize("cron", ["0 0 * * *", "30 2 * * *", "0 0 * * 0"])
def test_airflow_ticks_the_same_all_year(cron: str, timezone: str) -> None:
    start, end = (day.replace(tzinfo=UTC) for day in YEAR)
    assert our_ticks(cron, timezone, start, end) == airflow_ticks(cron, timezone, start, end)


@pytest.mark.sampled
@pytest.mark.parametrize("timezone", [*FIVE_ZONES[:2], "Australia/Lord_Howe", *ODD_ZONES])
def test_airflow_ticks_the_same_around_every_change_of_the_clock(timezone: str) -> None:
    for day in changes(timezone):
        start, end = day - timedelta(days=1), day + timedelta(days=2)
        for cron in ("0 * * * *", "*/20 * * * *", "40 * * * *", "0 */2 * * *", "0 */3 * * *", "0,30 2 * * *", "0 0 * * *"):
            assert our_ticks(cron, timezone, start, end) == airflow_ticks(cron, timezone, start, end), (cron, day)


CHANGES_OF_BERLIN = [
    ("0 0 * * *", "2024-03-31", ["2024-03-31T00:00:00+01:00"]),
    ("30 2 * * *", "2024-03-31", ["2024-03-31T03:30:00+02:00"]),
    ("0 */2 * * *", "2024-03-31", [f"2024-03-31T{h}:00:00+{o}:00" for h, o in (("00", "01"), ("03", "02"), ("04", "02"))]),
    (
        "0 * * * *",
        "2024-03-31",
        [f"2024-03-31T{h}:00:00+{o}:00" for h, o in (("00", "01"), ("01", "01"), ("03", "02"), ("04", "02"))],
    ),
    ("30 2 * * *", "2024-10-27", ["2024-10-27T02:30:00+01:00"]),
    ("0 */2 * * *", "2024-10-27", [f"2024-10-27T{h}:00:00+{o}:00" for h, o in (("00", "02"), ("02", "01"), ("04", "01"))]),
    (
        "0 * * * *",
        "2024-10-27",
        [
            f"2024-10-27T{h}:00:00+{o}:00"
            for h, o in (("00", "02"), ("01", "02"), ("02", "02"), ("02", "01"), ("03", "01"), ("04", "01"))
        ],
    ),
]


@pytest.mark.parametrize(("cron", "day", "expected"), CHANGES_OF_BERLIN)
def test_the_mornings_on_which_berlin_changes_the_clock(cron: str, day: str, expected: list[str]) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    found = ticks(cron, "Europe/Berlin", midnight, midnight.replace(hour=4, minute=1))
    assert [tick.isoformat() for tick in found] == expected


@pytest.mark.parametrize("timezone", FIVE_ZONES)
@pytest.mark.parametrize("freshness", ["1 day", "1 week", "12 hours", "8 hours"])
def test_ticks_are_one_freshness_apart_on_the_wall(freshness: str, timezone: str) -> None:
    walls = [wall(tick) for tick in ticks_of(freshness, timezone, *YEAR)]
    assert {later - earlier for earlier, later in pairwise(walls)} == {Freshness.parse(freshness).period}


@pytest.mark.parametrize("freshness", ["5 minutes", "20 minutes", "1 hour", "4 hours"])
@pytest.mark.parametrize("timezone", ["UTC", "Asia/Kolkata"])
def test_ticks_are_one_freshness_apart(freshness: str, timezone: str) -> None:
    found = ticks_of(freshness, timezone, datetime.fromisoformat("2024-02-28"), datetime.fromisoformat("2024-03-01"))
    assert {later - earlier for earlier, later in pairwise(found)} == {Freshness.parse(freshness).period}
    assert len(found) == timedelta(days=2) / Freshness.parse(freshness).period


instants = st.integers(min_value=0, max_value=366 * 86_400).map(
    lambda second: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
)
near_changes = st.sampled_from([day for zone in (*FIVE_ZONES, *ODD_ZONES) for day in changes(zone)]).flatmap(
    lambda day: st.integers(min_value=-6 * 3_600, max_value=36 * 3_600).map(lambda second: day + timedelta(seconds=second))
)
crons = st.sampled_from(
    ["0 * * * *", "*/20 * * * *", "40 * * * *", "0 */2 * * *", "30 2 * * *", "0,30 2 * * *", "0 0 * * *", "0 0 * * 0"]
)


@given(crons, st.sampled_from(FIVE_ZONES + ODD_ZONES), instants | near_changes, st.booleans())
def test_previous_and_next_tick_enclose_any_time(cron: str, timezone: str, time: datetime, local: bool) -> None:
    time = time.astimezone(ZoneInfo(timezone)) if local else time
    before, after = previous_tick(cron, timezone, time), next_tick(cron, timezone, time)
    assert before.timestamp() <= time.timestamp() < after.timestamp()
    assert next_tick(cron, timezone, before).timestamp() == after.timestamp()
    assert previous_tick(cron, timezone, after).timestamp() == after.timestamp()
    assert our_ticks(cron, timezone, before, after.astimezone(UTC) + timedelta(seconds=1)) == [
        before.timestamp(),
        after.timestamp(),
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("timezone", [*FIVE_ZONES[:2], "Australia/Lord_Howe", "Africa/Cairo"])
@pytest.mark.parametrize("cron", ["0 * * * *", "0 */2 * * *", "0,30 2 * * *"])
def test_every_moment_of_the_days_around_a_change_has_its_ticks(cron: str, timezone: str) -> None:
    for day in changes(timezone):
        walked = list(ticks(cron, timezone, day - timedelta(days=3), day + timedelta(days=5)))
        moments = [tick.timestamp() for tick in walked]
        for minutes in range(-120, 28 * 60, 25):
            # In the zone itself, where Python compares by the wall clock.
            time = (day + timedelta(minutes=minutes)).astimezone(ZoneInfo(timezone))
            position = bisect_right(moments, time.timestamp())
            assert previous_tick(cron, timezone, time).timestamp() == moments[position - 1], time
            assert next_tick(cron, timezone, time).timestamp() == moments[position], time


def test_times_without_a_zone_are_refused() -> None:
    naive = datetime.fromisoformat("2024-01-01")
    for walk in (previous_tick, next_tick):
        with pytest.raises(ValueError, match="has no time zone"):
            walk("0 0 * * *", "UTC", naive)
    with pytest.raises(ValueError, match="has no time zone"):
        next(ticks("0 0 * * *", "UTC", naive, naive))


WEEKDAYS = "0 0 * * 1-5"  # 2024-03-04 is a Monday


@pytest.mark.parametrize(
    ("freshness", "cron", "timezone", "now", "fresh_up_to"),
    [
        pytest.param("10 seconds", None, "UTC", "2024-03-04 12:00:00", "2024-03-04 11:59:40", id="no schedule"),
        pytest.param("1 day", "0 0 * * *", "UTC", "2024-03-04 00:00:01", "2024-03-03 00:00", id="the refresh has just begun"),
        pytest.param("1 day", "0 0 * * *", "UTC", "2024-03-04 23:59:59", "2024-03-03 00:00", id="and has a day to end"),
        pytest.param("1 day", "0 0 * * *", "UTC", "2024-03-05 00:00:00", "2024-03-04 00:00", id="now it must have ended"),
        pytest.param("1 hour", "0 0 * * *", "UTC", "2024-03-04 00:30:00", "2024-03-03 00:00", id="a schedule of one's own"),
        pytest.param("1 hour", "0 0 * * *", "UTC", "2024-03-04 01:00:00", "2024-03-04 00:00", id="it has an hour"),
        pytest.param("1 day", WEEKDAYS, "UTC", "2024-03-04 12:00:00", "2024-03-01 00:00", id="Friday's will do on Monday"),
        pytest.param("1 day", WEEKDAYS, "UTC", "2024-03-05 00:00:00", "2024-03-04 00:00", id="not on Tuesday"),
        pytest.param("1 day", "0 0 * * *", "Asia/Kolkata", "2024-03-04 18:30:00", "2024-03-03 18:30", id="another time zone"),
    ],
)
def test_what_a_table_has_to_be_fresh_up_to(freshness: str, cron: str | None, timezone: str, now: str, fresh_up_to: str) -> None:
    time = datetime.fromisoformat(now).replace(tzinfo=UTC)
    allowed = allowed_lag(Freshness.parse(freshness), cron, timezone, time)
    assert time - allowed == datetime.fromisoformat(fresh_up_to).replace(tzinfo=UTC)


@given(
    st.sampled_from(["5 minutes", "1 hour", "1 day", "1 week"]),
    st.sampled_from([None, "*/5 * * * *", "0 2 * * *", "30 6 * * mon-fri", "0 0 1 * *"]),
    st.sampled_from(ODD_ZONES),
    st.datetimes(*YEAR, timezones=st.just(UTC)),
    st.timedeltas(timedelta(), timedelta(days=40)),
)
def test_a_table_is_late_from_the_time_at_which_its_lag_exceeds_the_allowed_one(
    freshness: str, cron: str | None, timezone: str, fresh_until: datetime, lag: timedelta
) -> None:
    period, now = Freshness.parse(freshness), fresh_until + lag
    is_late = lag > allowed_lag(period, cron, timezone, now)
    start = late_from(period, cron, timezone, fresh_until)
    assert is_late == (start < now if cron is None else start <= now)


@pytest.mark.parametrize(
    ("expression", "quartz"),
    [
        ("* * * * *", "0 * * * * ? *"),
        ("*/15 * * * *", "0 0,15,30,45 * * * ? *"),
        ("7/20 * * * *", "0 7,27,47 * * * ? *"),
        ("30 2 * * *", "0 30 2 * * ? *"),
        ("@daily", "0 0 0 * * ? *"),
        ("@hourly", "0 0 * * * ? *"),
        ("0 0 * * 0", "0 0 0 ? * 1 *"),
        ("0 0 * * 7", "0 0 0 ? * 1 *"),
        ("0 0 * * sun-sat", "0 0 0 * * ? *"),
        ("0 6 * jan-mar mon-fri", "0 0 6 ? 1-3 2-6 *"),
        ("0 0 * * fri-mon", "0 0 0 ? * 1,2,6,7 *"),
        ("5,10 22-2 * * *", "0 5,10 0,1,2,22,23 * * ? *"),
        ("0 0 1 * *", "0 0 0 1 * ? *"),
        ("0 0 L * *", "0 0 0 L * ? *"),
        ("0 0 * * 5#2", "0 0 0 ? * 6#2 *"),
        ("0 0 * * L5", "0 0 0 ? * 6L *"),
    ],
)
def test_quartz(expression: str, quartz: str) -> None:
    check_cron(expression)
    assert quartz_expression(expression) == quartz


@pytest.mark.parametrize("expression", ["0 0 1 * 1", "0 0 */2 * mon-fri"])
def test_quartz_knows_days_of_the_month_or_weekdays(expression: str) -> None:
    check_cron(expression)
    with pytest.raises(ValueError, match="Quartz knows one of the two"):
        quartz_expression(expression)


@pytest.mark.parametrize("expression", ["0 0 1,L * *", "0 0 * * 1#1,5#2", "0 0 * * 5#1,5#2"])
def test_quartz_knows_one_special_day(expression: str) -> None:
    check_cron(expression)
    with pytest.raises(ValueError, match="Quartz knows one in a schedule"):
        quartz_expression(expression)
