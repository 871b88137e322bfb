"""Resolved definitions as values: every name resolved and every default applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from airflow_dynamic_tables.core.cycles import needed_first
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, CatalogFormats
from airflow_dynamic_tables.core.identifiers import TableIdentifier, split_name
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, RowCount
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.reasons import Initial, LatePolicy, OnChange, PartitionEvents
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, Source
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule import (
    DEFAULT_CONTINUOUS,
    FRESHNESS_THRESHOLD,
    ContinuousSettings,
    Freshness,
    RefreshMode,
)
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Retention

OWN_DAG = "none"
"""Value of ``dag`` for a table that shares no DAG, overriding the defaults."""

NO_SCHEDULE = "none"
"""Schedule of a table that is refreshed only by asset updates."""

TESTS = "tests"
"""Key of unit tests, which are read separately so that DAG parsing does not pay for them."""

DEFAULTS_FILE = "defaults.yaml"
"""File with the defaults of all tables in a folder and below it."""


def is_defaults_file(name: str) -> bool:
    """Return whether a file has that name, or one that may be mistaken for it."""
    return name.lower() in (DEFAULTS_FILE, "defaults.yml")


@dataclass(frozen=True, slots=True)
class Conventions:
    """Settings of an installation that apply to all definitions.

    Names without catalog or database take them from ``scope``. ``allowed`` is what queries may do besides SQL. Tables with a
    freshness below ``threshold`` are refreshed continuously. ``formats`` are the formats of each catalog. Settings may read
    the environment variables that match one of the patterns ``variables``.
    """

    scope: tuple[str, str] = ("default", "default")
    allowed: Allowed = EVERYTHING
    threshold: Freshness = FRESHNESS_THRESHOLD
    formats: Mapping[str, CatalogFormats] = field(default_factory=dict)
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback that Airflow calls at an event of a task.

    ``path`` is ``module:name`` of a callable that takes the context of the task; with ``arguments``, of a notifier class that
    is instantiated with them.
    """

    path: str
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """Deadline of a run, and the callback that Airflow calls when it is missed.

    ``after`` is counted from the date of the run that ``reference`` names, by Airflow's name of it; ``None`` is the freshness.
    """

    callback: tuple[Callback, ...]
    after: timedelta | None = None
    reference: str = "queued_at"


RUN_PARAMS = ("schedule_time", "partition", "full_refresh", "even_if_suspended", "do_not_wait", "tables")
"""Built-in params of every run; a param of a definition must not have one of these names."""


@dataclass(frozen=True, slots=True)
class RunParam:
    """An additional param of a run, for callbacks, notifiers and templates, never for the query.

    ``type`` is string, integer, number or boolean, and ``default`` and ``choices`` have that type; ``default`` may be missing.
    """

    type: str = "string"
    default: Any = None
    choices: tuple[Any, ...] = ()
    title: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class AssetReference:
    """An Airflow asset: that of a dynamic table, or one identified by its URI or, without a URI, by its name."""

    table: TableIdentifier | None = None
    uri: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        """Return the display form."""
        return str(self.table or self.uri or self.name)


@dataclass(frozen=True, slots=True)
class Updates:
    """The assets whose updates refresh a table: any of them or, with ``every``, all of them since the last refresh."""

    assets: tuple[AssetReference, ...]
    every: bool = False

    @property
    def tables(self) -> tuple[TableIdentifier, ...]:
        """The dynamic tables among the assets."""
        return tuple(asset.table for asset in self.assets if asset.table is not None)

    def __str__(self) -> str:
        """Return the display form."""
        return (" and " if self.every else " or ").join(map(str, self.assets))


class AirflowPart(StrEnum):
    """The part of Airflow that a key configures, and how the value is passed."""

    TASK = "task"
    """An argument of the operator with the name of the key."""
    TASK_CALLBACK = "task, callback"
    TASK_OTHER = "task, other"
    DAG = "DAG"
    """An argument of the DAG with the name of the key."""
    DAG_CALLBACK = "DAG, callback"
    DAG_OTHER = "DAG, other"
    FRESHNESS_CALLBACK = "freshness DAG, callback"

    @property
    def owner(self) -> str:
        """The owner of the setting: the task or the DAG."""
        return self.partition(",")[0]


