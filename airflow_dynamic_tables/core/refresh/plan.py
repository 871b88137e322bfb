"""Input and output of the Spark job, both as JSON.

The job runs from a zip with pyspark only, so this module depends on the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.plain import REQUIRED, from_plain, to_plain
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, ExpectationResult
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import Column, Rebuild, TableLayout
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime, StreamSettings
from airflow_dynamic_tables.core.types import NO_LIMITS, TypeLimits
from airflow_dynamic_tables.core.versions import Base, StreamPosition

PLAN_FILE = "_plan.json"
RESULT_FILE = "_result.json"
ERROR_FILE = "_error.json"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Some files of a source. The partition keys are in the names of the folders below ``base_path``, otherwise in ``values``.

    Rows that are ``deleted``, by their positions in the part's single file, are not read. ``partition`` is the text of the
    partition of all files, if neither folders nor values tell it, because its keys are in the files.
    """

    files: tuple[str, ...]
    base_path: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    deleted: tuple[int, ...] = ()
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A date or time column of a server, with its Spark type; it is read as the column ``number``, in days or microseconds."""

    name: str
    number: str
    type: str


@dataclass(frozen=True, slots=True)
class SourceBinding:
    """One table that the query reads, bound to a version.

    ``view`` is the temporary view that the job registers and ``RefreshPlan.query`` reads, ``format`` is Spark's name of the
    reader. Exactly ``files`` are read, with ``base_path`` as the root of Hive-style partition directories and ``schema`` (Spark
    DDL) when it is known; or, when ``table`` is set, Spark reads that table of ``spark.sql.catalog.*`` at snapshot ``version``,
    or, if ``format`` is none of files, the table at that location. A table of a server has no files (``has_files``): ``options``
    contain everything except the password, which the job reads from environment variable ``password_variable``; ``times`` are its
    columns that are read as numbers. A source whose files are not below one root, or whose partitions only its format
    knows, has ``parts`` instead of ``files``.

    With ``conn_id``, that variable holds further options as JSON, including secrets, from the Airflow connection of that id.
    ``state`` is the recorded state for the ledger, if known. The job of a stream discovers new files below ``base_path`` itself,
    unless the source ``is_fed`` by its worker; ``event_time`` defines the event time of its rows and, for any job, their
    deduplication.
    """

    identifier: str
    view: str
    format: str
    version: str
    files: tuple[str, ...] = field(default=(), metadata=REQUIRED)
    base_path: str | None = None
    schema: str | None = None
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    password_variable: str | None = None
    parts: tuple[SourcePart, ...] = field(default=(), metadata=REQUIRED)
    state: SourceState | None = None
    has_files: bool = True
    times: tuple[TimeColumn, ...] = ()
    event_time: EventTime | None = None
    is_fed: bool = False
    conn_id: str | None = None

    @property
    def every_part(self) -> tuple[SourcePart, ...]:
        """The parts, or the files as one part."""
        return self.parts or (SourcePart(self.files, self.base_path),)

    @property
    def reads(self) -> list[SourcePart]:
        """The files by reads of Spark: those of all partitions whose keys are in the files are read together."""
        together: dict[str, tuple[SourcePart, list[str]]] = {}
        for part in self.every_part:
            alike = replace(part, files=(), partition=None)
            together.setdefault(repr(alike), (alike, []))[1].extend(part.files)
        return [replace(alike, files=tuple(files)) for alike, files in together.values()]


@dataclass(frozen=True, slots=True)
class Feed:
    """New rows of a table that a stream reads, as found at ``seen_at`` (timezone-aware).

    ``source`` reads exactly these rows; its ``state`` is the state of the table after they are read.
    """

    source: SourceBinding
    seen_at: datetime

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Feed:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text is not a feed, or is incomplete.
        """
        return _parse(cls, text)


@dataclass(frozen=True, slots=True)
class FunctionBinding:
    """One catalog function that the query calls.

    ``function`` is the temporary function that the job registers and ``RefreshPlan.query`` calls. ``code`` is a class (language
    ``java``) or ``module:callable`` (``python``), ``returns`` is Spark DDL; ``jars`` and ``py_files`` are URIs of its code. A
    function is ``deterministic`` if the catalog declares it so.
    """

    identifier: str
    function: str
    language: str
    code: str
    returns: str | None = None
    jars: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class BoundTime:
    """A part of the query that Spark would evaluate by its clock, between two offsets, and its value as SQL.

    If it ``is_name``, a word without parentheses, Spark takes a column of that name where there is one.
    """

    start: int
    end: int
    sql: str
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class Merge:
    """How the rows of a query that reads only the new rows of a source are merged into those of its table.

    ``statement`` returns the merged rows of the planned partitions. It reads the query's rows as the view ``new``, and the rows
    that the table has, as the view of ``current``. Without it, the new rows are only added to the table.
    """

    current: SourceBinding
    new: str = ""
    statement: str = ""

    @property
    def only_adds(self) -> bool:
        """Whether no rows of the table are replaced."""
        return not self.statement


