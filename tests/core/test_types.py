"""Types of columns: Spark's DDL text, the tree, Spark's JSON."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.types import (
    MAX_DEPTH,
    Array,
    DataType,
    Field,
    Primitive,
    Struct,
    parse_type,
    replace_primitives,
    type_from_json,
)
from airflow_dynamic_tables.exceptions import UnsupportedError
from tests.support.column_types import column_types

NUMBERS = ["tinyint", "smallint", "int", "bigint", "float", "double"]
OTHERS = ["boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "variant", "void", "interval"]
INTERVALS = ["interval day to second", "interval year to month", "interval hour"]
PRIMITIVES = st.one_of(
    st.sampled_from([*NUMBERS, *OTHERS, *INTERVALS]).map(Primitive),
    st.builds(
        lambda name, length: Primitive(name, (length,)), st.sampled_from(["char", "varchar", "time"]), st.integers(0, 65535)
    ),
    st.tuples(st.integers(1, 38), st.integers(0, 38)).map(lambda sizes: Primitive("decimal", sizes)),
)
TYPES_OF_DDL = column_types(PRIMITIVES)
TYPES = column_types(PRIMITIVES, st.booleans(), st.none() | st.text(max_size=5))


@given(TYPES_OF_DDL)
def test_every_type_comes_back_from_its_text(kind: DataType) -> None:
    assert parse_type(str(kind)) == kind
    assert str(parse_type(str(kind))) == str(kind)


@given(TYPES)
def test_every_type_comes_back_from_json_with_its_comments(kind: DataType) -> None:
    assert type_from_json(json.loads(json.dumps(kind.as_json()))) == kind


@given(TYPES_OF_DDL, st.sampled_from([" ", "\n", "\t  "]))
def test_spaces_and_cases_of_letters_are_the_same_type(kind: DataType, space: str) -> None:
    pieces = re.findall(r"`(?:[^`]|``)*`|\w+|.", str(kind), re.DOTALL)
    quoted = [piece if piece.startswith("`") or piece in ("B1", "a", "_") else piece.upper() for piece in pieces]
    again = parse_type(space.join(quoted))
    assert str(again).lower() == str(kind).lower()


@given(st.text(), st.text("abc<>(),:`' \n0139'int,structarray<map>", max_size=60), TYPES_OF_DDL, st.data())
def test_any_text_is_a_type_or_refused_at_a_place(text: str, similar: str, kind: DataType, data: st.DataObject) -> None:
    ddl = str(kind)
    cut = ddl[: data.draw(st.integers(0, len(ddl)))]
    for candidate in (text, similar, cut, cut + similar):
        try:
            parsed = parse_type(candidate)
        except UnsupportedError as error:
            place = re.search(r"\(character (\d+)\)\.$", str(error))
            assert place is not None
            assert 1 <= int(place[1]) <= len(candidate) + 1
        else:
            assert str(parse_type(str(parsed))) == str(parsed)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("real", "float"),
        ("Decimal", "decimal(10,0)"),
        ("numeric ( 5 )", "decimal(5,0)"),
        ("character(3)", "char(3)"),
        ("timestamp_ltz", "timestamp"),
        ("INTERVAL Day TO second", "interval day to second"),
        ("struct<a int, `b c`: string not null comment 'it\\'s'>", "struct<a:int,`b c`:string>"),
        ("struct<>", "struct<>"),
        ("struct<``:int,``:int>", "struct<``:int,``:int>"),
        ("map<string,array<struct<a:decimal(3,1)>>>", "map<string,array<struct<a:decimal(3,1)>>>"),
    ],
)
def test_what_spark_reads_has_one_spelling(text: str, written: str) -> None:
    assert str(parse_type(text)) == written


def test_what_a_field_tells_besides_its_type_is_known() -> None:
    assert parse_type("struct<a:int NOT NULL COMMENT 'it\\'s \\\\ one',b:int>") == Struct(
        (Field("a", Primitive("int"), False, "it's \\ one"), Field("b", Primitive("int")))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 'the end' where a type is due (character 1)"),
        ("array<", "has 'the end' where a type is due (character 7)"),
        ("array<int", "has 'the end' where '>' is due (character 10)"),
        ("int int", "cannot be read beyond 'int' (character 5)"),
        ("map<string>", "has '>' where ',' is due (character 11)"),
        ("struct<a:int,>", "has '>' where a name is due (character 14)"),
        ("struct<a:int not b>", "has 'b' where 'null' is due (character 18)"),
        ("struct<a:int comment b>", "has 'b' where a text is due (character 22)"),
        ("struct<`a:int>", "has '`' where a name is due (character 8)"),
        ("decimal(x)", "has 'x' where a number is due (character 9)"),
        ("decimal(99999999999999999999)", "where a number is due (character 9)"),
        ("interval day to", "has 'the end' where a unit of time is due"),
        ("`int`", "has '`int`' where a type is due"),
    ],
)
def test_what_is_no_type_is_refused_at_its_place(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        parse_type(text)
    assert str(refused.value).startswith(f"Type {text} ")
    assert message in str(refused.value)


def test_nesting_has_an_end() -> None:
    deepest = "array<" * (MAX_DEPTH - 1) + "int" + ">" * (MAX_DEPTH - 1)
    assert str(parse_type(deepest)) == deepest
    assert str(type_from_json(parse_type(deepest).as_json())) == deepest
    for beyond in (f"array<{deepest}>", "struct<a:" * 100_000, f"map<int,{deepest}>"):
        with pytest.raises(UnsupportedError, match=r"is nested deeper than 100 levels \(character \d+\)\.$") as refused:
            parse_type(beyond)
        assert len(str(refused.value)) < 1000
    with pytest.raises(UnsupportedError, match="nested deeper than 100 levels"):
        type_from_json(Array(parse_type(deepest)).as_json())


def test_a_name_in_json_that_is_younger_than_the_parser_is_kept() -> None:
    assert str(type_from_json("geography(OGC:CRS84, SPHERICAL)")) == "geography(OGC:CRS84, SPHERICAL)"


def test_a_type_that_a_program_defined_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Type udt of a Spark schema is not supported"):
        type_from_json({"type": "udt", "class": "org.example.Point"})


@given(TYPES)
def test_replacing_nothing_changes_nothing(kind: DataType) -> None:
    assert replace_primitives(kind, lambda primitive: primitive) == kind


def test_types_without_parts_are_replaced_at_every_level() -> None:
    kind = parse_type("map<char(3),struct<a:array<char(3)>,b:int>>")
    replaced = replace_primitives(kind, lambda one: Primitive("string") if one.name == "char" else one)
    assert str(replaced) == "map<string,struct<a:array<string>,b:int>>"
