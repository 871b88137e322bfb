"""Partitions: which ones a schedule time names, how they are written and selected."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.cron import previous_tick, ticks
from airflow_dynamic_tables.core.partition_dates import check_formatters, scheduled_partitions
from airflow_dynamic_tables.core.partitions import PartitionSet, check_spec, describe, parse_spec
from airflow_dynamic_tables.core.schedule import Freshness
from tests.support.clock import FIVE_ZONES, ODD_ZONES, YEAR, changes, shown, ticks_of, wall

DAY = {"ds": "yyyy-MM-dd"}
HOUR = {"ds": "yyyy-MM-dd", "hh": "HH"}
MINUTE = {"at": "yyyy-MM-dd HH:mm"}
MONTH = {"month": "yyyy-MM"}
YEARLY = {"year": "yyyy"}


def planned(time: datetime, freshness: str, formatters: dict[str, str], timezone: str = "UTC") -> list[str]:
    """The values of the planned partitions; none: the whole table."""
    partitions = scheduled_partitions(time, Freshness.parse(freshness), formatters, timezone)
    return [] if partitions.is_whole else [" ".join(map(str, spec.values())) for spec in partitions]


EXAMPLES = [
    # the docs, time.md
    ("2024-01-02T00:00", "1 day", DAY, ["2024-01-01"]),
    ("2024-01-02T06:00", "1 day", DAY, ["2024-01-01"]),
    ("2024-01-02T00:00", "1 hour", DAY, ["2024-01-01"]),
    ("2024-01-02T01:00", "1 hour", DAY, ["2024-01-02"]),
    # Flink would refresh hour 00 only.
    ("2024-01-02T00:00", "1 day", HOUR, [f"2024-01-01 {hour:02}" for hour in range(24)]),
    ("2024-01-02T00:00", "1 day", {}, []),
    # Flink's tests, and the sentence of its manual that they contradict: it is the day before.
    ("2024-01-01T00:00", "1 day", DAY, ["2023-12-31"]),
    ("2024-01-01T03:00", "1 hour", HOUR, ["2024-01-01 02"]),
    ("2024-01-01T00:00", "1 hour", HOUR, ["2023-12-31 23"]),
    # Other grains
    ("2024-03-01T00:00", "1 week", DAY, [f"2024-02-{day}" for day in range(23, 30)]),
    ("2024-03-03T00:00", "1 week", MONTH, ["2024-02"]),
    ("2024-03-10T00:00", "1 week", MONTH, ["2024-03"]),
    ("2024-03-01T00:00", "1 day", MONTH, ["2024-02"]),
    ("2024-01-01T00:00", "1 day", YEARLY, ["2023"]),
    ("2024-06-01T00:00", "1 week", YEARLY, ["2024"]),
    ("2024-03-01T00:00", "90 days", MONTH, ["2023-12", "2024-01", "2024-02"]),
    ("2024-03-01T00:00", "800 days", YEARLY, ["2021", "2022", "2023"]),
    ("2024-01-01T00:10", "5 minutes", MINUTE, [f"2024-01-01 00:0{minute}" for minute in range(5, 10)]),
    ("2024-01-01T00:10", "5 minutes", HOUR, ["2024-01-01 00"]),
    ("2024-01-01T00:00", "2 minutes", {"s": "yyyyMMddHHmmss"}, [str(20231231235800 + n) for n in (*range(60), *range(100, 160))]),
    # What is declared decides, also when a schedule of its own ticks at other times.
    ("2024-01-02T09:30", "6 hours", HOUR, [f"2024-01-02 {hour:02}" for hour in range(3, 9)]),
]


@pytest.mark.parametrize(("time", "freshness", "formatters", "expected"), EXAMPLES)
def test_examples(time: str, freshness: str, formatters: dict[str, str], expected: list[str]) -> None:
    assert planned(datetime.fromisoformat(time).replace(tzinfo=UTC), freshness, formatters) == expected


def test_the_wall_clock_of_the_table_names_the_day() -> None:
    time = datetime(2024, 1, 1, 23, tzinfo=UTC)
    assert planned(time, "1 day", DAY, "Europe/Berlin") == ["2024-01-01"]
    assert planned(time, "1 day", DAY, "America/New_York") == ["2023-12-31"]


# Flink subtracts elapsed time, and never refreshes these days.
@pytest.mark.parametrize(
    ("timezone", "time", "day"),
    [("Europe/Berlin", "2024-04-01", "2024-03-31"), ("America/New_York", "2024-03-11", "2024-03-10")],
)
def test_the_short_day_in_spring_is_refreshed(timezone: str, time: str, day: str) -> None:
    midnight = datetime.fromisoformat(time).replace(tzinfo=ZoneInfo(timezone))
    assert planned(midnight, "1 day", DAY, timezone) == [day]
    assert planned(midnight, "1 day", HOUR, timezone)[0] == f"{day} 00"


BERLIN_SPRING = {
    "2024-03-31T00:00+01:00": ["2024-03-31 00"],
    "2024-03-31T01:00+01:00": ["2024-03-31 01", "2024-03-31 02"],  # 02:00 to 03:00 does not exist
    "2024-03-31T03:00+02:00": ["2024-03-31 03"],
}
BERLIN_AUTUMN = {
    "2024-10-27T01:00+02:00": ["2024-10-27 01"],
    "2024-10-27T02:00+02:00": ["2024-10-27 01"],  # 02:00 to 03:00 comes again: not complete yet
    "2024-10-27T02:00+01:00": ["2024-10-27 02"],
}


@pytest.mark.parametrize(("start", "expected"), (BERLIN_SPRING | BERLIN_AUTUMN).items())
def test_hours_around_a_change_of_the_clock(start: str, expected: list[str]) -> None:
    end = datetime.fromisoformat(start) + timedelta(hours=1)
    assert planned(end, "1 hour", HOUR, "Europe/Berlin") == expected


TIME_PAGE = (Path(__file__).parents[2] / "docs" / "time.md").read_text()
BY_DAY_AND_HOUR = {"1 day, `yyyy-MM-dd`": DAY, "1 hour, `yyyy-MM-dd`": DAY, "1 day, `yyyy-MM-dd` and `HH`": HOUR}


def test_the_partitions_that_the_guide_tells() -> None:
    rows = re.findall(r"^\| (1 \w+, `[^|]*`) \| (\S+ \S+) \| (.*) \|$", TIME_PAGE, re.MULTILINE)
    assert len(rows) == 4
    for told, time, partitions in rows:
        names = planned(datetime.fromisoformat(f"{time}Z"), told.partition(",")[0], BY_DAY_AND_HOUR[told])
        day = partitions[-10:] if partitions.startswith("all") else partitions.strip("`").removeprefix("ds=")
        assert names == ([f"{day} {hour:02}" for hour in range(24)] if partitions.startswith("all 24 hours of") else [day])


def test_the_hours_of_autumn_that_the_guide_tells() -> None:
    rows = re.findall(r"^\| (2024-10-27 \d\d:00\+\d\d:00).* \| `hh=(\d\d)`.* \|$", TIME_PAGE, re.MULTILINE)
    assert len(rows) == 3
    for time, hour in rows:
        assert planned(datetime.fromisoformat(time), "1 hour", HOUR, "Europe/Berlin") == [f"2024-10-27 {hour}"]


def pattern_of(formatters: dict[str, str]) -> str:
    """What the names of partitions look like, as Python writes it."""
    return {"ds": "%Y-%m-%d", "ds hh": "%Y-%m-%d %H", "at": "%Y-%m-%d %H:%M"}[" ".join(formatters)]


def counted(freshness: str, formatters: dict[str, str], timezone: str) -> Counter[str]:
    """How often each partition is planned by the ticks after New Year's Eve until the next."""
    found = ticks_of(freshness, timezone, *YEAR)
    return Counter(name for tick in found for name in planned(tick, freshness, formatters, timezone))


