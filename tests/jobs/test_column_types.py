"""Types of columns: Spark and the parser of this package agree on every text."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.jobs.column_types import ddl

pytestmark = pytest.mark.spark

TEXTS = [
    *["boolean", "byte", "smallint", "INTEGER", "long", "real", "double", "string", "binary", "date", "timestamp"],
    *["timestamp_ntz", "timestamp_ltz", "decimal", "dec(5)", "numeric(20,2)", "char(3)", "character(3)", "varchar(7)", "void"],
    *["variant", "interval day to second", "interval hour", "INTERVAL Year TO month", "time(3)"],
    "array<map<string, struct<a: int, `b``, c`: array<date>>>>",
    "struct<`x:y` int not null comment 'it\\'s one', B bigint, `漢` string>",
    "struct<>",
]


@pytest.mark.usefixtures("spark")
def test_spark_and_this_package_read_the_same_types() -> None:
    for text in TEXTS:
        schema = StructType.fromDDL(f"value {text}")
        assert isinstance(schema, StructType)
        kind = schema.fields[0].dataType
        assert parse_type(text).as_json() == kind.jsonValue(), text
        assert ddl(kind) == str(parse_type(text))
        again = StructType.fromDDL(f"value {ddl(kind)}")
        assert isinstance(again, StructType)
        assert ddl(again.fields[0].dataType) == ddl(kind)
