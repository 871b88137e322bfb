"""Types of columns as Hive names them, and Spark's JSON of a schema."""

from __future__ import annotations

import json

import pytest

from airflow_dynamic_tables.clients.metastore.tables import hive_type, same_type, schema_from_json, schema_to_json, spark_type
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

COLUMNS = (
    Column("Id", "bigint", nullable=False, comment="key"),
    Column("code", "varchar(10)"),
    Column("deep", "map<string,array<struct<a:tinyint,`b c`:decimal(10,2)>>>"),
    Column("codes", "array<char(5)>"),
)


def test_a_schema_comes_back_from_its_json() -> None:
    assert schema_from_json(schema_to_json(COLUMNS)) == COLUMNS


def test_texts_with_a_length_are_strings_beside_their_lengths() -> None:
    _, code, _, codes = json.loads(schema_to_json(COLUMNS))["fields"]
    assert (code["type"], code["metadata"]) == ("string", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"})
    assert codes["type"]["elementType"] == "string"
    assert codes["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "array<char(5)>"}


def test_a_schema_with_a_text_that_is_no_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Type array< has 'the end' where a type is due"):
        schema_to_json([Column("a", "array<")])


@pytest.mark.parametrize(
    ("spark", "hive"),
    [
        ("timestamp_ntz", "timestamp"),
        ("timestamp_ltz", "timestamp"),
        ("array<struct<timestamp_ntz:timestamp_ntz>>", "array<struct<timestamp_ntz:timestamp>>"),
        ("decimal(10,2)", "decimal(10,2)"),
    ],
)
def test_hive_has_one_timestamp(spark: str, hive: str) -> None:
    assert hive_type(spark) == hive
    assert same_type(spark, hive)


@pytest.mark.parametrize(
    ("hive", "spark"),
    [
        ("decimal", "decimal(10,0)"),
        ("array<decimal>", "array<decimal(10,0)>"),
        ("timestamp with local time zone", "timestamp"),
        ("struct<a-b:int>", "struct<`a-b`:int>"),
        (
            "struct<order id:int,b:struct<größe:decimal(9,2),a-b:int>>",
            "struct<`order id`:int,b:struct<`größe`:decimal(9,2),`a-b`:int>>",
        ),
        ("struct<`order id`:int,`a``b`:int>", "struct<`order id`:int,`a``b`:int>"),
        ("uniontype<int,string>", "uniontype<int,string>"),
    ],
)
def test_types_of_hive_as_spark_writes_them(hive: str, spark: str) -> None:
    assert spark_type(hive) == spark


def test_types_are_compared_though_spark_has_no_such_type() -> None:
    assert same_type("uniontype<int,string>", "uniontype<int,string>")
    assert not same_type("uniontype<int,string>", "int")
    assert same_type("struct<A:int>", "struct<a:int>")


ODD = "struct<`order id`:int,plain:map<string,array<struct<`größe`:decimal(9,2),`a-b`:int,` x `:date>>>>"


def test_names_of_fields_are_bare_in_the_text_of_hive() -> None:
    text = "struct<order id:int,plain:map<string,array<struct<größe:decimal(9,2),a-b:int, x :date>>>>"
    assert hive_type(ODD) == text
    assert spark_type(text) == spark_type(ODD) == ODD
    assert same_type(ODD, spark_type(text))


@pytest.mark.parametrize("name", ["a:b", "a,b", "a<b", "a>b", "a``b", ""])
def test_names_that_the_text_of_hive_cannot_have(name: str) -> None:
    with pytest.raises(UnsupportedError, match="A Hive table cannot have a nested field"):
        hive_type(f"array<struct<`{name}`:int>>")
