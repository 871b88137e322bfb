"""Types of columns: Spark and the parser of this package agree on every text."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.types import check_columns, parse_type
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.jobs.column_types import ddl
from airflow_dynamic_tables.jobs.spark_3 import from_ddl
from tests.support.spark_version import since

pytestmark = pytest.mark.spark

TEXTS = [
    *["boolean", "byte", "smallint", "INTEGER", "long", "real", "double", "string", "binary", "date", "timestamp"],
    *["timestamp_ntz", "timestamp_ltz", "decimal", "dec(5)", "numeric(20,2)", "char(3)", "character(3)", "varchar(7)", "void"],
    *["variant", "interval day to second", "interval hour", "INTERVAL Year TO month", "time(3)"],
    "array<map<string, struct<a: int, `b``, c`: array<date>>>>",
    "struct<`x:y` int not null comment 'it\\'s one', B bigint, `漢` string>",
    "struct<>",
]

_NAMES = [
    *["boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "real", "double", "date"],
    *["time", "timestamp", "timestamp_ltz", "timestamp_ntz", "string", "binary", "decimal", "dec", "numeric", "void", "interval"],
    *["variant", "char", "character", "varchar", "geometry", "geography", "null", "any", "json", "text", "number", "datetime"],
    *["bool", "uuid", "int8", "float4", "intt", "struct", "array", "map", "object"],
]
SCHEMAS = [
    *(f"a {name}" for name in _NAMES),
    *(f"a {name}(5)" for name in _NAMES if name not in ("geometry", "geography")),
    *["a decimal(10,2)", "a decimal(39)", "a decimal(5,6)", "a decimal(1,2,3)", "a decimal(-1)", "a decimal()", "a varchar(0)"],
    *["a geometry(any)", "a geography(4326)", "a geometry", "a string collate UTF8_LCASE", "a int collate x"],
    *["id INTT, b", "id int, b", "id int b int", "id int,", "a:int", "a int;", "a int null", "a int default 5", "int"],
    *["`a b` int", "`a``b` int", "1a int", "a-b int", "a.b int", "ä int", "'a' int", '"a" int', "_a int", "select int", "a$ int"],
    *["a int not null", "a int not null comment 'x, y'", "a int comment 'x' not null", "a int comment \"x\" 'y'", "A int, a int"],
    *["a string comment 'it''s, b intt'", "a int comment r'\\d'", "a int -- b", "a int /* b */, c int", "a int primary key"],
    *["a: int, b int", "struct<a:int>, b int", "struct <a int, b: string>", "a array<int>", "a array < int > ", "a array<intt>"],
    *["a array<int", "a array<array<int>>>", "a map<string>", "a map<int,int>"],
    *["a struct<>", "a struct<a:int, b string not null comment 'x'>not null", "struct<a:int>", "a double precision"],
    *["a interval year to month", "a interval day to second", "a interval day", "a interval second to day", "a interval week"],
    *["a interval month to day", "a interval month to year", "a timestamp without time zone", "a timestamp without"],
    "a int unsigned",
]


@since(4, 1)  # which has all types that this package reads
@pytest.mark.usefixtures("spark")
def test_spark_and_this_package_refuse_the_same_schemas_of_sources() -> None:
    assert [text for text in SCHEMAS if _is_read_by_spark(text) != _is_read_here(text)] == []


def _is_read_by_spark(text: str) -> bool:
    try:
        return isinstance(from_ddl(text), StructType)  # as the job reads it
    except (PySparkException, Py4JJavaError):  # of a precision of times in Spark 4.3
        return False


def _is_read_here(text: str) -> bool:
    try:
        check_columns(text)
    except UnsupportedError:
        return False
    return True


@since(4, 1)  # which has all types that this package reads
@pytest.mark.usefixtures("spark")
def test_spark_and_this_package_read_the_same_types() -> None:
    for text in TEXTS:
        schema = from_ddl(f"value {text}")
        assert isinstance(schema, StructType)
        kind = schema.fields[0].dataType
        assert parse_type(text).as_json() == kind.jsonValue(), text
        assert ddl(kind) == str(parse_type(text))
        again = from_ddl(f"value {ddl(kind)}")
        assert isinstance(again, StructType)
        assert ddl(again.fields[0].dataType) == ddl(kind)
