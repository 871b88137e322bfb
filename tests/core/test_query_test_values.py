"""Which texts are values of a type, which values are the same, and what Spark is given for them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.query_test_values import cell_of, cell_of_spark, comparable, sql_of, to_plain
from airflow_dynamic_tables.core.types import parse_type

BERLIN = "Europe/Berlin"


def cell(value: object, kind: str, zone: str = BERLIN) -> object:
    """The cell of a value, with the type as DDL."""
    return cell_of(value, parse_type(kind), zone)


@pytest.mark.parametrize(
    ("text", "kind", "spelled"),
    [
        ("yes", "boolean", "true"),
        ("False", "boolean", "false"),
        ("-007", "int", "-7"),
        ("9223372036854775807", "bigint", "9223372036854775807"),
        ("1.5", "decimal(10,2)", "1.50"),
        ("1e2", "decimal(5,1)", "100.0"),
        ("-0.00", "decimal(4,2)", "0.00"),
        ("99999999999999999999999999999999999999", "decimal(38,0)", "99999999999999999999999999999999999999"),
        ("1", "double", "1.0"),
        ("0.1", "float", "0.1"),
        ("0.10000000149011612", "float", "0.1"),
        (".nan", "double", "NaN"),
        ("-Inf", "double", "-Infinity"),
        ("-0.0", "double", "-0.0"),
        (" a ", "string", " a "),
        ("", "string", ""),
        ("NULL", "string", "NULL"),
        ("ab", "varchar(2)", "ab"),
        ("cafe", "binary", "CAFE"),
        ("2024-02-29", "date", "2024-02-29"),
        ("2024-01-31", "timestamp", "2024-01-31 00:00:00+01:00"),
        ("2024-01-31T06:00:00Z", "timestamp", "2024-01-31 07:00:00+01:00"),
        ("2024-07-31 06:00:00.5", "timestamp", "2024-07-31 06:00:00.500000+02:00"),
        ("2024-10-27 02:30:00+02:00", "timestamp", "2024-10-27 02:30:00+02:00"),
        ("2024-03-31 02:30:00", "timestamp_ntz", "2024-03-31 02:30:00"),
    ],
)
def test_a_value_has_one_spelling(text: str, kind: str, spelled: str) -> None:
    assert cell(text, kind) == spelled
    assert cell(spelled, kind) == spelled


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("ja", "boolean", "'ja' is no boolean; write true or false"),
        ("1.0", "int", "'1.0' is no int; write a whole number"),
        ("1_000", "int", "is no int"),
        ("٣", "int", "is no int"),
        ("128", "tinyint", "128 is beyond tinyint, which reaches from -128 to 127"),
        ("1.005", "decimal(10,2)", "1.005 has more than the 2 digits that decimal(10,2) has behind the point"),
        ("100000000", "decimal(10,2)", "100000000 is beyond decimal(10,2), which has 8 digits before the point"),
        ("1e9999", "decimal(10,2)", "is beyond decimal(10,2)"),
        ("NaN", "decimal(10,2)", "is no decimal(10,2)"),
        ("1e999", "double", "1e999 is beyond double"),
        ("1e39", "float", "1e39 is beyond float"),
        ("abc", "varchar(2)", "'abc' is longer than varchar(2)"),
        ("xyz", "binary", "write hexadecimal digits such as CAFE"),
        ("2024-02-30", "date", "'2024-02-30' is no date; write for example 2024-01-31"),
        ("20240131", "date", "is no date"),
        ("2024-01-31 25:00:00", "timestamp", "is no timestamp"),
        ("2024-03-31 02:30:00", "timestamp", "2024-03-31 02:30:00 does not exist in Europe/Berlin"),
        ("2024-10-27 02:30:00", "timestamp", "2024-10-27 02:30:00 is there twice in Europe/Berlin"),
        ("0001-01-01 00:00:00+05:00", "timestamp", "is at the end of the calendar"),
        ("2024-01-31 00:00:00Z", "timestamp_ntz", "has an offset, and a timestamp_ntz has none; remove it"),
        ("1", "array<int>", "'1' is no array<int>; write a list"),
        (["1", "x"], "array<int>", "'x' is no int"),
        (["1"], "int", "['1'] is no int"),
        ({"a": "1"}, "struct<b:int>", "'a' is no field of struct<b:int>; it has b"),
        ({"1": "a", "01": "b"}, "map<int,string>", "has a key twice"),
        ("1", "interval day to second", "give this table as 'sql'"),
    ],
)
def test_what_is_no_value_is_refused(value: object, kind: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is compared below
        cell(value, kind)
    assert message in str(refused.value)


def test_values_with_parts() -> None:
    kind = "struct<a:array<int>,m:map<string,decimal(4,2)>,s:struct<x:boolean,y:string>>"
    written = {"m": {"b": "1", "a": None}, "a": ["1", None], "s": {"x": "true"}}
    expected = (("1", None), (("a", None), ("b", "1.00")), ("true", None))
    assert cell(written, kind) == expected
    assert to_plain(expected, parse_type(kind)) == {
        "a": ["1", None],
        "m": {"a": None, "b": "1.00"},
        "s": {"x": "true", "y": None},
    }
    assert cell({}, kind) == (None, None, None)
    assert cell([], "array<array<int>>") == ()


def test_the_order_of_a_map_means_nothing_and_that_of_an_array_does() -> None:
    assert cell({"a": "1", "b": "2"}, "map<string,int>") == cell({"b": "2", "a": "1"}, "map<string,int>")
    assert cell(["1", "2"], "array<int>") != cell(["2", "1"], "array<int>")


def test_zero_is_zero_and_nan_is_nan() -> None:
    kind = parse_type("array<double>")
    assert comparable(cell(["-0.0", "NaN"], "array<double>"), kind) == comparable(cell(["0", "nan"], "array<double>"), kind)  # type: ignore[arg-type]


def test_what_spark_wrote_is_spelled_as_what_people_write() -> None:
    assert cell_of_spark("1704067200000000", parse_type("timestamp"), BERLIN) == "2024-01-01 01:00:00+01:00"
    assert cell_of_spark("1.0E10", parse_type("double"), BERLIN) == cell("10000000000", "double")
    assert cell_of_spark("2024-01-01 00:00:00.5", parse_type("timestamp_ntz"), BERLIN) == "2024-01-01 00:00:00.500000"
    assert cell_of_spark([{"0": "b", "1": None}, {"0": "a", "1": "1"}], parse_type("map<string,int>"), BERLIN) == (
        ("a", "1"),
        ("b", None),
    )
    assert cell_of_spark("+12024-01-01", parse_type("date"), BERLIN) == "+12024-01-01"
    assert cell_of_spark(str(10**18), parse_type("timestamp"), BERLIN) == f"{10**18} microseconds since 1970"


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_a_decimal_keeps_its_value(number: Decimal) -> None:
    assert Decimal(str(cell(str(number), "decimal(20,4)"))) == number


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_keeps_its_value(number: float) -> None:
    again = cell(str(cell(repr(number), "float")), "float")
    assert again == cell(repr(number), "float")


@pytest.mark.parametrize(
    ("value", "kind", "sql"),
    [
        (None, "varchar(3)", "CAST(NULL AS string)"),
        ("it's", "string", r"'it\'s'"),
        ("2024-01-01 01:00:00", "timestamp", "timestamp_micros(1704067200000000)"),
        ("CAFE", "binary", "X'CAFE'"),
        ([], "array<int>", "CAST(array() AS array<int>)"),
        ({"a b": "1"}, "struct<`a b`:int>", "CAST(named_struct('a b', CAST('1' AS int)) AS struct<`a b`:int>)"),
    ],
)
def test_what_spark_is_given(value: object, kind: str, sql: str) -> None:
    assert sql_of(cell_of(value, parse_type(kind), BERLIN), parse_type(kind)) == sql
