"""Feeds, streaming settings, and messages between a stream's worker and its job.

A feed is a numbered set of new rows of a table, found by the worker and streamed by the job. Each feed of a source has a folder,
``<number>-<run>``: the worker of that run writes :data:`FEED_FILE` into it, and the job of the run copies the rows into
:data:`ROWS`. Which feeds and runs count is defined by a log of files in the format of Spark's file sink. Each entry of the log is
complete, the newest one is read, and entries are never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.plain import from_plain, to_plain

FEED_FILE = "feed.json"
ROWS = "rows"
LOG = "_spark_metadata"
"""The folder in which Spark looks for a folder's list of files."""

_VERSION = "v1"
_SUFFIX = ".compact"
"""Suffix of entries that are complete in themselves; with this setting Spark expects all entries to be complete:"""

LOG_SETTINGS = {"spark.sql.streaming.fileSink.log.compactInterval": "1"}


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file of a feed: its URI in Hadoop's escaped form, and its size in bytes."""

    uri: str
    bytes: int
    number: int

    @property
    def folder(self) -> str:
        """The name of its feed's folder."""
        return unquote(self.uri).split("/")[-3]


def folder_name(number: int, run: str) -> str:
    """The name of a feed's folder, below that of its source."""
    return f"{number}-{run}"


def number_of(folder: str) -> int | None:
    """The number of the feed in a folder; ``None`` when the folder has none."""
    number, dash, _ = folder.partition("-")
    return int(number) if dash and number.isdecimal() and "/" not in folder else None


def entry_name(number: int) -> str:
    """The name of a feed's entry in the log."""
    return f"{number}{_SUFFIX}"


def newest(names: Iterable[str]) -> int | None:
    """The number of the newest feed that counts, by the names of the files in the log; ``None`` without one."""
    numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


def write_entry(files: Sequence[LoggedFile]) -> str:
    """Serialize an entry of the log with all files, oldest first. Spark reads those that it has not read yet."""
    return "\n".join([_VERSION, *(json.dumps(_status(file)) for file in files)])


def read_entry(text: str) -> tuple[LoggedFile, ...]:
    """Parse the files of an entry.

    :raises ValueError: when the text is not an entry, or is incomplete.
    """
    version, *lines = text.splitlines()
    if version != _VERSION or not lines:
        raise ValueError("not an entry of a log of feeds")
    try:
        told = [json.loads(line) for line in lines]
        return tuple(LoggedFile(str(one["path"]), int(one["size"]), int(one["modificationTime"])) for one in told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an entry of a log of feeds: {error}") from error


def _status(file: LoggedFile) -> dict[str, object]:
    # Spark ignores files that are much older than the newest one, so the time is the number of the feed.
    return {
        "path": file.uri,
        "size": file.bytes,
        "isDir": False,
        "modificationTime": file.number,
        "blockReplication": 1,
        "blockSize": max(file.bytes, 1),
        "action": "add",
    }


JOB_FILE = "job.json"
WORKER_FILE = "worker.json"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time column of a source, and the maximum delay of its rows (in Spark's syntax, ``1 minute``).

    Rows with equal values in the columns of ``deduplicate`` are duplicates; a stream keeps the first one and remembers it for at
    least the delay.
    """

    column: str
    delay: str
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of a streaming job: where Spark stores its checkpoint, and where progress is reported.

    ``feeds`` contains a folder per view for the feeds of its table. New rows are looked for every ``interval`` seconds. A job
    that has received no heartbeat of its worker for ``patience`` seconds ends.
    """

    stream: str
    checkpoint: str
    progress: str
    feeds: str
    interval: float
    patience: float


class _Message:
    """A message exchanged by a file."""

    __slots__ = ()

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text is another message, or is incomplete.
        """
        try:
            return from_plain(cls, json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(shown(f"not a {cls.__name__}: {error}")) from error


@dataclass(frozen=True, slots=True)
class Ask(_Message):
    """The job's request for a plan of a batch.

    ``offsets`` is a digest of the batch's input; the batch was planned ``age`` seconds ago, by the clock of the job.
    """

    batch: int
    offsets: str
    age: float


@dataclass(frozen=True, slots=True)
class Answer(_Message):
    """The worker's response and heartbeat: ``beat`` changes with every heartbeat.

    The batch is written by ``plan`` (a URI). Once it ``is_done``, the table has the batch's rows and the job continues. With
    ``stop``, the job ends after its current batch.
    """

    beat: int = 0
    batch: int | None = None
    plan: str | None = None
    is_done: bool = False
    stop: bool = False


@dataclass(frozen=True, slots=True)
class StreamProgress(_Message):
    """The progress of a stream up to its last ``batch``, planned at ``planned_at`` (ISO 8601, by Spark's clock).

    ``late_rows`` is the number of rows dropped so far as late, as counted by Spark, after partial aggregation. ``state_bytes`` is
    memory. ``sources`` has the end offset of each source.
    """

    batch: int
    planned_at: str
    rows: int = 0
    rows_per_second: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    watermark: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def after(self, told: Mapping[str, Any]) -> StreamProgress:
        """The progress after another batch, from Spark's progress report."""
        operators = told.get("stateOperators") or ()
        sources = told.get("sources") or ()
        return StreamProgress(
            batch=int(told["batchId"]),
            planned_at=str(told["timestamp"]),
            rows=sum(int(source.get("numInputRows") or 0) for source in sources),
            rows_per_second=round(sum(float(source.get("processedRowsPerSecond") or 0) for source in sources), 1),
            state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
            state_bytes=sum(int(operator.get("memoryUsedBytes") or 0) for operator in operators),
            late_rows=self.late_rows + sum(int(operator.get("numRowsDroppedByWatermark") or 0) for operator in operators),
            watermark=(told.get("eventTime") or {}).get("watermark"),
            sources={str(source.get("description")): json.dumps(source.get("endOffset")) for source in sources},
        )


NO_PROGRESS = StreamProgress(batch=-1, planned_at="")
"""The progress before the first batch."""
