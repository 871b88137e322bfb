"""A streaming query whose batches a worker commits; the job itself never writes to the table.

Spark records a batch's offsets before it runs, and its completion after :meth:`_Batches.store` returns, when the table has its
rows. After a failure Spark reruns the last batch with the same offsets, and the worker knows whether it was committed.
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
from airflow_dynamic_tables.core.streaming.stream_plans import (
    JOB_FILE,
    NO_PROGRESS,
    WORKER_FILE,
    Answer,
    Ask,
    StreamProgress,
    StreamSettings,
)
from airflow_dynamic_tables.jobs.batch import planned_rows, prepare, store
from airflow_dynamic_tables.jobs.column_types import storable
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.files import read_text, write_text
from airflow_dynamic_tables.jobs.streams import Feeds, bind

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
    """Report the progress of a query and publish new feeds, until it ends or is stopped."""
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
        """Check that the worker has not stopped the job.

        :raises TimeoutError: as of :meth:`look`.
        """
        if self.look().stop:
            raise _StoppedError("the worker stopped before the stream began")

    def tell(self, question: Ask) -> None:
        """Write a request to the worker."""
        write_text(self._spark, f"{self._folder}/{JOB_FILE}", question.to_json())

    def wait(self, until: Callable[[Answer], bool]) -> Answer:
        """Wait for a response that matches a condition; fails when the worker stops.

        :raises TimeoutError: as of :meth:`look`.
        """
        while not until(said := self.look()):
            if said.stop:
                raise _StoppedError("the worker stopped before the batch was committed; it is run again")
            time.sleep(_AT_WORK)
        return said

    def text(self, uri: str) -> str:
        """Read a small file written by the worker or by Spark."""
        return read_text(self._spark, uri)


class _Batches:
    """Handles every batch of a query."""

    def __init__(self, worker: _Worker, settings: StreamSettings, driver: Driver) -> None:
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
            if late := self._driver.late_rows(self._query):
                result = replace(result, expectations=(*result.expectations, late_rows(late)))
            self._driver.write_text(plan.result_location, result.to_json())
            self._worker.wait(lambda said: said.batch == batch and said.is_done)

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