class Decides(StrEnum):
    """What a key affects in the table; every key that affects anything is part of the recipe."""

    ROWS = "rows"
    REST = "rest"
    """Only data that a refresh writes or checks besides the rows."""


@dataclass(frozen=True, slots=True)
class Key:
    """Metadata of a YAML key; its name, type and default are those of the field.

    ``doc`` is the sentence of the reference and of the JSON Schema. A key with ``doc`` needs no other declaration: YAML takes
    the type of the field, within ``limits`` (as arguments of ``pydantic.Field``), and in the ``defaults`` of a file too if
    ``in_defaults``. A key without ``doc`` has another form or a check of its own, and is declared in
    ``definitions.declarations``, with its sentence. ``names`` are the YAML names if they differ from the field. ``see`` is the
    section of the documentation. ``part`` is the part of Airflow that it configures. The tables of one DAG must agree on keys
    of a DAG and on ``shared`` ones. A ``kept`` key is written to the catalog even with its default value. ``decides`` makes it
    a part of the recipe.
    """

    doc: str = ""
    names: tuple[str, ...] = ()
    in_defaults: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    part: AirflowPart | None = None
    shared: bool = False
    kept: bool = False
    decides: Decides | None = None
    see: str = ""


_COUNT = {"ge": 0, "le": 2**31 - 1}
"""A non-negative integer, up to the maximum of the columns of Airflow's database."""

_SHORT = {"max_length": 250}
"""Maximum length of the name of a pool, queue or executor in every column of Airflow's database."""

_Callbacks = tuple[Callback, ...] | None

_TOLD = "notifications.md"
_VERSIONS = ("versions_to_keep", "version_max_age")


def _task(doc: str, limits: Mapping[str, int] | None = None) -> Key:
    return Key(doc, part=AirflowPart.TASK, limits=limits or {})


def _dag(doc: str, limits: Mapping[str, int] | None = None) -> Key:
    return Key(doc, part=AirflowPart.DAG, limits=limits or {})


def _callback(doc: str, part: AirflowPart = AirflowPart.TASK_CALLBACK) -> Key:
    return Key(doc, part=part, see=_TOLD)


