"""Differences of rows: bags, keys, and pairs that a person would make."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.query_test_values import Changed, Columns, Row, RowDifferences, difference
from airflow_dynamic_tables.core.types import parse_type

TYPES = (parse_type("string"), parse_type("int"), parse_type("double"))


def columns(*key: str) -> Columns:
    """Three columns."""
    return Columns(("name", "count", "share"), TYPES, key)


def test_order_means_nothing() -> None:
    rows: list[Row] = [("a", "1", "0.5"), ("b", "2", None)]
    assert not difference(columns(), rows, rows[::-1])


def test_a_row_counts_as_often_as_it_is_there() -> None:
    row: Row = ("a", "1", "0.5")
    assert difference(columns(), [row, row], [row]).missing == ({"name": "a", "count": "1", "share": "0.5"},)
    assert len(difference(columns(), [row], [row, row, row]).extra) == 2


def test_zeros_are_the_same() -> None:
    assert not difference(columns(), [("a", "1", "-0.0")], [("a", "1", "0.0")])


def test_rows_that_are_mostly_alike_are_one_that_changed() -> None:
    found = difference(columns(), [("a", "1", "0.5")], [("x", "9", "9.0"), ("a", "2", "0.5")])
    assert found == RowDifferences(
        extra=({"name": "x", "count": "9", "share": "9.0"},),
        changed=(Changed({"name": "a", "share": "0.5"}, {"count": "1"}, {"count": "2"}),),
    )


def test_with_a_key_only_that_pairs_rows() -> None:
    found = difference(columns("name"), [("a", "1", "0.5"), ("b", "1", None)], [("a", "2", "0.6"), ("c", "1", None)])
    assert found.changed == (Changed({"name": "a"}, {"count": "1", "share": "0.5"}, {"count": "2", "share": "0.6"}),)
    assert (len(found.missing), len(found.extra)) == (1, 1)


def test_a_key_that_is_there_twice_pairs_nothing() -> None:
    found = difference(columns("name"), [("a", "1", None)], [("a", "2", None), ("a", "3", None)])
    assert (len(found.missing), len(found.extra), found.changed) == (1, 2, ())


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["1", "2"]), st.sampled_from(["0.0", None])), max_size=6
)


@given(ROWS, ROWS, st.sampled_from([(), ("name",), ("name", "count")]))
def test_there_is_a_difference_exactly_when_the_bags_differ(expected: list[Row], got: list[Row], key: tuple[str, ...]) -> None:
    found = difference(columns(*key), expected, got)
    assert bool(found) == (Counter(expected) != Counter(got))
    assert len(found.missing) + len(found.changed) == sum((Counter(expected) - Counter(got)).values())
    assert len(found.extra) + len(found.changed) == sum((Counter(got) - Counter(expected)).values())
