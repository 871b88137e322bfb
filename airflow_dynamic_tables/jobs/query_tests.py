"""Unit tests of queries in a Spark session, and the encoding of their rows: JSON lists with primitive values as text."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.query_test_plans import (
    MOST_ROWS,
    GivenTable,
    QueryTestOutcome,
    QueryTestOutcomes,
    QueryTestPlan,
    QueryTestPlans,
    ReturnedRows,
)
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.jobs.batch import planned_rows, prepare
from airflow_dynamic_tables.jobs.column_types import ddl, storable
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.expectations import without_dropped
from airflow_dynamic_tables.jobs.messages import message
from airflow_dynamic_tables.jobs.readers import bind

_WITH_NULLS = {"ignoreNullFields": "false"}


def first_rows(frame: DataFrame, limit: int) -> ReturnedRows:
    """Run a query that may have duplicate column names, and encode its first rows."""
    rows = _encoded_rows(frame.toDF(*map(str, range(len(frame.columns)))), limit)
    columns = tuple(replace(column, name=name) for column, name in zip(rows.columns, frame.columns, strict=True))
    return ReturnedRows(columns, rows.rows)


def _returned_rows(frame: DataFrame) -> ReturnedRows:
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
    """Convert primitive parts to text: arrays stay arrays, structs have field numbers as names, maps become arrays of pairs."""
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


_WIDER = ("tinyint", "smallint", "int", "bigint")
"""Each type includes all values of those before it."""


def run_query_tests(spark: SparkSession, tests: QueryTestPlans, driver: Driver) -> QueryTestOutcomes:
    """Run all tests; a failing test does not affect others."""
    return QueryTestOutcomes(tuple(_outcome(spark, test, driver) for test in tests.plans))


def _outcome(spark: SparkSession, test: QueryTestPlan, driver: Driver) -> QueryTestOutcome:
    started = time.monotonic()
    try:
        _set(driver, test.refresh)
        prepare(spark, test.refresh, driver)
        for given in test.given:
            _given_rows(spark, given, test.refresh, driver).createOrReplaceTempView(given.view)
        given_views = {given.view for given in test.given}
        for source in test.refresh.sources:
            if source.view not in given_views:
                bind(spark, source, driver)
        if test.limit is not None:
            returned = first_rows(planned_rows(spark, test.refresh, driver), test.limit)
            return QueryTestOutcome(round(time.monotonic() - started, 3), returned)
        rows, _ = without_dropped(storable(planned_rows(spark, test.refresh, driver), driver.tell), test.refresh.expectations)
        returned = _returned_rows(rows)
        expected = _returned_rows(_rows_of(spark, test.expected, test.refresh, driver)) if test.expected is not None else None
    except Exception as error:
        return QueryTestOutcome(round(time.monotonic() - started, 3), error=message(error))
    return QueryTestOutcome(round(time.monotonic() - started, 3), returned, expected)


def _set(driver: Driver, plan: RefreshPlan) -> None:
    driver.settings.change(plan.settings)


def _rows_of(spark: SparkSession, query: str, plan: RefreshPlan, driver: Driver) -> DataFrame:
    """The rows of a query that reads no tables and uses only the plan's abilities."""
    driver.check_query(query, ())
    driver.check_allowed(replace(plan, query=query))
    return spark.sql(query)


def _given_rows(spark: SparkSession, given: GivenTable, plan: RefreshPlan, driver: Driver) -> DataFrame:
    frame = _rows_of(spark, given.query, plan, driver)
    names = [column.name for column in given.columns]
    if repeated := sorted({name for name in frame.columns if frame.columns.count(name) > 1}):
        raise ValueError(f"the rows of {given.identifier} have more than one column {repeated[0]!r}")
    others = [name for name in frame.columns if name not in names]
    if given.others is not None and (unknown := [name for name in others if name not in given.others]):
        raise ValueError(f"{given.identifier} has no column {unknown[0]!r}{did_you_mean(unknown[0], (*names, *given.others))}")
    known = [_fitting(frame, column, given.identifier) for column in given.columns]
    rows = frame.select(*known, *map(F.col, map(quote, others)))
    return rows.dropDuplicates(list(given.deduplicate)) if given.deduplicate else rows


def _fitting(frame: DataFrame, column: Column, table: str) -> SparkColumn:
    """One column of a table; NULL when the rows lack it."""
    if column.name not in frame.columns:
        return F.lit(None).cast(column.type).alias(column.name)
    kind = ddl(frame.schema[column.name].dataType)
    if not _fits(kind, column.type):
        raise ValueError(f"{table}: {column.name!r} is {column.type}, and the rows have {kind} in it; cast it in their query")
    return F.col(quote(column.name)).cast(column.type).alias(column.name)


def _fits(kind: str, wanted: str) -> bool:
    if kind in _WIDER and wanted in _WIDER:
        return _WIDER.index(kind) <= _WIDER.index(wanted)
    is_number = kind in (*_WIDER, "float", "double") or kind.startswith("decimal")
    return kind in (wanted, "void") or (is_number and wanted == "double")
