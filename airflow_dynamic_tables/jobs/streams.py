"""Sources of a stream: each becomes a temporary view of a streaming DataFrame."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.formats import Endless, endless_format
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import Feed, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.streaming.stream_plans import (
    FEED_FILE,
    LOG,
    LOG_SETTINGS,
    ROWS,
    LoggedFile,
    entry_name,
    folder_name,
    newest,
    read_entry,
    write_entry,
)
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.files import create_text, exactly, list_names, qualified, read_text
from airflow_dynamic_tables.jobs.readers import frame_of, password_of, schema_of

EVERY_FILE = {"maxFileAge": "36500d", "latestFirst": "false", "fileNameOnly": "false", "cleanSource": "off"}
"""Options of Spark's file stream; by default it silently ignores files a week older than the newest one."""


_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1140")
"""Spark's error conditions for a missing connector; the second one is specific to Kafka."""


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
    """All files below a folder, each read once when it appears."""
    schema = schema_of(source)
    if schema is None or source.base_path is None:
        raise ValueError(f"source {source.identifier} needs a folder and a schema to be read as a stream")
    reader = spark.readStream.format(source.format).options(**source.options).options(**EVERY_FILE)
    if not source.partition_keys:
        reader = reader.option("recursiveFileLookup", "true")  # a batch reads files in subfolders, too
    # Spark resolves columns by position, and moves partition keys to the end once it has seen a partition.
    keys = [schema[key] for key in source.partition_keys]
    keys_last = StructType([*(field for field in schema.fields if field not in keys), *keys])
    frame = reader.schema(keys_last).load(exactly(source.base_path))
    return frame.select(*(F.col(quote(name)) for name in schema.names))


def _endless(spark: SparkSession, source: SourceBinding, driver: Driver, endless: Endless) -> DataFrame:
    """Rows of an unbounded source, each read once: Spark records the offsets of a batch before it reads them."""
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


_PAUSE = 0.2
"""Seconds between polls for the first feeds."""

_SURELY_READ = 3
"""Number of batches after which a feed has certainly been read.

The reported batch may be the next one, and the one before may have been planned before the feed existed.
"""


class Fed:
    """One table that a stream reads.

    :param folder: that of its feeds.
    :param run: of the job, which copies only feeds of its own worker.
    """

    def __init__(self, spark: SparkSession, source: SourceBinding, folder: str, run: str, driver: Driver) -> None:
        self._spark = spark
        self._source = source
        self._folder = folder
        self._run = run
        self._driver = driver
        self._number = newest(list_names(spark, f"{folder}/{LOG}"))
        self._files = () if self._number is None else read_entry(read_text(spark, self._entry(self._number)))
        self._batch: int | None = None
        self._written_at: dict[int, int] = {}

    @property
    def is_there(self) -> bool:
        """Return whether the first feed is available, so that a query can start."""
        return self._number is not None

    def frame(self, options: Mapping[str, str]) -> DataFrame:
        """The rows of its feeds as a stream.

        :param options: of Spark's file stream.
        :raises ValueError: when the folder's name contains pattern characters, for which Spark would not look for the log.
        """
        schema = schema_of(self._source)
        if schema is None:
            raise ValueError(f"source {self._source.identifier} needs a schema to be read as a stream")
        if exactly(self._folder) != self._folder:
            raise ValueError(
                f"the folder of the table has signs of a pattern in its name ({self._folder}), through which Spark cannot stream "
                "tables; keep the table elsewhere, or use strategy micro-refresh"
            )
        reader = self._spark.readStream.format("parquet").options(**options).option("recursiveFileLookup", "true")
        return reader.schema(schema).load(self._folder)

    def publish(self) -> None:
        """Copy the next feed, if available, and add it to the log.

        :raises FileExistsError: when another job has written that feed.
        """
        number = 0 if self._number is None else self._number + 1
        folder = f"{self._folder}/{folder_name(number, self._run)}"
        try:
            feed = Feed.from_json(read_text(self._spark, f"{folder}/{FEED_FILE}"))
        except Exception:  # there is none, or it is being written; each file system raises its own error
            return
        rows = f"{folder}/{ROWS}"
        frame_of(self._spark, feed.source, self._driver).write.mode("overwrite").parquet(rows)
        copied = [LoggedFile(qualified(self._spark, uri), size, number) for uri, size in self._driver.list_files(rows)]
        if not copied:
            raise ValueError(f"Spark wrote no file for feed {number} of {self._source.identifier}")
        files = (*(file for file in self._files if not self._is_read(file.number)), *copied)
        create_text(self._spark, self._entry(number), write_entry(files))
        self._number = number
        self._files = files

    def note(self, batch: int) -> None:
        """Record the newest batch reported by Spark; existing feeds are read by the following batches."""
        self._batch = batch
        for file in self._files:
            self._written_at.setdefault(file.number, batch)

    def _is_read(self, number: int) -> bool:
        """Return whether a feed has certainly been read, so that its files can be omitted from the log."""
        known = self._written_at.get(number)
        return known is not None and self._batch is not None and self._batch >= known + _SURELY_READ

    def _entry(self, number: int) -> str:
        return f"{self._folder}/{LOG}/{entry_name(number)}"


class Feeds:
    """All tables that a stream's query reads, by their views."""

    def __init__(self, spark: SparkSession, plan: RefreshPlan, feeds: str, driver: Driver) -> None:
        for name, value in LOG_SETTINGS.items():
            spark.conf.set(name, value)
        fed = [source for source in plan.sources if source.is_fed]
        self._by_view = {one.view: Fed(spark, one, f"{feeds}/{one.view}", plan.token, driver) for one in fed}

    def begin(self, look: Callable[[], object]) -> None:
        """Wait until every table has its first feed; an earlier batch would count the existing rows as read.

        :param look: raises when waiting must end.
        """
        while not all(fed.is_there for fed in self._by_view.values()):
            look()
            self.publish()
            time.sleep(_PAUSE)

    def publish(self) -> None:
        """Publish the feeds that the worker has found; see :meth:`Fed.publish`."""
        for fed in self._by_view.values():
            fed.publish()

    def note(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Record Spark's progress reports."""
        newest_batch = max((int(one["batchId"]) for one in told), default=None)
        if newest_batch is not None:
            for fed in self._by_view.values():
                fed.note(newest_batch)

    def frame(self, view: str, options: Mapping[str, str]) -> DataFrame:
        """The stream behind a view; see :meth:`Fed.frame`."""
        return self._by_view[view].frame(options)