DROPPED_KEYS = ("dropped_on", "dropped_by")
"""Partition keys of a table of dropped rows: the day of the refresh in UTC, and its identifier."""

DROPPED_COLUMNS = (*DROPPED_KEYS, "dropped_at", "dropped_for")
"""The first columns of a table of dropped rows, with the time of the refresh and the names of the violated expectations."""


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """The table that gets the rows that expectations drop, and the stage in it; the refresh started ``at`` (timezone-aware)."""

    identifier: str
    token: str
    stage: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """How many rows of a difference the job returns, and the columns, if any, by whose values rows belong together."""

    rows: int
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """The complete plan of one refresh; the job looks up nothing else.

    ``partitions`` is the exact set that is replaced. ``statement`` is the query for people, ``query`` the same with temporary
    views and functions in place of tables and catalog functions, and ``times`` the values of its functions of time. The job
    writes only below ``stage``. Its data files have Spark's ``file_format``; they contain the partition columns with
    ``keys_in_files``, otherwise only the folder names do.

    ``comment`` is the table's, ``comments`` maps column names to theirs. ``data_timestamp`` is the time up to which the table is
    fresh after this refresh; ``None`` when only manually named partitions are refreshed. ``base`` is the current snapshot at
    planning time, ``None`` before the first commit; ``stands_on`` is the version at that time, which the commit requires.
    ``settings`` are the Spark settings of the definition that affect the meaning of the query. ``allowed`` are the query's
    abilities beyond SQL. ``layout`` is the layout that rows must fit, ``None`` before the first commit; ``rebuild`` is what this
    refresh may change of it. ``limits`` are types and names that columns cannot have. ``recipe`` is a digest, for the ledger, of
    everything that determines the rows except the content of the sources. With a ``sink``, data files are copied there, and only
    the job knows them.

    With ``merge``, the query reads only the new rows of one source.

    With ``compares``, the current rows of the table, the job compares its rows with them, and nothing is committed; numbers of
    floating-point types are equal within ``float_tolerance``. With ``shows``, too, these are rows of another query, and the
    result has their difference.

    With ``dropped``, the rows that expectations drop are written there, see :meth:`of_dropped`.

    With ``compared``, the current rows of the table, expectations compare its rows with those of the other partitions; the commit
    needs the table to be at ``stands_on``.

    ``references`` are the other tables that expectations refer to; the query does not read them.

    With ``stream``, the job runs continuously: each batch has its own plan with the stream ``position`` that the table reaches
    and the position that it ``follows``, to which rows are added; without the latter, the rows replace the table.
    """

    token: str
    identifier: str
    schedule_time: datetime
    action: RefreshAction
    reason: str
    statement: str
    query: str
    stage: str
    file_format: str
    keys_in_files: bool
    partition_keys: tuple[str, ...] = ()
    partitions: PartitionSet = WHOLE_TABLE
    sources: tuple[SourceBinding, ...] = ()
    functions: tuple[FunctionBinding, ...] = ()
    times: tuple[BoundTime, ...] = ()
    comment: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    timezone: str = "UTC"
    expectations: tuple[Expectation, ...] = ()
    data_timestamp: datetime | None = None
    base: str | None = None
    stands_on: Base | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    allowed: Allowed = EVERYTHING
    layout: TableLayout | None = None
    rebuild: Rebuild = Rebuild.NOTHING
    recipe: str | None = None
    stream: StreamSettings | None = None
    position: StreamPosition | None = None
    follows: StreamPosition | None = None
    sink: Sink | None = None
    limits: TypeLimits = NO_LIMITS
    compares: SourceBinding | None = None
    float_tolerance: float | None = None
    shows: ShownDifference | None = None
    merge: Merge | None = None
    dropped: DroppedRows | None = None
    compared: SourceBinding | None = None
    references: tuple[SourceBinding, ...] = ()

    def of_dropped(self, dropped: DroppedRows) -> RefreshPlan:
        """Return the plan of writing the rows that expectations drop: each refresh has a partition of its own."""
        values = (dropped.at.astimezone(UTC).date().isoformat(), self.token)
        return replace(
            self,
            token=dropped.token,
            identifier=dropped.identifier,
            stage=dropped.stage,
            partition_keys=DROPPED_KEYS,
            partitions=PartitionSet.of([dict(zip(DROPPED_KEYS, values, strict=True))]),
            sources=(),
            comment=None,
            expectations=(),
            data_timestamp=None,
            base=None,
            stands_on=None,
            layout=None,
            rebuild=Rebuild.NOTHING,
            merge=None,
            dropped=None,
            compared=None,
            references=(),
        )

    @property
    def data_location(self) -> str:
        """The folder of the job's data files."""
        return f"{self.stage}/data"

    @property
    def rows_location(self) -> str:
        """The location of the rows that the commit publishes: data files, or a table of a server."""
        return self.sink.table if self.sink is not None else self.data_location

    @property
    def plan_location(self) -> str:
        """The location of this plan as JSON."""
        return f"{self.stage}/{PLAN_FILE}"

    @property
    def result_location(self) -> str:
        """The location of the job's result, which it writes last."""
        return f"{self.stage}/{RESULT_FILE}"

    @property
    def error_location(self) -> str:
        """The location of the job's error when it fails."""
        return f"{self.stage}/{ERROR_FILE}"

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RefreshPlan:
        """Parse the output of :meth:`to_json`, or a plan of an earlier release, which contains the table's format.

        :raises ValueError: when the text is not a plan.
        """
        return _parse(cls, text, _with_layout)


