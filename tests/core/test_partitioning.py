"""Partition keys that are computed of columns: what may be written, what it means, what is a mistake."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.partition_transforms import (
    TRANSFORMS,
    HiddenKey,
    hidden_key,
    plain_keys,
    rejoined,
    repeated,
    spelled,
    split_keys,
)


@pytest.mark.parametrize(
    ("written", "spelling", "field"),
    [
        ("day(ts)", "day(ts)", "ts_day"),
        (" DAYS( ts )", "day(ts)", "ts_day"),
        ("date(ts)", "day(ts)", "ts_day"),
        ("bucket(16,id)", "bucket(16, id)", "id_bucket_16"),
        ("Bucket( 16 , `my id`)", "bucket(16, my id)", "my id_bucket_16"),
        ("truncate(4, name)", "truncate(4, name)", "name_trunc_4"),
        ("truncate(4, `max(x)`)", "truncate(4, max(x))", "max(x)_trunc_4"),
    ],
)
def test_a_key_has_one_spelling(written: str, spelling: str, field: str) -> None:
    key = hidden_key(written)
    assert key is not None
    assert (str(key), key.field, spelled(spelling)) == (spelling, field, spelling)


@pytest.mark.parametrize("column", ["ds", "a b", "a(", ")", "(a)", "a) b"])
def test_the_name_of_a_column_is_no_transform(column: str) -> None:
    assert hidden_key(column) is None
    assert spelled(column) == column


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("dy(ts)", "'dy' is no transform; use year(ts) | month(ts) | day(ts) | hour(ts) | bucket(16, id) | truncate(4, name)"),
        ("bucket(id)", "'bucket(id)' needs how many buckets and then a column; write bucket(16, id)"),
        ("bucket(id, 16)", "'bucket(id, 16)' needs how many buckets and then a column; write bucket(16, id)"),
        ("bucket(0, id)", "'bucket(0, id)': how many buckets is a whole number from 1 to 2147483647, not 0"),
        ("truncate(-1, n)", "'truncate(-1, n)': the width is a whole number from 1 to 2147483647, not -1"),
        ("truncate(1.5, n)", "'truncate(1.5, n)' needs the width and then a column; write truncate(4, name)"),
        ("day()", "'day()' needs one column; write day(ts)"),
        ("hour(16, ts)", "'hour(16, ts)' needs one column; write hour(ts)"),
    ],
)
def test_what_is_neither_is_refused(written: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        hidden_key(written)


@given(
    st.sampled_from(sorted(TRANSFORMS)),
    st.text(st.characters(blacklist_characters=",()`", blacklist_categories=["Cs", "Zs", "Cc", "Zl", "Zp"]), min_size=1),
    st.integers(1, 2**31 - 1),
)
def test_a_spelling_means_the_key_that_it_is_of(transform: str, column: str, number: int) -> None:
    key = HiddenKey(transform, column, number if TRANSFORMS[transform].number else None)
    assert hidden_key(str(key)) == key


def test_a_list_of_yaml_is_put_together_again() -> None:
    items = ["country", "bucket(16", "id)", "day(ts)", "truncate(4", "name)", "a("]
    assert list(rejoined(items)) == [(0, "country"), (1, "bucket(16, id)"), (3, "day(ts)"), (4, "truncate(4, name)"), (6, "a(")]


def test_columns_and_what_is_computed_of_them_are_told_apart() -> None:
    assert plain_keys(("country", "day(ts)", "void(x)", "ds")) == ("country", "ds")


def test_a_key_that_adds_nothing_is_noticed() -> None:
    keys = ["country", "day(ts)", "country", "bucket(4, id)", "bucket(8, id)", "year(ts)", "month(at)"]
    assert list(repeated(keys)) == [
        (2, "partition key 'country' is listed twice"),
        (5, "day(ts) and year(ts) are of one column; day(ts) alone says it all"),
    ]


@pytest.mark.parametrize(
    ("key", "kind", "problem"),
    [
        (
            "hour(d)",
            "date",
            "hour(d) is of a column of type date, and hour takes timestamp | timestamp_ntz; cast it in the query",
        ),
        (
            "day(s)",
            "string",
            "day(s) is of a column of type string, and day takes date | timestamp | timestamp_ntz; cast it in the query",
        ),
        (
            "bucket(2, p)",
            "decimal(38,2)",
            "bucket(2, p) is of a column of type decimal(38,2), and bucket takes at most 30 digits",
        ),
        ("bucket(2, p)", "decimal(38,0)", None),
        ("truncate(2, p)", "decimal(36,9)", None),
        ("truncate(2, f)", "double", "truncate(2, f) is of a column of type double, and truncate takes int | bigint | decimal"),
    ],
)
def test_a_transform_takes_some_types(key: str, kind: str, problem: str | None) -> None:
    hidden = hidden_key(key)
    assert hidden is not None
    told = hidden.type_problem(kind)
    assert told == problem if problem is None else (told or "").startswith(problem)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        (" ds ", [(1, "ds")]),
        ("country,day(ts), bucket(16, id)", [(0, "country"), (8, "day(ts)"), (17, "bucket(16, id)")]),
        ("`a,b`, truncate(4, `c)(`)", [(0, "`a,b`"), (7, "truncate(4, `c)(`)")]),
        ("bucket(16, day(ts)), x", [(0, "bucket(16, day(ts))"), (21, "x")]),
        ("day(ts, x", [(0, "day(ts, x")]),
        ("a,,b", [(0, "a"), (2, ""), (3, "b")]),
    ],
)
def test_keys_in_a_text_are_split_at_commas_of_their_own(text: str, keys: list[tuple[int, str]]) -> None:
    assert list(split_keys(text)) == keys


@pytest.mark.parametrize(
    ("items", "keys"),
    [
        (["bucket(16", "id)", "ds"], [(0, "bucket(16, id)"), (2, "ds")]),
        (["bucket(16", "day(ts))"], [(0, "bucket(16, day(ts))")]),
        (["day(ts", "ds"], [(0, "day(ts"), (1, "ds")]),
    ],
)
def test_keys_that_a_list_of_yaml_took_apart_are_put_together(items: list[str], keys: list[tuple[int, str]]) -> None:
    assert list(rejoined(items)) == keys
