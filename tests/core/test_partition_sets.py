"""Sets of partitions: the complete table, some specs, nothing at all; and what earlier releases wrote for them."""

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan

values = st.sampled_from([None, "1", "2"])
rows = st.fixed_dictionaries({"a": values, "b": values, "c": values})
specs = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
sets = st.lists(specs, max_size=4).map(PartitionSet.of)
EVERY_ROW = [{"a": a, "b": b, "c": c} for a in (None, "1", "2") for b in (None, "1", "2") for c in (None, "1", "2")]


def held(partitions: PartitionSet) -> list[dict[str, str | None]]:
    """The rows in a set, by its definition."""
    return [row for row in EVERY_ROW if any(spec.items() <= row.items() for spec in partitions)]


@given(sets)
def test_what_a_set_covers(partitions: PartitionSet) -> None:
    assert [row for row in EVERY_ROW if partitions.covers(row)] == held(partitions)
    for row in EVERY_ROW:
        assert partitions.covering(row) == [spec for spec in partitions.covering(row) if spec.items() <= row.items()]
        assert len(partitions.covering(row)) == sum(spec.items() <= row.items() for spec in partitions)


@given(sets, specs)
def test_a_partition_is_covered_when_all_of_its_rows_are(partitions: PartitionSet, spec: dict[str, str | None]) -> None:
    if partitions.covers(spec):
        assert all(row in held(partitions) for row in held(PartitionSet.of([spec])))


@given(sets, sets)
def test_sets_overlap_when_they_may_share_a_row(left: PartitionSet, right: PartitionSet) -> None:
    shared = [row for row in held(left) if row in held(right)]
    assert left.overlaps(right) == right.overlaps(left) == bool(shared)


@given(sets, st.sets(st.sampled_from("abc")))
def test_keys_tell_of_a_row_whether_it_is_in_a_set(partitions: PartitionSet, keys: set[str]) -> None:
    if partitions.is_told_by(keys):
        for row in EVERY_ROW:
            known = {key: row[key] for key in keys}
            assert partitions.covers(known) == partitions.overlaps(PartitionSet.of([known])) == (row in held(partitions))


@given(sets, sets)
def test_a_union_holds_what_either_holds(left: PartitionSet, right: PartitionSet) -> None:
    assert held(left.union(right)) == [row for row in EVERY_ROW if row in held(left) or row in held(right)]
    assert left.union(NO_PARTITIONS) == left == NO_PARTITIONS.union(left)
    assert left.union(WHOLE_TABLE) == WHOLE_TABLE


@given(st.lists(specs, max_size=4))
def test_order_and_repetition_make_no_other_set(several: list[dict[str, str | None]]) -> None:
    one, other = PartitionSet.of(several), PartitionSet.of([*reversed(several), *several])
    assert one == other
    assert hash(one) == hash(other)


@given(sets)
def test_a_set_survives_being_json(partitions: PartitionSet) -> None:
    again = PartitionSet.from_plain(json.loads(json.dumps(partitions.to_plain())))
    assert (again, list(again)) == (partitions, list(partitions))


def test_the_whole_table_and_nothing_are_each_other_s_opposite() -> None:
    assert (WHOLE_TABLE.is_whole, WHOLE_TABLE.is_empty, len(WHOLE_TABLE)) == (True, False, 1)
    assert (NO_PARTITIONS.is_whole, NO_PARTITIONS.is_empty, len(NO_PARTITIONS)) == (False, True, 0)
    assert PartitionSet.of([]) == NO_PARTITIONS != WHOLE_TABLE
    assert PartitionSet.of([{"ds": "1"}, {}]) == WHOLE_TABLE
    assert not NO_PARTITIONS.overlaps(WHOLE_TABLE)
    assert not NO_PARTITIONS.covers({})
    assert WHOLE_TABLE.covers({})


def test_a_set_is_readable() -> None:
    assert str(WHOLE_TABLE) == "the complete table"
    assert str(NO_PARTITIONS) == "nothing"
    assert str(PartitionSet.of([{"ds": "1", "hh": "a/b"}, {"ds": None}])) == "ds=1/hh=a%2Fb, ds=__HIVE_DEFAULT_PARTITION__"


def test_null_is_a_value_like_any_other() -> None:
    assert PartitionSet.of([{"ds": None}]).predicate == "`ds` IS NULL"
    assert PartitionSet.of([{"ds": "1"}, {"ds": None}]).predicate == "(`ds` = '1' OR `ds` IS NULL)"
    with_hours = PartitionSet.of([{"ds": "1", "hh": "2"}, {"ds": None, "hh": "2"}])
    assert with_hours.predicate == "(`ds` = '1' OR `ds` IS NULL) AND `hh` = '2'"
    assert not PartitionSet.of([{"ds": "1", "hh": None}]).covers({"ds": "1"}), "one that leaves a key out is more than its null"


@pytest.mark.parametrize("partitions", [WHOLE_TABLE, NO_PARTITIONS])
def test_the_whole_table_and_nothing_have_no_predicate(partitions: PartitionSet) -> None:
    with pytest.raises(ValueError, match="a predicate needs partitions"):
        str(partitions.predicate)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("[]", WHOLE_TABLE),
        ("null", NO_PARTITIONS),
        ('[{"ds": "2024-01-01"}, {"ds": "2024-01-02"}]', PartitionSet.of([{"ds": "2024-01-01"}, {"ds": "2024-01-02"}])),
    ],
)
def test_what_stands_in_plans_and_databases_keeps_its_meaning(written: str, meant: PartitionSet) -> None:
    assert PartitionSet.from_plain(json.loads(written)) == meant
    assert json.dumps(meant.to_plain()) == written


@pytest.mark.parametrize("data", [1, "ds=1", {"ds": "1"}, ["ds=1"], [["ds", "1"]], [None], [{"ds": 1}]])
def test_other_json_is_no_set(data: object) -> None:
    with pytest.raises(ValueError, match="is no list of partitions"):
        PartitionSet.from_plain(data)


def test_a_plan_of_the_release_before_keeps_its_meaning() -> None:
    written = (
        '{"token": "t", "identifier": "lake.sales.t", "schedule_time": "2024-03-01T00:00:00+00:00", "action": "FULL",'
        ' "reason": "scheduled", "statement": "SELECT 1", "query": "SELECT 1", "stage": "s3://b/t", "format": "iceberg",'
        ' "partition_keys": ["ds"], "partitions": [], "sources": [], "functions": [], "comment": null, "comments": {},'
        ' "timezone": "UTC", "expectations": [], "data_timestamp": "2024-03-01T00:00:00+00:00", "base": null}'
    )
    plan = RefreshPlan.from_json(written)
    assert plan.partitions == WHOLE_TABLE
    assert plan.schedule_time == plan.data_timestamp == datetime(2024, 3, 1, tzinfo=UTC)
    some = RefreshPlan.from_json(written.replace('"partitions": []', '"partitions": [{"ds": "1"}, {"ds": "2"}]'))
    assert list(some.partitions) == [{"ds": "1"}, {"ds": "2"}]


def test_thousands_of_partitions_cost_nothing() -> None:
    start = time.process_time()
    hours = PartitionSet.of({"ds": str(day), "hh": str(hour)} for day in range(500) for hour in range(24))
    others = PartitionSet.of({"ds": str(day), "hh": "24"} for day in range(500))
    assert not hours.overlaps(others)
    assert sum(hours.covers({"ds": str(day), "hh": "7", "mm": "0"}) for day in range(12_000)) == 500
    assert time.process_time() - start < 2