def named_times(query: str, times: Sequence[BoundTime]) -> dict[str, str]:
    """Return the values of the functions of time of a query, by their text."""
    return {query[time.start : time.end]: time.sql for time in times}


@dataclass(frozen=True, slots=True)
class JobError:
    """The reason why the job failed: Spark's message without the Java stack.

    ``is_misfit`` is set when the columns of the query do not fit the table, so that a retry would fail, too.
    """

    message: str
    application_id: str
    is_misfit: bool = False

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> JobError:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text is not an error.
        """
        return _parse(cls, text)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file in the stage: full URI and size in bytes."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference between the ``rows`` of a partition of a table and those that its query returns, as multisets.

    ``missing`` are the rows that only the query returns, ``extra`` those that only the table has.
    """

    partition: Mapping[str, str | None]
    rows: int
    missing: int
    extra: int


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The difference between rows before and after a change, as multisets, in the columns that both have.

    ``removed`` are the rows that are only before, ``added`` those that are only after, each with some of them as texts.
    ``changed`` is the number of values that differ by column, of rows whose key occurs once before and once after; ``None`` if
    there is no key.
    """

    before: int
    after: int
    removed: int
    added: int
    removed_rows: tuple[Mapping[str, str | None], ...] = ()
    added_rows: tuple[Mapping[str, str | None], ...] = ()
    changed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """The result of the job. ``seconds`` is the duration of each step.

    ``partitions`` lists those that received rows, so it is not the replaced set: it may be empty, and is always empty for an
    unpartitioned table. ``expectations`` are in the order of the plan's, followed by the late rows that a batch of a stream
    dropped. Without ``files``, the rows are in the plan's sink, where they occupy ``table_bytes``. ``drift`` lists the partitions
    with rows of a plan that compares; it is ``None`` if nothing was compared, and so is the ``difference`` from another query.
    """

    token: str
    application_id: str
    rows: int
    files: tuple[StagedFile, ...]
    columns: tuple[Column, ...]
    partitions: tuple[Mapping[str, str], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    expectations: tuple[ExpectationResult, ...] = ()
    table_bytes: int = 0
    drift: tuple[Drift, ...] | None = None
    difference: RowDifference | None = None

    @property
    def bytes(self) -> int:
        """Size of all data files, or of the stage table, in bytes."""
        return sum(file.bytes for file in self.files) + self.table_bytes

    @property
    def dropped(self) -> int:
        """Number of violations of expectations that drop rows. A row that violates two of them counts twice."""
        return sum(one.violations for one in self.expectations if one.action == Action.DROP)

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RefreshResult:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text is not a result (e.g. truncated).
        """
        return _parse(cls, text)


def _with_layout(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace the table's format in an old plan by the properties of its files."""
    if "format" not in fields:
        return fields
    traits = FORMATS[fields["format"]]
    others = {name: value for name, value in fields.items() if name != "format"}
    return {**others, "file_format": traits.file_format, "keys_in_files": traits.keys_in_files}


def _parse(cls: type[_T], text: str, adapt: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields) -> _T:
    try:
        return from_plain(cls, adapt(json.loads(text)))
    except (TypeError, KeyError) as error:
        raise ValueError(shown(f"not a {cls.__name__}: {error}")) from error
    except ValueError as error:
        raise ValueError(shown(str(error))) from error
    except RecursionError:
        raise ValueError(f"not a {cls.__name__}: nested too deeply") from None
