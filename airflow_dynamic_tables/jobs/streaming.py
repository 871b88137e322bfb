"""A streaming query whose batches a worker commits; the job itself never writes to the table.

Each source becomes a temporary view of a streaming DataFrame. Spark records a batch's offsets before it runs, and its completion
after :meth:`_Batches.store` returns, when the table has its rows. After a failure Spark reruns the last batch with the same
offsets, and the worker knows whether it was committed.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.formats import Endless, endless_format
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.expectations import late_rows
from airflow_dynamic_tables.core.refresh.plan import Feed, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.streaming.stream_plans import (
    FEED_FILE,
    JOB_FILE,
    LOG,
    LOG_SETTINGS,
    NO_PROGRESS,
    ROWS,
    WORKER_FILE,
    Answer,
    Ask,
    LoggedFile,
    StreamProgress,
    StreamSettings,
    entry_name,
    folder_name,
    newest,
    read_entry,
    write_entry,
)
from airflow_dynamic_tables.jobs.batch import planned_rows, prepare, store
from airflow_dynamic_tables.jobs.column_types import storable
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.files import create_text, exactly, list_names, qualified, read_text, write_text
from airflow_dynamic_tables.jobs.readers import frame_of, password_of, schema_of
from airflow_dynamic_tables.jobs.spark_3 import condition

EVERY_FILE = {"maxFileAge": "36500d", "latestFirst": "false", "fileNameOnly": "false", "cleanSource": "off"}
"""Options of Spark's file stream; by default it silently ignores files a week older than the newest one."""


_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1140", "KAFKA_DATA_SOURCE_NOT_ENABLED")
"""Spark's error conditions for a missing connector; the second one is that of Kafka, the third one since Spark 4.3."""


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
        if condition(error) not in _NOT_FOUND or not endless.package:
            raise
        scala = spark._jvm.scala.util.Properties.versionNumberString().rpartition(".")[0]  # type: ignore[union-attr]
        raise ValueError(
            f"source {source.identifier} needs Spark's connector for {source.format}; name its package in the definition, for "
            f"example spark: {{packages: '{endless.package}_{scala}:{spark.version}'}}"
        ) from error
    return frame.select(*endless.columns)


_PAUSE = 0.2
"""Seconds between polls for the first feeds."""

_SURELY_READ = 3
"""Number of batches after which a feed has certainly been read.

The reported batch may be the next one, and the one before may have been planned before the feed existed.
"""


class _Fed:
    """One table that a stream reads.

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
        self._by_view = {one.view: _Fed(spark, one, f"{feeds}/{one.view}", plan.token, driver) for one in fed}

    def begin(self, look: Callable[[], object]) -> None:
        """Wait until every table has its first feed; an earlier batch would count the existing rows as read.

        :param look: raises when waiting must end.
        """
        while not all(fed.is_there for fed in self._by_view.values()):
            look()
            self.publish()
            time.sleep(_PAUSE)

    def publish(self) -> None:
        """Publish the feeds that the worker has found; see :meth:`_Fed.publish`."""
        for fed in self._by_view.values():
            fed.publish()

    def note(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Record Spark's progress reports."""
        newest_batch = max((int(one["batchId"]) for one in told), default=None)
        if newest_batch is not None:
            for fed in self._by_view.values():
                fed.note(newest_batch)

    def frame(self, view: str, options: Mapping[str, str]) -> DataFrame:
        """The stream behind a view; see :meth:`_Fed.frame`."""
        return self._by_view[view].frame(options)


_IDLE = 1
"""Seconds between polls of worker and progress while no batch runs."""

_AT_WORK = 0.05
"""Seconds between polls for a response."""


class _StoppedError(Exception):
    """The worker requested the end of the job."""