DAYS = 366  # 2024 is a leap year
ONCE = [("1 day", DAY), ("1 week", DAY), ("1 day", HOUR), ("8 hours", HOUR), ("12 hours", HOUR)]


@pytest.mark.sampled
@pytest.mark.parametrize("timezone", FIVE_ZONES)
@pytest.mark.parametrize(
    ("freshness", "formatters"), ONCE, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_every_partition_is_refreshed_exactly_once_in_a_year(freshness: str, formatters: dict[str, str], timezone: str) -> None:
    count = counted(freshness, formatters, timezone)
    assert set(count.values()) == {1}
    found = ticks_of(freshness, timezone, *YEAR)
    existing = shown(wall(found[0]) - Freshness.parse(freshness).period, wall(found[-1]), pattern_of(formatters), timezone)
    assert existing <= set(count)
    # The hour that spring skips has a name too; nothing else is planned that does not exist.
    skips_an_hour = formatters is HOUR and timezone in ("Europe/Berlin", "America/New_York")
    assert len(set(count) - existing) == skips_an_hour


@pytest.mark.parametrize("timezone", FIVE_ZONES)
def test_every_hour_is_refreshed_by_hourly_ticks(timezone: str) -> None:
    count = counted("1 hour", HOUR, timezone)
    hour = timedelta(hours=1)
    assert shown(YEAR[0] - hour, YEAR[1] - hour, pattern_of(HOUR), timezone) <= set(count)
    # There are 25 ticks on the day in autumn, for 24 names; Lord Howe's gap of half an hour has two halves of an hour beside it.
    twice = {"Europe/Berlin": 1, "America/New_York": 1, "Australia/Lord_Howe": 2}.get(timezone, 0)
    assert (max(count.values()), sum(count.values()) - len(count)) == (2 if twice else 1, twice)


@pytest.mark.parametrize("timezone", FIVE_ZONES)
def test_hourly_ticks_refresh_every_day_until_it_is_over(timezone: str) -> None:
    by_day: dict[str, datetime] = {}
    for tick in ticks_of("1 hour", timezone, *YEAR):
        for day in planned(tick, "1 hour", DAY, timezone):
            by_day[day] = wall(tick)
    assert len(by_day) == DAYS + 1  # the first tick is for the day before
    assert all(last >= datetime.fromisoformat(day) + timedelta(days=1) for day, last in list(by_day.items())[:-1])


CHANGING = [zone for zone in (*FIVE_ZONES, *ODD_ZONES) if changes(zone)]
AROUND_CHANGES = [
    (DAY, ["6 hours", "1 day"]),
    (HOUR, ["20 minutes", "1 hour", "2 hours", "3 hours", "4 hours", "6 hours", "1 day"]),
    (MINUTE, ["20 minutes", "2 hours"]),
]


@pytest.mark.parametrize("timezone", CHANGING)
@pytest.mark.parametrize(("formatters", "freshnesses"), AROUND_CHANGES, ids=["days", "hours", "minutes"])
def test_nothing_is_skipped_around_a_change_of_the_clock(
    formatters: dict[str, str], freshnesses: list[str], timezone: str
) -> None:
    """And nothing is planned twice by ticks that follow the wall clock, which those of an hour or less do not."""
    for day in changes(timezone):
        for freshness in freshnesses:
            period = Freshness.parse(freshness).period
            found = ticks_of(freshness, timezone, wall(day) - timedelta(days=1), wall(day) + timedelta(days=2, hours=1))
            count = Counter(name for tick in found for name in planned(tick, freshness, formatters, timezone))
            existing = shown(wall(found[0]) - period, wall(found[-1]), pattern_of(formatters), timezone)
            assert existing <= set(count), freshness
            if period > timedelta(hours=1) and formatters is not DAY:
                assert {count[name] for name in existing} == {1}, freshness


OWN_SCHEDULES = {
    "30 * * * *": "1 hour",
    "40 * * * *": "1 hour",
    "30 */2 * * *": "2 hours",
    "15 1-23/2 * * *": "2 hours",
    "30 2 * * *": "1 day",
    "30 23 * * *": "1 day",
    "0 3 * * *": "1 day",
}


@pytest.mark.sampled
@pytest.mark.parametrize("timezone", CHANGING)
@pytest.mark.parametrize(("cron", "freshness"), OWN_SCHEDULES.items())
def test_a_schedule_of_its_own_skips_nothing_either(cron: str, freshness: str, timezone: str) -> None:
    for day in changes(timezone):
        found = list(ticks(cron, timezone, day - timedelta(days=2), day + timedelta(days=3)))
        for formatters in (DAY, HOUR):
            count = Counter(name for tick in found for name in planned(tick, freshness, formatters, timezone))
            # The partition in which the last tick lies is left to the next one.
            end = wall(found[-1]).replace(minute=0)
            end = end.replace(hour=0) if formatters is DAY else end
            assert shown(wall(found[0]), end, pattern_of(formatters), timezone) <= set(count), formatters


@pytest.mark.parametrize("timezone", FIVE_ZONES)
@given(second=st.integers(min_value=0, max_value=366 * 86_400), minutes=st.integers(min_value=1, max_value=20_000))
def test_partitions_are_in_order_and_in_the_past(timezone: str, second: int, minutes: int) -> None:
    time = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    found = planned(time, f"{minutes} minutes", HOUR, timezone)
    assert found == sorted(set(found))
    now = time.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H")
    assert found == [now] or all(name < now for name in found)


def test_a_day_that_a_country_skipped_hides_no_other() -> None:
    # Samoa went to bed on 29 December 2011 and woke up on the 31st.
    tick = datetime(2011, 12, 31, tzinfo=ZoneInfo("Pacific/Apia"))
    assert previous_tick("0 0 * * *", "Pacific/Apia", tick.astimezone(UTC) - timedelta(seconds=1)).day == 29
    assert "2011-12-29" in planned(tick, "1 day", DAY, "Pacific/Apia")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        planned(datetime.fromisoformat("2024-01-01"), "1 day", DAY)


FORMATS = {
    "yyyy-MM-dd": "2024-03-05",
    "yyyyMMdd": "20240305",
    "yy/M/d H:m:s": "24/3/5 7:8:9",
    "yyyy-MM-dd'T'HH:mm:ss": "2024-03-05T07:08:09",
    "'day 'd' of 'MM.yyyy": "day 5 of 03.2024",
    "yyyy''MM": "2024'03",
    "'it''s' yyyy": "it's 2024",
    "''''yyyy": "'2024",
    "y M": "2024 3",
    "yyyyyy": "002024",
}


@pytest.mark.parametrize(("pattern", "expected"), FORMATS.items())
def test_patterns_format_as_in_java(pattern: str, expected: str) -> None:
    time = datetime(2024, 3, 5, 7, 8, 10, tzinfo=UTC)
    assert planned(time, "1 second", {"p": pattern}) == [expected]


@pytest.mark.parametrize(
    "formatters",
    [
        DAY,
        HOUR,
        MINUTE,
        MONTH,
        YEARLY,
        {},
        {"y": "yyyy", "m": "MM", "d": "dd"},
        {"hh": "HH", "ds": "yyyyMMdd"},
        {"s": "yyMMddHHmmss"},
    ],
)
def test_fields_without_a_hole_are_legal(formatters: dict[str, str]) -> None:
    check_formatters(formatters)


MISTAKES = [
    ({"hh": "HH"}, "name an hour without its year, month and day"),
    ({"ds": "MM-dd"}, "name a day without its year"),
    ({"ds": "yyyy-dd"}, "name a day without its month"),
    ({"ds": "yyyy-MM-dd", "m": "mm"}, "name a minute without its hour"),
    ({"ds": "YYYY-MM-dd"}, "'YYYY' is not supported; write 'yyyy'"),
    ({"ds": "yyyy-MM-DD"}, "'DD' is not supported; write 'dd'"),
    ({"ds": "yyyy-MM-dd hh"}, "'hh' is not supported; write 'HH'"),
    ({"ds": "uuuu-MM-dd"}, "'uuuu' is not supported; write 'yyyy'"),
    ({"ds": "yyyy-MM-ddTHH"}, "'T' is not supported"),
    ({"ds": "yyyy-MMM-dd"}, "month names are not supported; write 'MM'"),
    ({"ds": "yyyy-MM-dd E"}, "'E' is not supported"),
    ({"ds": "yyyy-MM-dd'T"}, "a single quote is not closed"),
    ({"ds": ""}, "has no date field"),
    ({"ds": "'yyyy'"}, "has no date field"),
    ({"ds": "yyyy-MM-dd", "hh": "-"}, "of column 'hh' has no date field"),
]


@pytest.mark.parametrize(("formatters", "message"), MISTAKES)
def test_mistakes_in_formatters(formatters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_formatters(formatters)


SPECS = {
    "ds=2024-01-01": {"ds": "2024-01-01"},
    "ds=2024-01-01/hh=03": {"ds": "2024-01-01", "hh": "03"},
    "at=2024-01-01 03:00": {"at": "2024-01-01 03:00"},
    "ds=": {"ds": ""},
    "path=a%2Fb%3Dc%25%2C": {"path": "a/b=c%,"},
    "country=Österreich": {"country": "Österreich"},
    "v=%20a b%20": {"v": " a b "},
    "day(ts)=2024-01-01/bucket(8, id)=3": {"day(ts)": "2024-01-01", "bucket(8, id)": "3"},
    "a%2Cb=c%2Cd": {"a,b": "c,d"},
}


@pytest.mark.parametrize(("text", "spec"), SPECS.items())
def test_a_spec_as_text(text: str, spec: dict[str, str]) -> None:
    assert describe(spec) == text
    assert parse_spec(text) == spec


def test_a_spec_may_be_written_like_a_folder() -> None:
    assert parse_spec(" /ds=2024-01-01/hh=03/\n") == {"ds": "2024-01-01", "hh": "03"}


unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
specs = st.dictionaries(unicode_text.filter(bool), unicode_text, min_size=1, max_size=3)


@given(specs)
def test_a_spec_survives_being_written(spec: dict[str, str]) -> None:
    assert parse_spec(describe(spec)) == spec


@given(st.lists(specs, min_size=1, max_size=3))
def test_a_list_of_specs_survives_being_written(several: list[dict[str, str]]) -> None:
    assert [parse_spec(part) for part in ",".join(map(describe, several)).split(",")] == several


@pytest.mark.parametrize("text", ["", "ds", "=2024", "ds=a=b", "ds=a//hh=b", "2024-01-01", "ds=2024/01/01"])
def test_what_is_no_spec(text: str) -> None:
    with pytest.raises(ValueError, match="is no partition; write for example ds=2024-01-01"):
        parse_spec(text)


def test_a_key_cannot_be_given_twice() -> None:
    with pytest.raises(ValueError, match="names 'ds' twice"):
        parse_spec("ds=1/ds=2")


def test_a_spec_has_exactly_the_partition_keys() -> None:
    check_spec({"hh": "03", "ds": "2024-01-01"}, ["ds", "hh"])
    for spec in ({"ds": "1"}, {"ds": "1", "hh": "2", "mm": "3"}, {"ds": "1", "HH": "2"}):
        with pytest.raises(ValueError, match="does not fit the partition keys ds, hh"):
            check_spec(spec, ["ds", "hh"])
    with pytest.raises(ValueError, match="the table is not partitioned"):
        check_spec({"ds": "1"}, [])


PREDICATES = [
    ([{"ds": "2024-01-01"}], "`ds` = '2024-01-01'"),
    ([{"ds": "1"}, {"ds": "2"}, {"ds": "1"}], "`ds` IN ('1', '2')"),
    ([{"ds": "1", "hh": "2"}], "`ds` = '1' AND `hh` = '2'"),
    ([{"ds": "1", "hh": "2"}, {"hh": "3", "ds": "1"}], "`ds` = '1' AND `hh` IN ('2', '3')"),
    ([{"ds": "1", "hh": "2"}, {"ds": "2", "hh": "2"}], "`ds` IN ('1', '2') AND `hh` = '2'"),
    ([{"ds": "1", "hh": "2"}, {"ds": "2", "hh": "3"}], "((`ds` = '1' AND `hh` = '2') OR (`ds` = '2' AND `hh` = '3'))"),
    ([{"a`b": "it's"}], r"`a``b` = 'it\'s'"),
    ([{"ds": "back\\slash"}], r"`ds` = 'back\\slash'"),
    ([{"ds": "${env:HOME}"}], r"`ds` = '$\{env:HOME}'"),
    ([{"ds": ""}], "`ds` = ''"),
]


@pytest.mark.parametrize(("partitions", "expected"), PREDICATES)
def test_predicates(partitions: list[dict[str, str]], expected: str) -> None:
    assert PartitionSet.of(partitions).predicate == expected


def test_a_week_of_hours_is_a_short_predicate() -> None:
    week = scheduled_partitions(datetime(2024, 1, 8, tzinfo=UTC), Freshness.parse("1 week"), HOUR, "UTC")
    assert len(week) == 168
    assert week.predicate.count("'") == 2 * (7 + 24)


@pytest.mark.parametrize("partitions", [[], [{}], [{"ds": "1"}, {"hh": "1"}], [{"ds": "1"}, {"ds": "1", "hh": "2"}]])
def test_no_predicate_without_partitions_of_the_same_keys(partitions: list[dict[str, str]]) -> None:
    with pytest.raises(ValueError, match="a predicate needs partitions, all with the same keys"):
        str(PartitionSet.of(partitions).predicate)


def selected(condition: sqlglot.exp.Expr, rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """The rows for which a predicate is true, worked out from its syntax tree."""

    def holds(node: sqlglot.exp.Expr, row: dict[str, str]) -> bool:
        match node:
            case sqlglot.exp.Paren():
                return holds(node.this, row)
            case sqlglot.exp.And():
                return holds(node.left, row) and holds(node.right, row)
            case sqlglot.exp.Or():
                return holds(node.left, row) or holds(node.right, row)
            case sqlglot.exp.EQ():
                return row[node.left.name] == node.right.name
            case sqlglot.exp.In():
                return row[node.this.name] in [literal.name for literal in node.expressions]
        raise AssertionError(node)

    return (row for row in rows if holds(condition, row))


few_values = st.sampled_from(["", "1", "2", "it's", "\\", "\\'", "$", "--", '"'])
rows_of_three = st.fixed_dictionaries({"a": few_values, "b c": few_values, "d`e": few_values})


@given(st.lists(rows_of_three, min_size=1, max_size=12), st.lists(rows_of_three, max_size=12))
def test_a_predicate_is_true_for_exactly_its_partitions(partitions: list[dict[str, str]], others: list[dict[str, str]]) -> None:
    rows = partitions + others
    condition = sqlglot.parse_one(PartitionSet.of(partitions).predicate, dialect="spark")
    assert list(selected(condition, rows)) == [row for row in rows if row in partitions]