@dataclass(frozen=True, slots=True)
class DynamicTable:
    """A table whose content is the result of its query, never older than its freshness.

    A field with a :class:`Key` is a key of the YAML: building, normalising, printing, the JSON Schema and the reference
    iterate over these fields in this order.

    ``query`` is as written; in ``expanded_query`` every table name is full and every view is inlined. ``upstream`` are the
    tables that are read, in order of first mention. ``mode`` is the refresh mode and ``mode_reason`` its explanation. ``cron``
    is evaluated in ``timezone``, and is ``None`` only for a table that is not refreshed on a schedule. Updates of ``on`` also
    refresh it, and ``wait_for`` must be available before a refresh. ``formatters`` maps partition keys to Java date patterns,
    in the order of the keys; ``comments`` maps columns to comments. If ``None``, ``suspend_after_failures`` is five and
    ``scheduler`` is Airflow. The job checks ``expectations``, the worker checks ``row_counts``. A table without a ``dag`` has
    its own DAG. ``path`` and ``line`` are the position of the declaration, ``file`` is the path relative to the definitions
    folder; ``text`` is the entry without secrets.
    """

    identifier: Annotated[TableIdentifier, Key(names=("name",))]
    query: Annotated[str, Key()]
    expanded_query: str
    upstream: tuple[TableIdentifier, ...]
    freshness: Annotated[Freshness, Key(see="time.md")]
    declared_mode: Annotated[RefreshMode, Key(names=("refresh_mode",))]
    mode: RefreshMode
    mode_reason: str
    cron: Annotated[str | None, Key(names=("schedule",))]
    on: Annotated[Updates | None, Key(see="assets.md#refresh-on-asset-updates")] = None
    wait_for: Annotated[tuple[AwaitedData, ...], Key(kept=True, see="waiting.md#waiting-for-data")] = ()
    partition_keys: Annotated[
        tuple[str, ...], Key(names=("partitioned_by",), kept=True, decides=Decides.ROWS, see="#partition-keys")
    ] = ()
    comments: Annotated[Mapping[str, str], Key(names=("columns",), kept=True, decides=Decides.REST)] = field(default_factory=dict)
    owner: Annotated[str | None, _task("Owner of the Airflow task.")] = None
    owner_links: Annotated[Mapping[str, str] | None, Key(part=AirflowPart.DAG)] = None
    dag_display_name: Annotated[
        str | None, _dag("Name of the DAG on Airflow's pages; default: the full name of the table.", {"max_length": 2_000})
    ] = None
    access_control: Annotated[Mapping[str, tuple[str, ...]] | None, Key(part=AirflowPart.DAG)] = None
    retries: Annotated[int | None, _task("Number of further tries of a failed refresh; default 2.", _COUNT)] = None
    retry_delay: Annotated[
        timedelta | None, _task("Time between two tries, e.g. `5 minutes`, the default of a scheduled table.")
    ] = None
    retry_exponential_backoff: Annotated[int | None, _task("Factor by which the delay grows after each try, e.g. 2.", _COUNT)] = (
        None
    )
    max_retry_delay: Annotated[timedelta | None, _task("The longest time between two tries, e.g. `1 hour`.")] = None
    execution_timeout: Annotated[timedelta | None, _task("Time after which a refresh is stopped, e.g. `2 hours`.")] = None
    dagrun_timeout: Annotated[
        timedelta | None, _dag("Time after which a run fails, including the time in which it waits for parents.")
    ] = None
    max_consecutive_failed_dag_runs: Annotated[
        int | None, _dag("Number of failed runs in a row after which Airflow pauses the DAG.", _COUNT)
    ] = None
    depends_on_past: Annotated[bool | None, _task("Whether a refresh requires that the previous one did not fail.")] = None
    pool: Annotated[str | None, _task("Airflow pool of the refresh task.", _SHORT)] = None
    pool_slots: Annotated[int | None, _task("Number of slots of the pool that the task takes.", {**_COUNT, "ge": 1})] = None
    priority_weight: Annotated[int | None, _task("Priority of the task: the higher, the earlier it gets a slot.")] = None
    weight_rule: Annotated[str | None, Key(part=AirflowPart.TASK)] = None
    queue: Annotated[str | None, _task("Queue of the Celery executor.", _SHORT)] = None
    executor: Annotated[
        str | None, Key("Name of one of the executors of this Airflow.", part=AirflowPart.TASK_OTHER, limits=_SHORT)
    ] = None
    executor_config: Annotated[Mapping[str, Any] | None, Key(part=AirflowPart.TASK_OTHER)] = None
    is_paused_upon_creation: Annotated[
        bool | None, _dag("Whether a new DAG is paused until a user unpauses it; default: as Airflow is configured.")
    ] = None
    on_execute_callback: Annotated[
        _Callbacks, _callback("Callback when a refresh begins, and again after it waited for parents.")
    ] = None
    on_failure_callback: Annotated[
        _Callbacks,
        _callback("Callback when a refresh failed for good: `module:function`, or `{notifier: module:class, arguments: {…}}`."),
    ] = None
    on_success_callback: Annotated[_Callbacks, _callback("Callback when a refresh succeeded.")] = None
    on_retry_callback: Annotated[_Callbacks, _callback("Callback when a refresh failed and is tried again.")] = None
    on_skipped_callback: Annotated[_Callbacks, _callback("Callback when a refresh was skipped.")] = None
    dag_on_failure_callback: Annotated[
        _Callbacks,
        _callback(
            "Callback when a run failed, also if no task could report it, as after `dagrun_timeout`.",
            AirflowPart.DAG_CALLBACK,
        ),
    ] = None
    dag_on_success_callback: Annotated[
        _Callbacks, _callback("Callback when a run succeeded, also if its refresh was skipped.", AirflowPart.DAG_CALLBACK)
    ] = None
    on_late_callback: Annotated[
        _Callbacks,
        Key(
            "Callback, called once when the table is further behind than allowed, also if its DAG is paused.",
            part=AirflowPart.FRESHNESS_CALLBACK,
            see="notifications.md#late-tables",
        ),
    ] = None
    deadline: Annotated[Deadline | None, Key(part=AirflowPart.DAG_OTHER, see=_TOLD)] = None
    comment: Annotated[str | None, Key(decides=Decides.REST)] = None
    timezone: Annotated[str, Key(shared=True, kept=True, decides=Decides.ROWS)] = "UTC"
    options: Annotated[Mapping[str, str], Key(kept=True)] = field(default_factory=dict)
    format: Annotated[str, Key(kept=True, decides=Decides.ROWS, see="guide.md#which-format")] = DEFAULT_FORMAT
    atomicity: Annotated[str, Key(kept=True, see="formats.md#without-atomicity")] = "staged"
    initial: Annotated[
        Initial,
        Key(
            "Partitions that the first scheduled refresh of a table with time partitions makes: `all` that its sources have (the "
            "default; from `start_date` on, if there is one), or the `latest`.",
            see="time.md#missed-ticks",
        ),
    ] = Initial.ALL
    skip_unchanged: Annotated[
        bool,
        Key(
            "Whether a scheduled refresh is skipped if no input changed; default `true`.",
            see="refreshes.md#skipping-unchanged-refreshes",
        ),
    ] = True
    late: Annotated[
        LatePolicy,
        Key(
            "How a scheduled refresh treats older partitions whose sources changed after they were made: `report` (the default) "
            "names them, `refresh` also replaces them, and `ignore` does not look for them.",
            see="late-changes.md",
        ),
    ] = LatePolicy.REPORT
    on_change: Annotated[Mapping[str, OnChange], Key(see="late-changes.md")] = field(default_factory=dict)
    max_lag: Annotated[Mapping[str, timedelta], Key(see="waiting.md#waiting-for-parents")] = field(default_factory=dict)
    frozen: Annotated[
        str | None,
        Key(
            "Partitions that refreshes leave as they are, by comparisons of keys with values, e.g. `ds < {now - 30 days}`.",
            in_defaults=False,
            see="late-changes.md#frozen-partitions",
        ),
    ] = None
    max_partitions_per_commit: Annotated[
        int | None,
        Key(
            "Maximum number of partitions in one commit of an incremental table; a refresh of more makes several commits.",
            in_defaults=False,
            limits={"ge": 1, "le": 10_000},
            see="incremental.md#several-commits",
        ),
    ] = None
    keep_dropped: Annotated[
        timedelta | None,
        Key(
            "How long the rows that expectations drop are kept, in a table beside it, e.g. `30 days`; default: they are not.",
            in_defaults=False,
            see="#dropped-rows",
        ),
    ] = None
    float_tolerance: Annotated[
        float | None,
        Key(
            "Difference of floating-point numbers, relative to the larger one, by which merged sums may differ from a complete "
            "computation, e.g. `1e-9`; a verification accepts it.",
            limits={"ge": 1e-15, "le": 1e-3},
            see="incremental.md#floating-point-numbers",
        ),
    ] = None
    verify_every: Annotated[timedelta | None, Key(see="incremental.md#daily-verification")] = None
    partition_events: Annotated[
        PartitionEvents,
        Key(
            "Whether each partition that a refresh replaced has an asset event with its name as partition key, besides the "
            "event of the table: `off` (the default) or `changed`.",
            see="assets.md#events-of-partitions",
        ),
    ] = PartitionEvents.OFF
    partition_events_limit: Annotated[
        int,
        Key(
            "Maximum number of partitions with an event per task; default 50. If there are more, only the table has an event.",
            limits={"ge": 1, "le": 1_000},
            see="assets.md#events-of-partitions",
        ),
    ] = 50
    suspend_after_failures: Annotated[
        int | None,
        Key(
            "Number of failed scheduled refreshes in a row after which the table is suspended; default 5, 0: never.",
            limits={"ge": 0, "le": 1_000},
            see="refreshes.md#failures-in-a-row",
        ),
    ] = None
    scheduler: Annotated[str | None, Key(see="schedulers.md")] = None
    renamed_from: Annotated[
        str | None,
        Key(
            "The name that the table had in its database: data, versions and history follow when the new name is deployed.",
            in_defaults=False,
            see="deploying.md#rename-a-table",
        ),
    ] = None
    spark: Annotated[SparkSettings, Key(kept=True)] = field(default_factory=SparkSettings)
    continuous: Annotated[ContinuousSettings, Key(see="continuous.md")] = DEFAULT_CONTINUOUS
    start_date: Annotated[datetime | None, Key(shared=True)] = None
    end_date: Annotated[datetime | None, Key(shared=True)] = None
    tags: Annotated[tuple[str, ...], Key(kept=True)] = ()
    params: Annotated[Mapping[str, RunParam], Key(shared=True, see="airflow.md#params")] = field(default_factory=dict)
    dag: Annotated[str | None, Key(see="airflow.md#one-dag-for-several-tables")] = None
    dag_id_prefix: Annotated[str | None, Key(shared=True, see="airflow.md#ids-of-dags")] = None
    retention: Annotated[Retention, Key(names=_VERSIONS, see="refreshes.md#versions")] = DEFAULT_RETENTION
    expectations: Annotated[tuple[Expectation, ...], Key(kept=True, decides=Decides.REST, see="#expectations")] = ()
    row_counts: Annotated[tuple[RowCount, ...], Key(kept=True, decides=Decides.REST)] = ()
    formatters: Mapping[str, str] = field(default_factory=dict)
    path: Path = Path()
    line: int = 0
    file: str = ""
    text: str = ""

    @property
    def references(self) -> tuple[TableIdentifier, ...]:
        """The other tables that its expectations refer to, in order of first mention."""
        return self._referring()

    @property
    def awaited_references(self) -> tuple[TableIdentifier, ...]:
        """Those that decide whether a refresh is committed, so that it waits for them."""
        return self._referring(Action.FAIL)

    def _referring(self, *actions: Action) -> tuple[TableIdentifier, ...]:
        chosen = (one.relationship for one in self.expectations if not actions or one.action in actions)
        named = (TableIdentifier.parse(relationship.to) for relationship in chosen if relationship is not None)
        return tuple(dict.fromkeys(name for name in named if name != self.identifier))

    @property
    def workflow_id(self) -> str:
        """The id of the workflow (Airflow: the DAG id) that refreshes it."""
        own = f"dynamic_table_group__{self.dag}" if self.dag else self.identifier.workflow_id
        return f"{self.dag_id_prefix or ''}{own}"

    def former_name(self) -> TableIdentifier | None:
        """Return its declared former full name; ``None`` when it declares none.

        :raises ValueError: when that is not the name of a table in the same database.
        """
        if self.renamed_from is None:
            return None
        parts = split_name(self.renamed_from)
        own = (self.identifier.catalog, self.identifier.database)
        if len(parts) > 3 or (*own[: 3 - len(parts)], *parts)[:2] != own:
            raise ValueError(f"a table is renamed within its database; {self.renamed_from!r} is not in {'.'.join(own)}")
        return TableIdentifier(*own, parts[-1])

    @property
    def is_continuous(self) -> bool:
        """Whether it is refreshed continuously, not on a schedule."""
        return self.mode is RefreshMode.CONTINUOUS

    @property
    def is_incremental(self) -> bool:
        """Whether a refresh replaces only the partitions whose sources changed."""
        return self.mode.is_incremental

    @property
    def most_partition_events(self) -> int:
        """Maximum number of partitions of a task that have an asset event each; 0: they have none."""
        wants = self.partition_events is PartitionEvents.CHANGED and bool(self.partition_keys)
        return self.partition_events_limit if wants else 0

    @property
    def may_be_quarantined(self) -> bool:
        """Whether a refresh may end with a stage that waits for a manual decision."""
        return any(bounds.action is Action.QUARANTINE for bounds in self.row_counts)


