"""Unit tests in one session, one after the other: each as the refresh would run its query, over rows that were given."""

from __future__ import annotations

import time
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.query_tests.plan import (
    GivenTable,
    QueryTestOutcome,
    QueryTestOutcomes,
    QueryTestPlan,
    QueryTestPlans,
)
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.jobs.batch import planned_rows, prepare
from airflow_dynamic_tables.jobs.column_types import ddl, storable
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.expectations import without_dropped
from airflow_dynamic_tables.jobs.messages import message
from airflow_dynamic_tables.jobs.query_tests.encoding import first_rows, returned_rows
from airflow_dynamic_tables.jobs.readers import bind

_WIDER = ("tinyint", "smallint", "int", "bigint")
"""Each of these has all values of those before it."""


def run_query_tests(spark: SparkSession, tests: QueryTestPlans, driver: Driver) -> QueryTestOutcomes:
    """Run all tests; one that fails keeps no other from running."""
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
        returned = returned_rows(rows)
        expected = returned_rows(_rows_of(spark, test.expected, test.refresh, driver)) if test.expected is not None else None
    except Exception as error:
        return QueryTestOutcome(round(time.monotonic() - started, 3), error=message(error))
    return QueryTestOutcome(round(time.monotonic() - started, 3), returned, expected)


def _set(driver: Driver, plan: RefreshPlan) -> None:
    """Set what the definition says of Spark; whatever the test before it had set, settling takes away."""
    driver.settings.change(plan.settings)


def _rows_of(spark: SparkSession, query: str, plan: RefreshPlan, driver: Driver) -> DataFrame:
    """The rows of a query that reads nothing, and does nothing but what a plan may do.

    :raises ValueError: when it does.
    """
    driver.check_query(query, ())
    driver.check_allowed(replace(plan, query=query))
    return spark.sql(query)


def _given_rows(spark: SparkSession, given: GivenTable, plan: RefreshPlan, driver: Driver) -> DataFrame:
    """The rows of a table with the columns and types that the table has.

    :raises ValueError: when those of the rows do not fit; names the table.
    """
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
    """One column of a table, which may be missing in the rows."""
    if column.name not in frame.columns:
        return F.lit(None).cast(column.type).alias(column.name)
    kind = ddl(frame.schema[column.name].dataType)
    if not _fits(kind, column.type):
        raise ValueError(f"{table}: {column.name!r} is {column.type}, and the rows have {kind} in it; cast it in their query")
    return F.col(quote(column.name)).cast(column.type).alias(column.name)


def _fits(kind: str, wanted: str) -> bool:
    """Whether a value of one type is the same in another one."""
    if kind in _WIDER and wanted in _WIDER:
        return _WIDER.index(kind) <= _WIDER.index(wanted)
    is_number = kind in (*_WIDER, "float", "double") or kind.startswith("decimal")
    return kind in (wanted, "void") or (is_number and wanted == "double")
