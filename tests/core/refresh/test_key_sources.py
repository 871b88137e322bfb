"""The values of a partition key that a source partition can have, and the partitions that are affected."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.key_sources import Call, Formula, KeyColumn, KeySource, Literal, PartitionMapping

DS = KeyColumn("ds", type="string")
DAY = KeyColumn("day", type="date")
MONTH = KeySource((Call("substring", (DS, Literal(1), Literal(7))),))
WEEK = KeySource((Call("days", (DAY, Literal(0), Literal(6))),))
TYPES = {"ds": "string", "month": "string", "day": "date", "country": "string"}


@pytest.mark.parametrize(
    ("formula", "partition", "values"),
    [
        (DS, {"ds": "2024-1-5"}, {"2024-1-5"}),
        (DS, {"ds": "__HIVE_DEFAULT_PARTITION__"}, None),
        (DS, {"ds": ""}, None),
        (DS, {"other": "a"}, None),
        (KeyColumn("ds", type="string collate UTF8_LCASE"), {"ds": "a"}, None),
        (KeyColumn("ds", type="char(3)"), {"ds": "a"}, None),
        (DAY, {"day": "2024-1-5"}, None),
        (Call("to_date", (DS,)), {"ds": "2024-01-05"}, {"2024-01-05"}),
        (Call("to_date", (DS,)), {"ds": "2024-1-5"}, None),
        (Call("to_date", (DS,)), {"ds": "2024-02-30"}, None),
        (Call("date_trunc", (Literal("month"), DAY)), {"day": "2024-01-05"}, None),
        (KeyColumn("n", type="int"), {"n": "2147483647"}, {"2147483647"}),
        (KeyColumn("n", type="int"), {"n": "2147483648"}, None),
        (Call("cast_string", (KeyColumn("n", type="tinyint"),)), {"n": "-128"}, {"-128"}),
        (Call("cast_string", (KeyColumn("n", type="tinyint"),)), {"n": "-129"}, None),
        (Call("upper", (DS,)), {"ds": "ä"}, None),
        (Call("days", (DAY, Literal(-1), Literal(1))), {"day": "2024-01-05"}, {"2024-01-04", "2024-01-05", "2024-01-06"}),
        (Call("days", (DAY, Literal(0), Literal(9_999))), {"day": "2024-01-05"}, None),
        (
            Call("trunc", (Literal("MM"), Call("days", (DAY, Literal(0), Literal(40))))),
            {"day": "2024-01-31"},
            {"2024-01-01", "2024-02-01", "2024-03-01"},
        ),
    ],
)
def test_values(formula: Formula, partition: dict[str, str], values: object) -> None:
    found = KeySource((formula,)).values(partition)
    assert found == values


def test_a_day_that_a_time_zone_left_out() -> None:
    """In Samoa, 2011-12-30 did not exist: Spark makes the next day of it."""
    formula = Call("date_format", (DAY, Literal("%Y-%mstrict-%dstrict")))
    assert KeySource((formula,), "UTC").values({"day": "2011-12-30"}) == frozenset({"2011-12-30"})
    assert KeySource((formula,), "Pacific/Apia").values({"day": "2011-12-30"}) is None
    assert KeySource((formula,), "No/Where").values({"day": "2011-12-30"}) is None


def test_a_rolled_up_partition_affects_one() -> None:
    affected = PartitionMapping({"month": MONTH}, TYPES).affected(["DS=2024-01-05", "ds=2024-02-01"])
    assert affected.specs(["month"]) == [{"month": "2024-01"}, {"month": "2024-02"}]
    assert affected.include({"month": "2024-01", "country": "x"})
    assert not affected.include({"month": "2024-03"})
    assert affected.include({"month": None})
    assert affected.include({})
    assert affected.specs(["month", "country"]) is None


def test_what_is_unknown_is_affected() -> None:
    keys = {"day": WEEK}
    assert PartitionMapping(keys, TYPES).affected(None).include({"day": "2024-01-01"})
    assert PartitionMapping(keys, TYPES).affected([""]).include({"day": "2024-01-01"})
    assert PartitionMapping(keys, TYPES).affected([""]).specs(["day"]) is None
    assert not PartitionMapping(keys, TYPES).affected([]).include({"day": "2024-01-01"})
    assert PartitionMapping(keys, TYPES).affected([]).specs(["day"]) == []


def test_several_keys_are_combined_by_partition() -> None:
    """A partition whose country is unknown affects all countries of its days, and no other day."""
    keys = {"day": WEEK, "country": KeySource((KeyColumn("c", type="string"),))}
    affected = PartitionMapping(keys, TYPES).affected(["day=2024-01-01/c=SE", "day=2024-02-01"])
    assert affected.include({"day": "2024-01-07", "country": "SE"})
    assert not affected.include({"day": "2024-01-07", "country": "NO"})
    assert affected.include({"day": "2024-02-07", "country": "NO"})
    assert not affected.include({"day": "2024-02-08", "country": "NO"})
    assert affected.specs(["day", "country"]) is None


def test_days_as_texts_may_be_spelled_otherwise() -> None:
    """``'2024-1-5' >= date_sub('2024-01-05', 1)`` is true, so a partition that is no date as we spell it is affected."""
    affected = PartitionMapping({"ds": KeySource((Call("day_texts", (DS, Literal(0), Literal(1))),))}, TYPES).affected(
        ["ds=2024-01-05"]
    )
    assert affected.include({"ds": "2024-01-06"})
    assert not affected.include({"ds": "2024-01-07"})
    assert affected.include({"ds": "2024-1-7"})
    assert affected.specs(["ds"]) == [{"ds": "2024-01-05"}, {"ds": "2024-01-06"}]
    assert affected.any_other_spelling(["ds"])


def test_partitions_that_feed_others_are_those_that_affect_them() -> None:
    keys = {
        "day": WEEK,
        "month": MONTH,
        "country": KeySource((KeyColumn("c", type="string"),)),
        "ds": KeySource((Call("day_texts", (DS, Literal(0), Literal(1))),)),
    }
    mapping = PartitionMapping(keys, TYPES)
    sources = [f"day=2024-01-{day:02}/c={land}" for day in range(1, 30) for land in ("SE", "NO")]
    sources += ["", "day=2024-01-03", "c=SE", "ds=2024-01-05", "ds=2024-1-5/c=NO"]
    days: list[dict[str, str | None]] = [{"day": f"2024-02-{day:02}"} for day in range(1, 12)]
    wanted: list[list[dict[str, str | None]]] = [
        days,
        [{**day, "country": "NO"} for day in days],
        [{"month": "2024-01", "country": "SE"}, {"day": "2024-01-05"}],
        [{"ds": "2024-1-6"}, {"ds": "2024-01-06"}],
        [{"country": None}],
        [{}],
        [],
    ]
    for specs in wanted:
        expected = [text for text in sources if any(map(mapping.affected([text]).include, specs))]
        assert mapping.feeding(specs, sources) == expected
