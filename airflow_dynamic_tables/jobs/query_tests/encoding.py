"""Rows as text: every value without parts becomes a text that has all of it, and a row a JSON list."""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.query_tests.plan import MOST_ROWS, ReturnedRows
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.jobs.column_types import ddl

_WITH_NULLS = {"ignoreNullFields": "false"}


def first_rows(frame: DataFrame, limit: int) -> ReturnedRows:
    """Run a query whose columns may share a name, and write its first rows down."""
    rows = _encoded_rows(frame.toDF(*map(str, range(len(frame.columns)))), limit)
    columns = tuple(replace(column, name=name) for column, name in zip(rows.columns, frame.columns, strict=True))
    return ReturnedRows(columns, rows.rows)


def returned_rows(frame: DataFrame) -> ReturnedRows:
    """Run a query, and write its rows down.

    :raises ValueError: when there are more than a test is for.
    """
    returned = _encoded_rows(frame, MOST_ROWS + 1)
    if len(returned.rows) > MOST_ROWS:
        raise ValueError(f"the query returns more than {MOST_ROWS:,} rows; give its sources fewer")
    return returned


def _encoded_rows(frame: DataFrame, limit: int) -> ReturnedRows:
    fields = frame.schema.fields
    columns = tuple(Column(field.name, ddl(field.dataType), field.nullable) for field in fields)
    values = [_encoded(F.col(quote(field.name)), field.dataType).alias(str(at)) for at, field in enumerate(fields)]
    encoded = frame.select(F.to_json(F.struct(*values), _WITH_NULLS)).limit(limit).collect()
    rows = (list(json.loads(row[0]).values()) for row in encoded)
    return ReturnedRows(columns, tuple(json.dumps(row, ensure_ascii=False) for row in rows))


def _encoded(value: SparkColumn, kind: T.DataType) -> SparkColumn:
    """A value as texts: in arrays; in structs, by the number of the field; a map is an array of structs of two."""
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: _encoded(item, element))
    if isinstance(kind, T.MapType):
        pair = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
        return F.transform(F.map_entries(value), lambda entry: _encoded(entry, pair))
    if isinstance(kind, T.StructType):
        parts = [_encoded(value.getField(field.name), field.dataType).alias(str(at)) for at, field in enumerate(kind.fields)]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(value).cast("string")
    return F.hex(value) if isinstance(kind, T.BinaryType) else value.cast("string")
