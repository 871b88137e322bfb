"""Sources of a stream: each becomes a temporary view of rows that come and come."""

from __future__ import annotations

import json

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.tables.formats import Endless, endless_format
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.files import exactly
from airflow_dynamic_tables.jobs.readers import password_of, schema_of
from airflow_dynamic_tables.jobs.streams.feeds import Feeds

EVERY_FILE = {"maxFileAge": "36500d", "latestFirst": "false", "fileNameOnly": "false", "cleanSource": "off"}
"""Options of Spark's file stream: by default a file that is a week older than the newest one is left out without a word."""


_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1140")
"""Spark's names of the error that it does not have the code for a source; the second one is for Kafka alone."""


def bind(spark: SparkSession, source: SourceBinding, feeds: Feeds, driver: Driver) -> None:
    """Register the view that the query reads.

    :param feeds: of the sources that are tables.
    :raises ValueError: when the source cannot be read as a stream.
    """
    endless = endless_format(source.format)
    if source.is_fed:
        frame = feeds.frame(source.view, EVERY_FILE)
    else:
        frame = _files(spark, source) if endless is None else _endless(spark, source, driver, endless)
    if source.event_time is not None:
        frame = frame.withWatermark(source.event_time.column, source.event_time.delay)
        if source.event_time.deduplicate:
            frame = frame.dropDuplicatesWithinWatermark(list(source.event_time.deduplicate))
    frame.createOrReplaceTempView(source.view)


def _files(spark: SparkSession, source: SourceBinding) -> DataFrame:
    """All files below a folder, each once, when it appears."""
    schema = schema_of(source)
    if schema is None or source.base_path is None:
        raise ValueError(f"source {source.identifier} needs a folder and a schema to be read as a stream")
    reader = spark.readStream.format(source.format).options(**source.options).options(**EVERY_FILE)
    if not source.partition_keys:
        reader = reader.option("recursiveFileLookup", "true")  # what lies in folders of it is read by a batch, too
    # Spark goes by the places of columns, and puts partition keys at the end once it has seen a partition.
    keys = [schema[key] for key in source.partition_keys]
    keys_last = StructType([*(field for field in schema.fields if field not in keys), *keys])
    frame = reader.schema(keys_last).load(exactly(source.base_path))
    return frame.select(*(F.col(quote(name)) for name in schema.names))


def _endless(spark: SparkSession, source: SourceBinding, driver: Driver, endless: Endless) -> DataFrame:
    """Rows that come and come, each once: Spark notes which ones a batch has before it reads them."""
    more = json.loads(password_of(source, driver) or "{}")
    try:
        frame = spark.readStream.format(source.format).options(**source.options).options(**more).load()
    except AnalysisException as error:
        if error.getCondition() not in _NOT_FOUND or not endless.package:
            raise
        raise ValueError(
            f"source {source.identifier} needs Spark's connector for {source.format}; name its package in the definition, for "
            f"example spark: {{packages: '{endless.package}:{spark.version}'}}"
        ) from error
    return frame.select(*endless.columns)
