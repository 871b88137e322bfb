"""Tables as sources of a stream: the worker says which files are new, the job copies their rows to where Spark streams them.

The files are read as every refresh reads them, so a stream sees the same rows as the batch query. Spark then streams the copies
by a log of files that grows by all files of a feed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_dynamic_tables.core.refresh.plan import Feed, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.streaming.feeds import (
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
from airflow_dynamic_tables.jobs.readers import frame_of, schema_of

_PAUSE = 0.2
"""Seconds between two looks for the first feeds."""

_SURELY_READ = 3
"""A batch that is told of may be the next one, and the one before may have been planned before a feed was there."""


class Fed:
    """One table that a stream reads.

    :param folder: that of its feeds.
    :param run: of the job, which copies the feeds of its own worker only.
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
        """Whether it has a first feed, so that a query can begin."""
        return self._number is not None

    def frame(self, options: Mapping[str, str]) -> DataFrame:
        """The rows of its feeds, as a stream.

        :param options: of Spark's file stream.
        :raises ValueError: when the folder has a name that Spark would take for a pattern, so that it would not look for the log.
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
        """Copy the next feed, if there is one, and write it into the log.

        :raises FileExistsError: when another job has written that feed.
        """
        number = 0 if self._number is None else self._number + 1
        folder = f"{self._folder}/{folder_name(number, self._run)}"
        try:
            feed = Feed.from_json(read_text(self._spark, f"{folder}/{FEED_FILE}"))
        except Exception:  # there is none, or it is being written; what each file system raises then is its own
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
        """Note the newest batch of which Spark has told; a feed that was there before is read by the next ones."""
        self._batch = batch
        for file in self._files:
            self._written_at.setdefault(file.number, batch)

    def _is_read(self, number: int) -> bool:
        """Whether the batch with a feed is surely over, so that Spark need not hear of its files any more."""
        known = self._written_at.get(number)
        return known is not None and self._batch is not None and self._batch >= known + _SURELY_READ

    def _entry(self, number: int) -> str:
        return f"{self._folder}/{LOG}/{entry_name(number)}"


class Feeds:
    """All tables that the query of a stream reads, by their views."""

    def __init__(self, spark: SparkSession, plan: RefreshPlan, feeds: str, driver: Driver) -> None:
        for name, value in LOG_SETTINGS.items():
            spark.conf.set(name, value)
        fed = [source for source in plan.sources if source.is_fed]
        self._by_view = {one.view: Fed(spark, one, f"{feeds}/{one.view}", plan.token, driver) for one in fed}

    def begin(self, look: Callable[[], object]) -> None:
        """Wait until every table has its first feed: before, a batch would claim to have read what is there.

        :param look: raises when it is no use to wait any longer.
        """
        while not all(fed.is_there for fed in self._by_view.values()):
            look()
            self.publish()
            time.sleep(_PAUSE)

    def publish(self) -> None:
        """Publish what the worker has found meanwhile; see :meth:`Fed.publish`."""
        for fed in self._by_view.values():
            fed.publish()

    def note(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Note what Spark has told of its batches."""
        newest_batch = max((int(one["batchId"]) for one in told), default=None)
        if newest_batch is not None:
            for fed in self._by_view.values():
                fed.note(newest_batch)

    def frame(self, view: str, options: Mapping[str, str]) -> DataFrame:
        """The stream behind a view; see :meth:`Fed.frame`."""
        return self._by_view[view].frame(options)
