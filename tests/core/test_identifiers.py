"""Names of tables: parsed, completed, written again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier, quote, split_name

NAMES = {
    "t": ("t",),
    "a.b.c": ("a", "b", "c"),
    " a . b ": ("a", "b"),
    "`a.b`.c": ("a.b", "c"),
    "`a``b`": ("a`b",),
    "`2024`.`ü`.`x y`": ("2024", "ü", "x y"),
}


@pytest.mark.parametrize(("text", "parts"), NAMES.items())
def test_dotted_names(text: str, parts: tuple[str, ...]) -> None:
    assert split_name(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a. .b", "`a", "``", "`a`b", "a`b`", "`a` .b"])
def test_what_is_no_dotted_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a dotted name"):
        split_name(text)


parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
identifiers = st.builds(TableIdentifier, parts, parts, parts)


@given(identifiers)
def test_an_identifier_survives_being_written(identifier: TableIdentifier) -> None:
    assert TableIdentifier.parse(str(identifier)) == identifier
    assert TableIdentifier.parse(identifier.sql) == identifier
    assert split_name(str(identifier.path)) == (identifier.database, identifier.table)


def test_defaults_complete_a_name() -> None:
    full = TableIdentifier("lake", "sales", "orders")
    assert TableIdentifier.parse("orders", catalog="lake", database="sales") == full
    assert TableIdentifier.parse("sales.orders", catalog="lake", database="other") == full
    assert TableIdentifier.parse("lake.sales.orders", catalog="other", database="other") == full
    assert full.path == ObjectPath("sales", "orders")


@pytest.mark.parametrize(
    ("text", "defaults", "message"),
    [
        ("a.b.c.d", {}, "has 4 parts"),
        ("a.b", {}, "names no catalog"),
        ("a", {"catalog": "c"}, "names no database"),
        ("a", {"database": "d"}, "names no catalog"),
    ],
)
def test_a_name_that_stays_incomplete(text: str, defaults: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableIdentifier.parse(text, **defaults)


def test_only_what_needs_quotes_has_them() -> None:
    assert str(TableIdentifier("lake", "my db", "t`1")) == "lake.`my db`.`t``1`"
    assert TableIdentifier("lake", "db", "t").sql == "`lake`.`db`.`t`"
    assert quote("a`b") == "`a``b`"


def test_the_workflow_is_named_after_the_table() -> None:
    assert TableIdentifier("lake", "sales", "daily_revenue").workflow_id == "dynamic_table__lake__sales__daily_revenue"
    assert TableIdentifier("lake", "sales", "stg__orders").workflow_id == "dynamic_table__lake__sales__stg__orders"


@given(identifiers)
def test_airflow_accepts_every_workflow_id(identifier: TableIdentifier) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,250}", identifier.workflow_id)


confusing = st.text(st.sampled_from("a_.- "), min_size=1, max_size=4)


@given(*[st.builds(TableIdentifier, confusing, confusing, confusing)] * 2)
def test_two_tables_never_share_a_workflow(one: TableIdentifier, other: TableIdentifier) -> None:
    assert (one.workflow_id == other.workflow_id) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TableIdentifier("a__b", "c", "t"), TableIdentifier("a", "b__c", "t")),
        (TableIdentifier("a", "b_", "t"), TableIdentifier("a", "b", "_t")),
        (TableIdentifier("a", "b", "t.1"), TableIdentifier("a", "b", "t 1")),
        (TableIdentifier("a", "b", "t" * 300), TableIdentifier("a", "b", "t" * 301)),
    ],
)
def test_tables_whose_workflows_would_look_alike(one: TableIdentifier, other: TableIdentifier) -> None:
    assert one.workflow_id != other.workflow_id
