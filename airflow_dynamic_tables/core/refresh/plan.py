"""What goes to the Spark job and what comes back, both as JSON.

The job runs from a zip with nothing but pyspark, so this module keeps to the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.plain import REQUIRED, from_plain, to_plain
from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.refresh.allowed import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.expectations import Expectation, ExpectationResult
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.core.streaming.streams import EventTime, StreamSettings
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column, Rebuild, TableLayout
from airflow_dynamic_tables.core.tables.type_limits import NO_LIMITS, TypeLimits
from airflow_dynamic_tables.core.tables.versions import Base, StreamPosition

PLAN_FILE = "_plan.json"
RESULT_FILE = "_result.json"
ERROR_FILE = "_error.json"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Some files of a source. Its partition keys are in the names of the folders below ``base_path``, or else in ``values``.

    Rows that are ``deleted``, by their places in the one file that it has then, are not read.
    """

    files: tuple[str, ...]
    base_path: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column of dates or times of a server, of a type of Spark; what is read is the column ``number``, days or microseconds."""

    name: str
    number: str
    type: str


@dataclass(frozen=True, slots=True)
class SourceBinding:
    """One table the query reads, bound to one version of it.

    ``view`` is the temporary view the job registers and ``RefreshPlan.query`` reads, ``format`` Spark's name of the reader.
    Exactly ``files`` are read, with ``base_path`` as the root of Hive-style partition directories and ``schema`` (Spark DDL)
    when it is known; or, when ``table`` is set, Spark reads that table of ``spark.sql.catalog.*`` at snapshot ``version``. A
    table of a server has no files (``has_files``): ``options`` say it all but the password, which the job finds in environment
    variable ``password_variable``; ``times`` are its columns that are read as numbers. A
    source whose files do not lie below one root has ``parts`` instead of ``files``.
    With ``conn_id`` that variable holds more options as JSON, among them secrets: those that the connection of that name says.
    ``state`` is what it is like, if anything is known of that; it is for the ledger. Of a stream's source the job finds the files
    below ``base_path`` itself as they come, unless it ``is_fed`` by its worker; ``event_time`` says when their rows happened, and
    to any job which of them are one.
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


@dataclass(frozen=True, slots=True)
class Feed:
    """What came into a table that a stream reads, as somebody found it ``seen_at`` (timezone-aware).

    ``source`` reads just that; its ``state`` is what the stream has read of the table with it.
    """

    source: SourceBinding
    seen_at: datetime

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Feed:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when the text is not a feed, or not whole.
        """
        return _parse(cls, text)


@dataclass(frozen=True, slots=True)
class FunctionBinding:
    """One function of a catalog that the query calls.

    ``function`` is the temporary function the job registers and ``RefreshPlan.query`` calls. ``code`` is a class (language
    ``java``) or ``module:callable`` (``python``), ``returns`` Spark DDL; ``jars`` and ``py_files`` are URIs of what it is in.
    """

    identifier: str
    function: str
    language: str
    code: str
    returns: str | None = None
    jars: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """One refresh, decided: everything the job needs and nothing it would have to look up.

    ``partitions`` is the exact set that is replaced. ``statement`` is what a person reads,
    ``query`` the same with temporary views and functions in the places of tables and of functions of catalogs. The job writes
    only below ``stage``.
    Its data files have Spark's ``file_format``, and the partition columns in them, too, with ``keys_in_files``; otherwise only
    the names of their folders have those.
    ``comment`` is the table's, ``comments`` maps column names to theirs. ``data_timestamp`` is up to when the table is fresh
    after this refresh; ``None`` when it only refreshes partitions named by hand. ``base`` is the snapshot that was current when
    this was planned, ``None`` before the first one; ``stands_on`` the version then, which the commit requires. ``settings`` are
    Spark's that the definition gives a value to and that decide what the query means. ``allowed`` is what the query may do
    besides SQL. ``layout`` is what the rows have to fit, ``None`` when the table has none yet; ``rebuild`` is what this refresh
    may change of it all the same. ``limits`` are types and names that no column can have. ``recipe`` is a digest of all that
    decides rows besides what the sources hold; it is for the ledger. With a ``sink`` the data files are copied there, and then
    only the job knows them.

    With ``stream`` the job runs on and on: each of its batches has a plan of its own, which says to which ``position`` of the
    stream it brings the table, and from which: rows are added to what it ``follows``, and replace the table without that.
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

    @property
    def data_location(self) -> str:
        """Where the job writes its data files."""
        return f"{self.stage}/data"

    @property
    def rows_location(self) -> str:
        """Where the rows are that the commit publishes: in data files, or in a table of a server."""
        return self.sink.table if self.sink is not None else self.data_location

    @property
    def plan_location(self) -> str:
        """Where this plan is written as JSON."""
        return f"{self.stage}/{PLAN_FILE}"

    @property
    def result_location(self) -> str:
        """Where the job writes its result, as its last act."""
        return f"{self.stage}/{RESULT_FILE}"

    @property
    def error_location(self) -> str:
        """Where the job writes what went wrong, when it fails."""
        return f"{self.stage}/{ERROR_FILE}"

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RefreshPlan:
        """Parse what :meth:`to_json` wrote, or that of a release whose plans named the format of the table.

        :raises ValueError: when the text is not a plan.
        """
        return _parse(cls, text, _with_layout)


@dataclass(frozen=True, slots=True)
class JobError:
    """Why the job failed, in Spark's own words and without a Java stack.

    ``is_misfit`` when the columns of the query do not fit the table, which another try would only repeat.
    """

    message: str
    application_id: str
    is_misfit: bool = False

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> JobError:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when the text is not an error.
        """
        return _parse(cls, text)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file in the stage: full URI and size in bytes."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What the job wrote. ``seconds`` is the duration of each step.

    ``partitions`` lists the ones that received rows, so it is no set to replace: there may be none, and of an unpartitioned
    table there always is none.

    ``expectations`` are in the order of the plan's; what a batch of a stream left out as late comes after them. Without
    ``files``, the rows are in the plan's sink, where they take ``table_bytes``.
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

    @property
    def bytes(self) -> int:
        """Size of all data files, or of the stage's table, in bytes."""
        return sum(file.bytes for file in self.files) + self.table_bytes

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RefreshResult:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when the text is not a result (e.g. truncated).
        """
        return _parse(cls, text)


def _with_layout(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a plan with what its files are like in the place of the table's format, which plans had at first."""
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
