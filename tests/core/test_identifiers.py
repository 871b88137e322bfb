"""Names of tables: parsed, completed, written again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier, check_name, folder_name, quote, split_name

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
    assert TableIdentifier("lake", "sales", "stg__orders").task_id == "lake.sales.stg__orders"


@given(identifiers)
def test_airflow_accepts_every_workflow_id(identifier: TableIdentifier) -> None:
    for name in (identifier.workflow_id, identifier.task_id):
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,250}", name)


confusing = st.text(st.sampled_from("a_.- "), min_size=1, max_size=4)


@given(*[st.builds(TableIdentifier, confusing, confusing, confusing)] * 2)
def test_two_tables_never_share_a_workflow(one: TableIdentifier, other: TableIdentifier) -> None:
    assert (one.workflow_id == other.workflow_id) == (one.task_id == other.task_id) == (one == other)


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
    assert one.task_id != other.task_id


WRONG_NAMES = {
    "": "is no name",
    ".": "is no name",
    "..": "is no name",
    "a\0b": "U\\+0000",
    "a\nb": "U\\+000A",
    "a\rb": "U\\+000D",
    "a\x1b[31mb": "U\\+001B",
    "a\x85b": "U\\+0085",
    "a\u2028b": "U\\+2028",
    "a\u202eb": "U\\+202E",
    "a\u2066b": "U\\+2066",
    "a\u200bb": "U\\+200B",
    "a\ufeffb": "U\\+FEFF",
    "a\ud800b": "U\\+D800",
    "x" * 129: "at most 128 bytes, and 'xxxxxxxxxxxxxxxxxxxx'... has 129",
    "売" * 43: "has 129",
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_what_may_not_be_a_name(name: str) -> None:
    with pytest.raises(ValueError, match=WRONG_NAMES[name]):
        check_name(name)
    with pytest.raises(ValueError, match=WRONG_NAMES[name]):
        TableIdentifier("lake", "sales", name).checked()


RIGHT_NAMES = [
    "t",
    "Orders",
    "a.b",
    ".a",
    "a/b",
    'say "hi"',
    "it's",
    "`tick`",
    "Umsätze",
    "売上",
    "\u0645\u06cc\u200c",
    "x" * 128,
]


@pytest.mark.parametrize("name", RIGHT_NAMES)
def test_what_may_be_a_name(name: str) -> None:
    assert check_name(name) == name


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_every_name_has_a_folder_of_its_own(names: list[str]) -> None:
    one, other = (folder_name(name) for name in names)
    assert one != other
    assert not {"/", "\0"} & {*one}
    assert one not in ("", ".", "..")
    assert len(one.encode()) <= 255 - len("-") - 32  # an id follows


def test_folders_are_called_as_they_always_were() -> None:
    assert folder_name("daily_revenue") == "daily_revenue"
    assert folder_name("Umsätze 1") == "Ums%C3%A4tze%201"