def follow(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> None:
    """Run the plan's query as a stream until the worker stops it.

    :raises ValueError: when the query cannot be a stream, or its rows cannot be stored.
    :raises TimeoutError: when the worker's heartbeat stops.
    """
    if plan.stream is None:
        raise ValueError(f"the plan of {plan.identifier} is not one of a stream")
    prepare(spark, plan, driver)
    worker = _Worker(spark, plan, plan.stream)
    feeds = Feeds(spark, plan, plan.stream.feeds, driver)
    feeds.begin(worker.check)
    for source in plan.sources:
        bind(spark, source, feeds, driver)
    batches = _Batches(spark, worker, plan.stream, driver)
    rows = storable(planned_rows(spark, plan, driver), driver.tell)
    writer = rows.writeStream.outputMode("append").queryName(plan.stream.stream)
    writer = writer.option("checkpointLocation", plan.stream.checkpoint).trigger(processingTime=f"{plan.stream.interval} seconds")
    query = writer.foreachBatch(batches.store).start()
    try:
        _watch(spark, plan.stream, query, worker, feeds)
    finally:
        batches.end()
        query.stop()


def _watch(spark: SparkSession, settings: StreamSettings, query: StreamingQuery, worker: _Worker, feeds: Feeds) -> None:
    progress = _last_progress(spark, settings)
    while not worker.look().stop:
        is_over = query.awaitTermination(_IDLE)  # raises the query's error
        told_lately = query.recentProgress
        recent = [told for told in told_lately if told["batchId"] > progress.batch]
        for told in recent:
            progress = progress.after(told)
        if recent:
            write_text(spark, settings.progress, progress.to_json())
        if is_over:
            return
        feeds.note(told_lately)
        feeds.publish()


def _last_progress(spark: SparkSession, settings: StreamSettings) -> StreamProgress:
    try:
        return StreamProgress.from_json(read_text(spark, settings.progress))
    except Exception:  # there is none before the first batch, and each file system raises its own error
        return NO_PROGRESS


class _Worker:
    """The worker that commits the batches; messages are exchanged through files."""

    def __init__(self, spark: SparkSession, plan: RefreshPlan, settings: StreamSettings) -> None:
        self._spark = spark
        self._folder = plan.stage
        self._patience = settings.patience
        self._last = Answer()
        self._heard_at = time.monotonic()

    def look(self) -> Answer:
        """Read the worker's latest message.

        :raises TimeoutError: when its heartbeat stopped.
        """
        now = time.monotonic()
        try:
            said = Answer.from_json(read_text(self._spark, f"{self._folder}/{WORKER_FILE}"))
        except Exception:  # it is being written, or the storage is temporarily unavailable
            said = self._last
        if said.beat != self._last.beat:
            self._heard_at = now
        if now - self._heard_at > self._patience:
            raise TimeoutError(f"the worker of this stream has given no sign of life for {self._patience:.0f} s; the job ends")
        self._last = said
        return said

    def check(self) -> None:
        """Check that the worker has not stopped the job."""
        if self.look().stop:
            raise _StoppedError("the worker stopped before the stream began")

    def tell(self, question: Ask) -> None:
        write_text(self._spark, f"{self._folder}/{JOB_FILE}", question.to_json())

    def wait(self, until: Callable[[Answer], bool]) -> Answer:
        """Wait for a response that matches a condition; fails when the worker stops."""
        while not until(said := self.look()):
            if said.stop:
                raise _StoppedError("the worker stopped before the batch was committed; it is run again")
            time.sleep(_AT_WORK)
        return said

    def text(self, uri: str) -> str:
        return read_text(self._spark, uri)


class _Batches:
    """Handles every batch of a query."""

    def __init__(self, spark: SparkSession, worker: _Worker, settings: StreamSettings, driver: Driver) -> None:
        self._spark = spark
        self._worker = worker
        self._driver = driver
        self._query = settings.stream
        self._offsets = f"{settings.checkpoint}/offsets"
        self._running = threading.Lock()
        self._ended = False

    def store(self, frame: DataFrame, batch: int) -> None:
        """Write a batch by the worker's plan, and wait until it is committed."""
        with self._running:
            if self._ended:
                raise _StoppedError("the stream was stopped; the batch is run again")
            self._worker.tell(self._question(batch))
            answer = self._worker.wait(lambda said: said.batch == batch and (said.is_done or said.plan is not None))
            if answer.is_done or answer.plan is None:
                # The batch is already committed, but Spark has to process it completely to update its state.
                frame.write.format("noop").mode("overwrite").save()
                return
            plan = RefreshPlan.from_json(self._worker.text(answer.plan))
            result = store(frame.sparkSession, plan, self._driver, frame)
            if late := self._late_rows():
                result = replace(result, expectations=(*result.expectations, late_rows(late)))
            self._driver.write_text(plan.result_location, result.to_json())
            self._worker.wait(lambda said: said.batch == batch and said.is_done)

    def _late_rows(self) -> int:
        """Count the rows dropped as late so far in the current batch; Spark itself reports them only after it."""
        running = next(active for active in self._spark.streams.active if active.name == self._query)
        batch: Any = running._jsq.streamingQuery().lastExecution().executedPlan()
        return _dropped_by(batch)

    def end(self) -> None:
        """Start no more batches, and wait for the running one."""
        self._ended = True
        with self._running:
            return

    def _question(self, batch: int) -> Ask:
        """The request for a batch; Spark's offset log is the same when a batch is rerun."""
        log = self._worker.text(f"{self._offsets}/{batch}")
        planned_at = json.loads(log.splitlines()[1])["batchTimestampMs"] / 1000
        return Ask(batch, hashlib.sha256(log.encode()).hexdigest(), max(0.0, time.time() - planned_at))


_DROPPED = "numRowsDroppedByWatermark"


def _dropped_by(operator: Any) -> int:
    """Sum the metric of an operator and of those below it."""
    counted = operator.metrics().get(_DROPPED)
    inputs = operator.children()
    own = int(counted.get().value()) if counted.isDefined() else 0
    return own + sum(_dropped_by(inputs.apply(number)) for number in range(inputs.size()))
