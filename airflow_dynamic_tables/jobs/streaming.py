"""A streaming query whose batches a worker commits: the job itself never touches the table.

Spark notes what a batch reads before it runs, and that it is done after :meth:`_Batches.store` returned, which is when the table
has its rows. After a death it runs the last batch again with the same offsets, and the worker knows whether the table has it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from airflow_dynamic_tables.core.refresh.expectations import late_rows
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.streaming.streams import (
    JOB_FILE,
    NO_PROGRESS,
    WORKER_FILE,
    Answer,
    Ask,
    Progress,
    StreamSettings,
)
from airflow_dynamic_tables.jobs.batch import planned_rows, prepare, store
from airflow_dynamic_tables.jobs.column_types import storable
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.files import read_text, write_text
from airflow_dynamic_tables.jobs.streams.feeds import Feeds
from airflow_dynamic_tables.jobs.streams.sources import bind

_IDLE = 1
"""Seconds between two looks at worker and progress while no batch runs."""

_AT_WORK = 0.05
"""Seconds between two looks for the answer to a question."""


class _StoppedError(Exception):
    """The worker wants the job to end."""


def follow(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> None:
    """Run the plan's query as a stream until the worker says that it is enough.

    :raises ValueError: when the query cannot be a stream, or its rows cannot be stored.
    :raises TimeoutError: when the worker gives no sign of life any more.
    """
    if plan.stream is None:
        raise ValueError(f"the plan of {plan.identifier} is not one of a stream")
    prepare(spark, plan, driver)
    worker = _Worker(spark, plan, plan.stream)
    feeds = Feeds(spark, plan, plan.stream.feeds, driver)
    feeds.begin(worker.check)
    for source in plan.sources:
        bind(spark, source, feeds, driver)
    batches = _Batches(worker, plan.stream, driver)
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
    """Tell the progress of a query, and give it new feeds, until it ends or shall end."""
    progress = _last_progress(spark, settings)
    while not worker.look().stop:
        is_over = query.awaitTermination(_IDLE)  # raises what went wrong in it
        told_lately = query.recentProgress
        news = [told for told in told_lately if told["batchId"] > progress.batch]
        for told in news:
            progress = progress.after(told)
        if news:
            write_text(spark, settings.progress, progress.to_json())
        if is_over:
            return
        feeds.note(told_lately)
        feeds.publish()


def _last_progress(spark: SparkSession, settings: StreamSettings) -> Progress:
    try:
        return Progress.from_json(read_text(spark, settings.progress))
    except Exception:  # there is none before the first batch, and what each file system raises then is its own
        return NO_PROGRESS


class _Worker:
    """Who commits the batches, heard through a file."""

    def __init__(self, spark: SparkSession, plan: RefreshPlan, settings: StreamSettings) -> None:
        self._spark = spark
        self._folder = plan.stage
        self._patience = settings.patience
        self._last = Answer()
        self._heard_at = time.monotonic()

    def look(self) -> Answer:
        """What the worker says.

        :raises TimeoutError: when it gives no sign of life any more.
        """
        now = time.monotonic()
        try:
            said = Answer.from_json(read_text(self._spark, f"{self._folder}/{WORKER_FILE}"))
        except Exception:  # it is being written just now, or the storage does not answer for a moment
            said = self._last
        if said.beat != self._last.beat:
            self._heard_at = now
        if now - self._heard_at > self._patience:
            raise TimeoutError(f"the worker of this stream has given no sign of life for {self._patience:.0f} s; the job ends")
        self._last = said
        return said

    def check(self) -> None:
        """Check that it wants the job to go on.

        :raises TimeoutError: as of :meth:`look`.
        """
        if self.look().stop:
            raise _StoppedError("the worker stopped before the stream began")

    def tell(self, question: Ask) -> None:
        """Ask."""
        write_text(self._spark, f"{self._folder}/{JOB_FILE}", question.to_json())

    def wait(self, until: Callable[[Answer], bool]) -> Answer:
        """Wait for an answer; a worker that stops meanwhile gives none any more.

        :raises TimeoutError: as of :meth:`look`.
        """
        while not until(said := self.look()):
            if said.stop:
                raise _StoppedError("the worker stopped before the batch was committed; it is run again")
            time.sleep(_AT_WORK)
        return said

    def text(self, uri: str) -> str:
        """A small file that it wrote, or Spark."""
        return read_text(self._spark, uri)


class _Batches:
    """What is done with every batch of a query."""

    def __init__(self, worker: _Worker, settings: StreamSettings, driver: Driver) -> None:
        self._worker = worker
        self._driver = driver
        self._query = settings.stream
        self._offsets = f"{settings.checkpoint}/offsets"
        self._running = threading.Lock()
        self._ended = False

    def store(self, frame: DataFrame, batch: int) -> None:
        """Write a batch where the worker says, and wait until it is committed."""
        with self._running:
            if self._ended:
                raise _StoppedError("the stream was stopped; the batch is run again")
            self._worker.tell(self._question(batch))
            answer = self._worker.wait(lambda said: said.batch == batch and (said.is_done or said.plan is not None))
            if answer.is_done or answer.plan is None:
                # The table has it; what Spark itself remembers from batch to batch comes of running all of it.
                frame.write.format("noop").mode("overwrite").save()
                return
            plan = RefreshPlan.from_json(self._worker.text(answer.plan))
            result = store(frame.sparkSession, plan, self._driver, frame)
            if late := self._driver.late_rows(self._query):
                result = replace(result, expectations=(*result.expectations, late_rows(late)))
            self._driver.write_text(plan.result_location, result.to_json())
            self._worker.wait(lambda said: said.batch == batch and said.is_done)

    def end(self) -> None:
        """Begin no batch any more, and wait for the one that runs."""
        self._ended = True
        with self._running:
            return

    def _question(self, batch: int) -> Ask:
        """What the worker has to know of a batch; Spark's log of offsets is the same when a batch is run again."""
        log = self._worker.text(f"{self._offsets}/{batch}")
        planned_at = json.loads(log.splitlines()[1])["batchTimestampMs"] / 1000
        return Ask(batch, hashlib.sha256(log.encode()).hexdigest(), max(0.0, time.time() - planned_at))
