"""What a streaming job and the worker that commits its batches tell each other, as JSON in two small files.

The job runs from a zip with nothing but pyspark, so this module keeps to the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.plain import from_plain, to_plain

JOB_FILE = "job.json"
WORKER_FILE = "worker.json"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column that says when a row of a source happened, and how much later it may come (Spark's words, ``1 minute``).

    Rows that are alike in the columns of ``deduplicate`` are one, of which a stream keeps the first for at least so long.
    """

    column: str
    delay: str
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a streaming job runs: where Spark keeps what it remembers between batches, and where its progress is told.

    The feeds of its tables lie in ``feeds``, in a folder for each view. New rows are looked for every ``interval`` seconds. A job
    that has seen no sign of life of its worker for ``patience`` seconds ends.
    """

    stream: str
    checkpoint: str
    progress: str
    feeds: str
    interval: float
    patience: float


class _Message:
    """A value that is told by a file."""

    __slots__ = ()

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when it is something else, or not whole.
        """
        try:
            return from_plain(cls, json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(shown(f"not a {cls.__name__}: {error}")) from error


@dataclass(frozen=True, slots=True)
class Ask(_Message):
    """The job asks where to write a batch.

    ``offsets`` is a digest of what the batch reads; it was planned ``age`` seconds ago, by the clock of the job.
    """

    batch: int
    offsets: str
    age: float


@dataclass(frozen=True, slots=True)
class Answer(_Message):
    """The worker answers, and lives: ``beat`` is another number whenever it says so.

    The batch shall be written as ``plan`` (its URI) says. Once it ``is_done`` the job may go on: the table has its rows. With
    ``stop`` the job ends after the batch at which it is.
    """

    beat: int = 0
    batch: int | None = None
    plan: str | None = None
    is_done: bool = False
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Progress(_Message):
    """How far a stream has come with its last ``batch``, planned at ``planned_at`` (ISO 8601, by Spark's clock).

    ``late_rows`` are those that the stream left out so far because the watermark was beyond them, as Spark counts them: after
    they were put together in part. ``state_bytes`` is memory. ``sources`` says how far each is read.
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

    def after(self, told: Mapping[str, Any]) -> Progress:
        """The progress after a further batch, of which Spark has told this."""
        operators = told.get("stateOperators") or ()
        sources = told.get("sources") or ()
        return Progress(
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


NO_PROGRESS = Progress(batch=-1, planned_at="")
"""Before the first batch."""
