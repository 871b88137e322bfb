"""What a definition means once it is read and checked: values, with every name resolved and every default applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.circles import needed_first
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import Initial
from airflow_dynamic_tables.core.refresh.allowed import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, RowCount
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule.continuous import DEFAULT_CONTINUOUS, ContinuousSettings
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import FRESHNESS_THRESHOLD, RefreshMode
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT, CatalogFormats
from airflow_dynamic_tables.core.tables.retention import DEFAULT_RETENTION, Retention

OWN_DAG = "none"
"""What stands in the place of a DAG's name for a table that shares none, whatever the defaults say."""

NO_SCHEDULE = "none"
"""The schedule of a table that only updates of assets refresh."""

DEFAULTS_FILE = "defaults.yaml"
"""The file of a folder that says what holds for all tables below it."""


def is_defaults_file(name: str) -> bool:
    """Whether a file has that name, or one that somebody may take for it."""
    return name.lower() in (DEFAULTS_FILE, "defaults.yml")


@dataclass(frozen=True, slots=True)
class Conventions:
    """What an installation says for all definitions.

    Names that leave them out have catalog and database of ``scope``. Queries may do what is ``allowed`` besides SQL. Tables to be
    fresher than ``threshold`` are refreshed all the time, and those of a catalog have one of its ``formats``. Settings may
    read the environment variables that one of the patterns ``variables`` names.
    """

    scope: tuple[str, str] = ("default", "default")
    allowed: Allowed = EVERYTHING
    threshold: Freshness = FRESHNESS_THRESHOLD
    formats: Mapping[str, CatalogFormats] = field(default_factory=dict)
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Callback:
    """What Airflow calls when something became of a task.

    ``path`` is ``module:name`` of what takes the task's context; with ``arguments``, of the class of a notifier that is made
    with them.
    """

    path: str
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a run has to be over, and what Airflow calls when it is not.

    ``after`` is counted from the date of the run that ``reference`` names, by Airflow's name of it; ``None``: the freshness.
    """

    callback: tuple[Callback, ...]
    after: timedelta | None = None
    reference: str = "queued_at"


RUN_PARAMS = ("schedule_time", "partition", "full_refresh", "even_if_suspended", "do_not_wait", "tables")
"""What every run can be asked for; no param of a definition has such a name."""


@dataclass(frozen=True, slots=True)
class RunParam:
    """What a run can be told besides: for callbacks, notifiers and templates, never for the query.

    ``type`` is string, integer, number or boolean, and ``default`` and ``choices`` are of it; no default: nothing.
    """

    type: str = "string"
    default: Any = None
    choices: tuple[Any, ...] = ()
    title: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class AssetReference:
    """An asset of Airflow: that of a dynamic table, or one that goes by its URI or, where it has none, by its name."""

    table: TableIdentifier | None = None
    uri: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        """As it is shown."""
        return str(self.table or self.uri or self.name)


@dataclass(frozen=True, slots=True)
class Updates:
    """The assets whose updates refresh a table: that of any, or, when ``every``, those of all since the last time."""

    assets: tuple[AssetReference, ...]
    every: bool = False

    @property
    def tables(self) -> tuple[TableIdentifier, ...]:
        """The dynamic tables among them."""
        return tuple(asset.table for asset in self.assets if asset.table is not None)

    def __str__(self) -> str:
        """As it is shown."""
        return (" and " if self.every else " or ").join(map(str, self.assets))


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSettings:
    """What a table says of its DAG and tasks, by the names that Airflow and YAML give it; ``None``: nothing."""

    owner: str | None = None
    owner_links: Mapping[str, str] | None = None
    dag_display_name: str | None = None
    access_control: Mapping[str, tuple[str, ...]] | None = None
    retries: int | None = None
    retry_delay: timedelta | None = None
    retry_exponential_backoff: int | None = None
    max_retry_delay: timedelta | None = None
    execution_timeout: timedelta | None = None
    dagrun_timeout: timedelta | None = None
    max_consecutive_failed_dag_runs: int | None = None
    depends_on_past: bool | None = None
    pool: str | None = None
    pool_slots: int | None = None
    priority_weight: int | None = None
    weight_rule: str | None = None
    queue: str | None = None
    executor: str | None = None
    executor_config: Mapping[str, Any] | None = None
    is_paused_upon_creation: bool | None = None
    on_execute_callback: tuple[Callback, ...] | None = None
    on_failure_callback: tuple[Callback, ...] | None = None
    on_success_callback: tuple[Callback, ...] | None = None
    on_retry_callback: tuple[Callback, ...] | None = None
    on_skipped_callback: tuple[Callback, ...] | None = None
    dag_on_failure_callback: tuple[Callback, ...] | None = None
    dag_on_success_callback: tuple[Callback, ...] | None = None
    deadline: Deadline | None = None


AIRFLOW_SETTINGS = tuple(setting.name for setting in fields(AirflowSettings))
"""The names of these settings."""

DAG_SETTINGS = (
    "dag_display_name",
    "dagrun_timeout",
    "max_consecutive_failed_dag_runs",
    "access_control",
    "owner_links",
    "is_paused_upon_creation",
)
"""Those of them that are settings of DAGs; the others are settings of tasks, or say who is told."""

OF_ONE_DAG = (
    *("timezone", "start_date", "end_date", *DAG_SETTINGS),
    *("dag_on_failure_callback", "dag_on_success_callback", "deadline", "params", "dag_id_prefix"),
)
"""In what the tables of one DAG have to agree."""


@dataclass(frozen=True, slots=True)
class DynamicTable(AirflowSettings):
    """A table whose content is its query, never older than its freshness.

    ``query`` is as written, ``expanded_query`` has every table name in full and every view inlined. ``upstream`` are the tables
    that are read, in the order of their first mention. ``mode`` is how it is refreshed and ``mode_reason`` why; ``cron`` ticks
    in ``timezone`` and is ``None`` only for a table that is not refreshed by schedule; updates of ``on`` refresh it, too, and
    ``wait_for`` has to be there before. ``formatters`` maps partition keys to Java date patterns, in the order of the keys;
    ``comments`` maps columns to comments. ``initial`` is what its first scheduled refresh makes. With ``skip_unchanged`` a
    scheduled refresh is not run while nothing that it reads has moved; ``suspend_after_failures`` of them in a row suspend the
    table (0: none; ``None``: five). The job checks ``expectations``, the worker ``row_counts``. ``scheduler`` has it refreshed;
    ``None``: Airflow. ``dag`` names the DAG that it shares with others; ``None``: it has its own. ``renamed_from`` is its
    former name in its database. ``path`` and ``line`` are where it was declared, ``file`` is the path from the folder of the
    definitions; ``text`` is that entry, without secrets.
    """

    identifier: TableIdentifier
    query: str
    expanded_query: str
    upstream: tuple[TableIdentifier, ...]
    declared_mode: RefreshMode
    mode: RefreshMode
    mode_reason: str
    freshness: Freshness
    cron: str | None
    on: Updates | None = None
    wait_for: tuple[AwaitedData, ...] = ()
    comment: str | None = None
    timezone: str = "UTC"
    partition_keys: tuple[str, ...] = ()
    formatters: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    format: str = DEFAULT_FORMAT
    atomicity: str = "staged"
    retention: Retention = DEFAULT_RETENTION
    initial: Initial = Initial.ALL
    skip_unchanged: bool = True
    suspend_after_failures: int | None = None
    scheduler: str | None = None
    renamed_from: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    row_counts: tuple[RowCount, ...] = ()
    spark: SparkSettings = field(default_factory=SparkSettings)
    continuous: ContinuousSettings = DEFAULT_CONTINUOUS
    start_date: datetime | None = None
    end_date: datetime | None = None
    tags: tuple[str, ...] = ()
    params: Mapping[str, RunParam] = field(default_factory=dict)
    dag: str | None = None
    dag_id_prefix: str | None = None
    path: Path = Path()
    line: int = 0
    file: str = ""
    text: str = ""

    @property
    def workflow_id(self) -> str:
        """The id of the workflow (Airflow: the DAG id) that refreshes it."""
        own = f"dynamic_table_group__{self.dag}" if self.dag else self.identifier.workflow_id
        return f"{self.dag_id_prefix or ''}{own}"

    @property
    def is_continuous(self) -> bool:
        """Whether it is refreshed all the time, not by schedule."""
        return self.mode is RefreshMode.CONTINUOUS

    @property
    def may_be_quarantined(self) -> bool:
        """Whether a refresh may end with a stage that waits for a person."""
        return any(bounds.action is Action.QUARANTINE for bounds in self.row_counts)


@dataclass(frozen=True, slots=True)
class Definitions:
    """All dynamic tables and sources of a definitions folder."""

    tables: Mapping[TableIdentifier, DynamicTable] = field(default_factory=dict)
    sources: Mapping[TableIdentifier, Source] = field(default_factory=dict)

    def table(self, name: str) -> DynamicTable | None:
        """The table of that full name, or the only one whose name ends so (``sales.orders``, ``orders``)."""
        ending = [table for identifier, table in self.tables.items() if f".{identifier}".endswith(f".{name}")]
        exact = [table for table in ending if str(table.identifier) == name]
        named = exact or ending
        return named[0] if len(named) == 1 else None

    def topological(self) -> list[DynamicTable]:
        """All tables, each after the tables it reads; otherwise in order of their names."""
        needs = {name: sorted(set(self.tables[name].upstream) & self.tables.keys()) for name in sorted(self.tables)}
        return [self.tables[name] for name in needed_first(needs)]

    def downstream(self, identifier: TableIdentifier) -> tuple[TableIdentifier, ...]:
        """The tables that read that one directly, sorted."""
        return tuple(sorted(table.identifier for table in self.tables.values() if identifier in table.upstream))

    def needed_by(self, table: DynamicTable) -> tuple[TableIdentifier, ...]:
        """The tables and sources that a refresh of a table needs: what it reads; all, when a view of a catalog is among that."""
        if not any(name in self.sources and self.sources[name].is_view for name in table.upstream):
            return table.upstream
        return (*self.sources, *(name for name in self.tables if name != table.identifier))

    def of_workflow(self, workflow_id: str) -> list[DynamicTable]:
        """The tables that a workflow refreshes."""
        return [table for table in self.tables.values() if table.workflow_id == workflow_id]

    def part_for(self, tables: Iterable[DynamicTable]) -> Definitions:
        """Those tables, and the definitions that their refreshes need."""
        read = {name: None for table in tables for name in (table.identifier, *self.needed_by(table))}
        return Definitions(
            {identifier: self.tables[identifier] for identifier in read if identifier in self.tables},
            {identifier: self.sources[identifier] for identifier in read if identifier in self.sources},
        )

    def upstream_closure(self, identifier: TableIdentifier) -> tuple[TableIdentifier, ...]:
        """Everything that table depends on, directly or not: dynamic tables and sources, sorted; not itself."""
        above: set[TableIdentifier] = set()
        waiting = [identifier]
        while waiting:
            table = self.tables.get(waiting.pop())
            new = set(table.upstream) - above if table else set()
            above |= new
            waiting.extend(new)
        return tuple(sorted(above - {identifier}))
