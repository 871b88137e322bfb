"""Iceberg's types as Spark's text, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import FixedType, IcebergType, StructType, TimestampNanoType, TimeType, UUIDType

from airflow_dynamic_tables.clients.iceberg.schemas import columns_of, schema_of, to_iceberg, to_spark
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import Primitive
from airflow_dynamic_tables.exceptions import UnsupportedError
from tests.support.column_types import column_types

PLAIN = ["boolean", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"]
PRIMITIVES = st.sampled_from([*map(Primitive, PLAIN), Primitive("decimal", (38, 18))])
DDL = column_types(PRIMITIVES, fewest_fields=1).map(str)


@given(DDL)
def test_every_type_of_the_job_comes_back(ddl: str) -> None:
    assert to_spark(to_iceberg(ddl)) == ddl


@given(st.lists(DDL, min_size=1, max_size=5))
def test_a_schema_keeps_its_columns(types: list[str]) -> None:
    columns = tuple(Column(f"c {number}", kind, comment=f"of {number}") for number, kind in enumerate(types))
    assert columns_of(schema_of(columns)) == columns


def test_names_of_nested_fields_are_kept() -> None:
    kind = to_iceberg("struct<`a``:1`:int,```b```:array<string>,c:date>")
    assert isinstance(kind, StructType)
    assert [field.name for field in kind.fields] == ["a`:1", "`b`", "c"]
    assert all(not field.required for field in kind.fields)


@pytest.mark.parametrize(("kind", "ddl"), [(UUIDType(), "string"), (FixedType(16), "binary")])
def test_types_that_only_iceberg_has_are_read_as_the_nearest(kind: IcebergType, ddl: str) -> None:
    assert to_spark(kind) == ddl


@pytest.mark.parametrize("kind", [TimeType(), TimestampNanoType()])
def test_types_without_a_counterpart_in_spark_are_refused(kind: IcebergType) -> None:
    with pytest.raises(UnsupportedError, match=r"has no counterpart in Spark\."):
        to_spark(kind)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("interval day", "Iceberg has no type interval; cast it to another type in the query"),
        ("array<variant>", "Iceberg has no type variant"),
        ("int int", "Type int int cannot be read beyond 'int'"),
        ("array<int", "Type array<int has 'the end' where '>' is due"),
    ],
)
def test_other_types_are_refused_by_the_name_of_the_column(ddl: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        schema_of([Column("fine", "int"), Column("odd one", ddl)])
    assert str(caught.value).startswith("Column 'odd one': ")
    assert message in str(caught.value)


def test_names_that_iceberg_takes_for_one_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"Iceberg cannot tell these columns apart: .*a\.b"):
        schema_of([Column("a.b", "int"), Column("a", "struct<b:int>")])