@dataclass(frozen=True, slots=True)
class KeyField:
    """A YAML key and its field of :class:`DynamicTable`; ``default`` is ``MISSING`` if there is none."""

    name: str
    field: str
    type: Any
    default: Any
    key: Key


def _key_fields() -> Iterator[KeyField]:
    hints = get_type_hints(DynamicTable, include_extras=True)
    for each in fields(DynamicTable):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        kind, *extras = get_args(hints[each.name]) if get_origin(hints[each.name]) is Annotated else [hints[each.name]]
        for key in extras:
            yield from (KeyField(name, each.name, kind, default, key) for name in key.names or (each.name,))


KEYS = tuple(_key_fields())
"""All keys of a dynamic table except ``query_file``, which is an alternative to ``query``."""

OF_ONE_DAG = tuple(each.field for each in KEYS if each.key.shared or (each.key.part and each.key.part.owner == AirflowPart.DAG))
"""Fields on which the tables of one DAG must agree."""


@cache
def settings_of(part: AirflowPart) -> tuple[str, ...]:
    """Return the names of the settings of a part of Airflow."""
    return tuple(each.field for each in KEYS if each.key.part is part)


@dataclass(frozen=True, slots=True)
class Definitions:
    """All dynamic tables and sources of a definitions folder."""

    tables: Mapping[TableIdentifier, DynamicTable] = field(default_factory=dict)
    sources: Mapping[TableIdentifier, Source] = field(default_factory=dict)

    def table(self, name: str) -> DynamicTable | None:
        """Return the table with that full name, or the only table whose name ends with it (``sales.orders``, ``orders``)."""
        ending = [table for identifier, table in self.tables.items() if f".{identifier}".endswith(f".{name}")]
        exact = [table for table in ending if str(table.identifier) == name]
        named = exact or ending
        return named[0] if len(named) == 1 else None

    def topological(self) -> list[DynamicTable]:
        """Return all tables in topological order, by name where the order is free."""
        needs = {name: sorted(set(self.tables[name].upstream) & self.tables.keys()) for name in sorted(self.tables)}
        return [self.tables[name] for name in needed_first(needs)]

    def downstream(self, identifier: TableIdentifier) -> tuple[TableIdentifier, ...]:
        """Return the tables that read a table directly, sorted."""
        return tuple(sorted(table.identifier for table in self.tables.values() if identifier in table.upstream))

    def needed_by(self, table: DynamicTable) -> tuple[TableIdentifier, ...]:
        """Return the tables and sources that a refresh needs: those that it reads or that its expectations refer to.

        If it reads a view of a catalog, these are all.
        """
        if not any(name in self.sources and self.sources[name].is_view for name in table.upstream):
            return tuple(dict.fromkeys((*table.upstream, *table.references)))
        return (*self.sources, *(name for name in self.tables if name != table.identifier))

    def of_workflow(self, workflow_id: str) -> list[DynamicTable]:
        """Return the tables that a workflow refreshes."""
        return [table for table in self.tables.values() if table.workflow_id == workflow_id]

    def part_for(self, tables: Iterable[DynamicTable]) -> Definitions:
        """Return these tables and the definitions that their refreshes need."""
        read = {name: None for table in tables for name in (table.identifier, *self.needed_by(table))}
        return Definitions(
            {identifier: self.tables[identifier] for identifier in read if identifier in self.tables},
            {identifier: self.sources[identifier] for identifier in read if identifier in self.sources},
        )
