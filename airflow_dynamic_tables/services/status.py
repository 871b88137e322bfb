"""Status of tables: freshness, history and sample rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView, JobState
from airflow_dynamic_tables.core.cron import allowed_lag, next_tick
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import FORMATTER
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schedule import Freshness, is_ahead
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.streaming.stream_plans import StreamProgress
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import NO_SCHEDULE, DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.ledger.latest import Held, Latest, RefreshStart
from airflow_dynamic_tables.services.refresh.catching_up import TimeTable, made_before, missing_partitions
from airflow_dynamic_tables.services.tables.source_reads import (
    NewerParent,
    Pace,
    Reader,
    ReadVersions,
    SourcePosition,
    latest_known,
    paces_of,
    positions_of,
    stretch,
    versions_read,
)
from airflow_dynamic_tables.services.tables.time_within_freshness import FreshShares, shares_within_freshness
from airflow_dynamic_tables.services.tables.workflows import paused_workflows
from airflow_dynamic_tables.services.workspace import Workspace

_allowed_lag = lru_cache(maxsize=1024)(allowed_lag)
"""Cached, because most tables share a schedule, and computing a lag takes a quarter of a millisecond."""

_next_tick = lru_cache(maxsize=1024)(next_tick)
"""Cached for the same reason."""


LOST = (RefreshState.FAILED, RefreshState.ABORTED, RefreshState.QUARANTINED, RefreshState.REJECTED)
"""Final states of a scheduled refresh without a version."""

_UNKNOWN = Held(None, None)

_NO_SHARES = FreshShares()


class TableState(StrEnum):
    """The state of a table in one word: the most urgent one that applies."""

    SUSPENDED = "SUSPENDED"
    QUARANTINED = "QUARANTINED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"
    """A user aborted its last refresh, which was in quarantine."""
    LATE = "LATE"
    PAUSED = "PAUSED"
    """Its DAG is paused."""
    REFRESHING = "REFRESHING"
    NO_VERSION = "NO_VERSION"
    FRESH = "FRESH"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one dynamic table; unknown values are null."""

    identifier: str
    state: TableState = field(init=False)
    """The state of the table in one word: the most urgent one that applies."""
    defined: bool | None
    """Whether the definitions have the table; null: not known."""
    format: str
    refresh_mode: str
    freshness: str
    freshness_seconds: int | None
    job_state: JobState | None
    """INITIALIZING before the first refresh, RUNNING if refreshes are enabled; null: the catalog does not have the table."""
    suspended_because: str | None
    version: int | None
    data_timestamp: datetime | None
    fresh_until: datetime | None
    """The time up to which the table reflects its sources."""
    lag_seconds: int | None
    """How far ``fresh_until`` lies behind now."""
    allowed_lag_seconds: int | None
    """How far it may lie behind at this time."""
    late: bool | None
    """Whether it lies further behind than allowed; null: the table has no version."""
    watermark: datetime | None
    """The time up to which all partitions of the sources exist; null: the sources have no watermark."""
    missing_partitions: int
    """The number of partitions that the table lacks because ticks failed or never ran."""
    missing: str | None
    """The missing partitions: the first and the last, or a few."""
    problem: str | None
    """Why the freshness of the table is unknown."""
    behind: tuple[NewerParent, ...]
    """The dynamic tables that have a newer version than the current version of this table read."""
    last_refresh: str | None
    last_error: str | None
    workflow_id: str
    dag_paused: bool | None = None
    """Whether the DAG is paused; null: Airflow was not queried."""
    last_action: str | None = None
    """The action of the last refresh."""
    last_reason: str | None = None
    """The reason of that action."""
    last_started_at: datetime | None = None
    next_refresh: datetime | None = None
    """The next tick of its schedule; null: it has none, or its refreshes are suspended."""
    share_of_day: float | None = None
    """The share of the last day in which it was within freshness, from 0 to 1; null: it was not watched then."""
    share_of_week: float | None = None
    """The share of the last seven days in which it was within freshness, from 0 to 1; null: it was not watched then."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", self._state())

    def _state(self) -> TableState:
        if self.job_state is JobState.SUSPENDED:
            return TableState.SUSPENDED
        if self.last_refresh == RefreshState.QUARANTINED:
            return TableState.QUARANTINED
        if self.last_refresh == RefreshState.REJECTED:
            return TableState.REJECTED
        if self.last_refresh in (*LOST, RefreshState.UNDONE):
            return TableState.FAILED
        if self.late:
            return TableState.LATE
        if self.dag_paused:
            return TableState.PAUSED
        if self.last_refresh == RefreshState.RUNNING:
            return TableState.REFRESHING
        if self.version is None:
            return TableState.NO_VERSION
        return TableState.UNKNOWN if self.late is None else TableState.FRESH


@dataclass(frozen=True, slots=True)
class TableDescription(TableStatus):
    """One dynamic table with its columns; without a version it has no columns yet."""

    comment: str | None = None
    columns: tuple[Column, ...] = ()
    partition_keys: tuple[str, ...] = ()
    query: str | None = None
    sources_read: tuple[SourcePosition, ...] = ()
    """The versions of its sources that the current version read."""

    @classmethod
    def of(cls, status: TableStatus, **described: Any) -> Self:
        """Return the description of a table with this status."""
        return cls(**{each.name: getattr(status, each.name) for each in fields(status) if each.init}, **described)


@dataclass(frozen=True, slots=True)
class TableDetails:
    """One dynamic table in full; ``versions`` are the retained ones, newest first; ``sources`` are those of the current one.

    ``read_by``, ``stream`` and ``first_rows`` are empty unless they were requested.
    """

    status: TableStatus
    table: CatalogTable | CatalogDynamicTable
    versions: tuple[Version, ...]
    refreshes: tuple[Refresh, ...]
    pace: tuple[Pace, ...] = ()
    sources: tuple[SourcePosition, ...] = ()
    read_by: tuple[Reader, ...] = ()
    stream: StreamProgress | None = None
    first_rows: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshWithRows(Refresh):
    """A refresh, and the first rows of its table afterwards."""

    first_rows: tuple[Mapping[str, Any], ...] = ()


@dataclass(slots=True)
class Listing:
    """The status of dynamic tables, sorted; ``problems`` are the errors of unreadable catalogs and tables, by name."""

    tables: list[TableStatus] = field(default_factory=list)
    problems: dict[str, CatalogError | ConfigurationError] = field(default_factory=dict)


def list_tables(workspace: Workspace, definitions: Mapping[TableIdentifier, DynamicTable], *, complete: bool = True) -> Listing:
    """Return every defined dynamic table, and those of the catalogs that are no longer defined.

    An unavailable catalog does not hide the tables of others. It is queried once, and the status of its defined tables comes from
    the history.

    :param complete: whether these are all definitions; if some are invalid, it is unknown which tables they would define.
    """
    others = False if complete else None
    listing = Listing()
    names = set(definitions)
    seen: dict[TableIdentifier, _Seen] = {}
    versions: dict[TableIdentifier, Version | None] = {}
    for catalog_name in {identifier.catalog for identifier in definitions} | set(workspace.catalogs.names()):
        try:
            entries = _entries(workspace, catalog_name)
            names |= entries.keys()
            with workspace.readable(catalog_name).reading_many():
                for name in sorted(name for name in names if name.catalog == catalog_name):
                    try:
                        one = seen[name] = _Seen(name, entries.get(name, _nothing)(), definitions.get(name))
                        versions[name] = workspace.table(name, _said(one.definition, one.registered).format).current()
                    except (CatalogError, ConfigurationError) as error:  # for example, an optional dependency is not installed
                        listing.problems[str(name)] = error
        except (CatalogError, ConfigurationError) as error:
            listing.problems[catalog_name] = error
    now = workspace.now()  # the same time for all tables, so that each schedule is computed once
    contents = _contents(workspace, versions, _read(workspace, versions, versions), now)
    statuses = {
        name: _status(seen[name], content, workspace, now, defined=name in definitions or others)
        for name, content in contents.items()
    }
    if hidden := dict.fromkeys(names - statuses.keys()):
        statuses |= zip(hidden, overview(workspace, hidden, definitions, complete=complete), strict=True)
    listing.tables = with_dags(workspace, [statuses[name] for name in sorted(names)])
    return listing


def with_dags(workspace: Workspace, statuses: list[TableStatus]) -> list[TableStatus]:
    """Add the paused state of the DAGs from Airflow; unchanged if Airflow is unavailable."""
    return with_paused(statuses, partial(paused_workflows, workspace))


def with_paused(statuses: list[TableStatus], paused: Callable[[Collection[str]], Mapping[str, bool]]) -> list[TableStatus]:
    """Add whether the DAGs of tables are paused.

    :param paused: returns it by DAG, as far as it is known.
    """
    known = paused({status.workflow_id for status in statuses})
    return [replace(status, dag_paused=known.get(status.workflow_id)) for status in statuses] if known else statuses


def overview(
    workspace: Workspace,
    entries: Mapping[TableIdentifier, CatalogDynamicTable | None],
    definitions: Mapping[TableIdentifier, DynamicTable],
    *,
    complete: bool = True,
) -> list[TableStatus]:
    """Return the status of many tables from catalog entries and history, without reading the tables.

    The number of queries does not depend on the number of tables. Changes by other engines are not detected;
    :func:`show_table` and :func:`list_tables` detect them.

    :param entries: the catalog entries of the tables, ``None`` if there is none yet; in the order of the result.
    :param complete: see :func:`list_tables`.
    """
    others = False if complete else None
    now = workspace.now()
    latest = workspace.ledger.latest(entries)
    versions = {name: one.made for name, one in latest.items()}
    read = {TableIdentifier.parse(source) for version in versions.values() if version for source in version.sources}
    parents = {**latest, **workspace.ledger.latest(read - latest.keys())} if read - latest.keys() else latest
    reads = _read(workspace, versions, versions if parents is latest else {name: one.made for name, one in parents.items()})
    behind = {name: read.newer(version) for name, read in reads.items() if (version := versions[name]) is not None}
    held = workspace.ledger.held([token for one in latest.values() if one.token for token in (one.token, stretch(one.token))])
    shares = shares_within_freshness(workspace.ledger, entries, now)
    return [
        _status(
            _Seen(name, entry, definitions.get(name)),
            _told(latest.get(name, Latest()), held, now)._replace(
                behind=behind.get(name, ()), shares=shares.get(name, _NO_SHARES)
            ),
            workspace,
            now,
            defined=name in definitions or others,
        )
        for name, entry in entries.items()
    ]


def show_table(
    workspace: Workspace,
    identifier: TableIdentifier,
    limit: int = 10,
    *,
    defined: bool | None = None,
    sources_now: Mapping[str, SourceState] | None = None,
) -> TableDetails:
    """Return one table of a catalog in full.

    :param limit: maximum number of refreshes and of versions.
    :param defined: whether the definitions have it, see :class:`TableStatus`.
    :param sources_now: the current states of its sources by name, as far as they were checked.
    :raises TableNotFoundError: if the catalog does not have the table.
    """
    entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    if isinstance(entry, CatalogView):
        raise TableNotFoundError(f"{identifier} is a view, not a dynamic table.")
    table = workspace.table(identifier, entry.format).load()
    versions, current = table.versions(), table.current()
    refreshes = tuple(workspace.ledger.list_refreshes(identifier, limit))
    parents = _currents(workspace, map(TableIdentifier.parse, current.sources if current is not None else ()))
    reads = _read(workspace, {identifier: current}, parents)
    now = workspace.now()
    contents = _contents(workspace, {identifier: current}, reads, now)
    status = _status(_Seen(identifier, entry), contents[identifier], workspace, now, defined=defined)
    (status,) = with_dags(workspace, [status])
    sources: tuple[SourcePosition, ...] = ()
    if current is not None:
        sources = positions_of(current, workspace.ledger.source_states(current.token), sources_now or {}, reads[identifier])
    return TableDetails(
        status=status,
        table=entry,
        versions=tuple(reversed(versions[-limit:])),
        refreshes=refreshes,
        pace=paces_of(refreshes),
        sources=sources,
    )


def _currents(workspace: Workspace, names: Iterable[TableIdentifier]) -> dict[TableIdentifier, Version | None]:
    versions: dict[TableIdentifier, Version | None] = {}
    for name in names:
        with suppress(CatalogError, ConfigurationError):
            entry = workspace.readable(name.catalog).get_table(name.path)
            if isinstance(entry, CatalogDynamicTable):
                versions[name] = workspace.table(name, entry.format).current()
    return versions


def _read(
    workspace: Workspace,
    versions: Mapping[TableIdentifier, Version | None],
    current: Mapping[TableIdentifier, Version | None],
) -> dict[TableIdentifier, ReadVersions]:
    return versions_read(workspace.ledger, versions, {str(name): version for name, version in current.items()})


def readers_of(workspace: Workspace, identifier: TableIdentifier, declared: Collection[TableIdentifier] = ()) -> list[Reader]:
    """Return the dynamic tables that read a table, sorted: those of its catalog, and those that are declared.

    :param declared: the tables whose definitions read it, in any catalog.
    """
    names = set(declared)
    for name, entry in _entries(workspace, identifier.catalog).items():
        with suppress(CatalogError, ConfigurationError):  # an unreadable table is listed with its problem
            kept = entry()
            resolved = (kept.definition or {}).get("resolved", {}) if isinstance(kept, CatalogDynamicTable) else {}
            if str(identifier) in resolved.get("upstream", ()):
                names.add(name)
    versions = _currents(workspace, names)
    reads = _read(workspace, versions, _currents(workspace, [identifier]))
    numbers = {name: read.numbers.get(str(identifier)) for name, read in reads.items()}
    return [
        Reader(str(name), version.number if (version := versions.get(name)) is not None else None, numbers.get(name))
        for name in sorted(names)
    ]


def sample(workspace: Workspace, identifier: TableIdentifier, rows: int, version: int | None = None) -> list[dict[str, Any]]:
    """Return the first rows of a version of a table, by default the current version.

    :raises TableNotFoundError: if the table has no version yet.
    :raises VersionNotFoundError: if that version is not retained; the message lists those that are.
    """
    return workspace.existing_table(identifier).sample(rows, version)


def _entries(workspace: Workspace, catalog_name: str) -> dict[TableIdentifier, Callable[[], AnyTable | None]]:
    """Return the dynamic tables of a catalog, with one query per database, or one per table if an entry is unreadable."""
    entries: dict[TableIdentifier, Callable[[], AnyTable | None]] = {}
    catalog = workspace.readable(catalog_name)
    for database in catalog.list_databases():
        try:
            for name, entry in catalog.get_dynamic_tables(database).items():
                entries[TableIdentifier(catalog_name, database, name)] = partial(_itself, entry)
        except (CatalogError, ConfigurationError):
            for name in catalog.list_dynamic_tables(database):
                identifier = TableIdentifier(catalog_name, database, name)
                entries[identifier] = partial(_entry, workspace, identifier)
    return entries


def _itself(entry: AnyTable) -> AnyTable:
    return entry


def _nothing() -> None:
    return None


def _entry(workspace: Workspace, identifier: TableIdentifier) -> AnyTable | None:
    try:
        return workspace.readable(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None


class _Seen(NamedTuple):
    """A table with its catalog entry and its definition."""

    identifier: TableIdentifier
    entry: AnyTable | None
    definition: DynamicTable | None = None

    @property
    def registered(self) -> CatalogDynamicTable | None:
        """The entry if it is that of a dynamic table."""
        return self.entry if isinstance(self.entry, CatalogDynamicTable) else None


class _Content(NamedTuple):
    """The version and freshness of a table, and the outcome of its last refresh.

    ``lost_tick`` is its latest tick if the refresh for it failed and no later refresh made up for it.
    """

    version: int | None
    data_timestamp: datetime | None
    fresh_until: datetime | None
    watermark: datetime | None
    last_refresh: str | None
    last_error: str | None
    lost_tick: datetime | None
    last_start: RefreshStart | None
    behind: tuple[NewerParent, ...] = ()
    shares: FreshShares = _NO_SHARES


def _told(latest: Latest, held: Mapping[str, Held], now: datetime) -> _Content:
    """Return the content according to the history.

    :param held: records of versions, and of how long they remained current, by token.
    """
    return _content(_Made(latest.version, latest.data_timestamp, latest.token or ""), latest, held, now)


def _contents(
    workspace: Workspace,
    versions: Mapping[TableIdentifier, Version | None],
    reads: Mapping[TableIdentifier, ReadVersions],
    now: datetime,
) -> dict[TableIdentifier, _Content]:
    """Return the content according to the tables themselves; the ledger is queried once for all of them."""
    latest = workspace.ledger.latest(versions)
    tokens = [version.token for version in versions.values() if version]
    held = workspace.ledger.held([*tokens, *map(stretch, tokens)])
    shares = shares_within_freshness(workspace.ledger, versions, now)
    contents: dict[TableIdentifier, _Content] = {}
    for name, version in versions.items():
        made = _Made(version.number, version.data_timestamp, version.token) if version else _Made()
        behind = reads[name].newer(version) if version is not None else ()
        content = _content(made, latest.get(name, Latest()), held, now)
        contents[name] = content._replace(behind=behind, shares=shares.get(name, _NO_SHARES))
    return contents


class _Made(NamedTuple):
    version: int | None = None
    data_timestamp: datetime | None = None
    token: str = ""


def _content(made: _Made, latest: Latest, held: Mapping[str, Held], now: datetime) -> _Content:
    then, since = held.get(made.token, _UNKNOWN), held.get(stretch(made.token), _UNKNOWN)
    fresh = latest_known((made.data_timestamp, since.data_timestamp), now)
    lost = _lost_tick(latest, fresh, now)
    last = (latest.state, latest.error) if lost is None else (latest.tick_state, latest.tick_error)
    start = latest.begun if lost is None else latest.tick
    return _Content(made.version, made.data_timestamp, fresh, since.watermark or then.watermark, *last, lost, start)


def _lost_tick(latest: Latest, fresh: datetime | None, now: datetime) -> datetime | None:
    """Return the latest tick of a table if its refresh failed and the table is not fresh up to it."""
    tick = latest.tick_time
    if tick is None or latest.tick_state not in LOST or is_ahead(tick, now) or (fresh is not None and fresh >= tick):
        return None
    return tick


def _status(seen: _Seen, content: _Content, workspace: Workspace, now: datetime, *, defined: bool | None) -> TableStatus:
    said = _said(seen.definition, seen.registered)
    registered = seen.registered
    lag = now - content.fresh_until if content.fresh_until else None
    period = said.period
    allowed = _allowed_lag(period, said.cron, said.timezone, now) if period else None
    is_late = lag > allowed if lag is not None and allowed is not None else None
    overdue = now - allowed if is_late and allowed is not None else None
    missing = _missing(seen, said, workspace, content, overdue)
    return TableStatus(
        identifier=str(seen.identifier),
        defined=defined,
        format=said.format,
        refresh_mode=said.refresh_mode,
        freshness=said.freshness,
        freshness_seconds=period.seconds if period else None,
        job_state=registered.refresh_handler.job_state if registered else None,
        suspended_because=(registered.refresh_handler.suspended_because or None) if registered else None,
        version=content.version,
        data_timestamp=content.data_timestamp,
        fresh_until=content.fresh_until,
        lag_seconds=int(lag.total_seconds()) if lag is not None else None,
        allowed_lag_seconds=int(allowed.total_seconds()) if allowed is not None else None,
        late=is_late,
        watermark=content.watermark,
        missing_partitions=len(missing),
        missing=missing.brief if missing else None,
        problem=_problem(content) if registered or seen.entry is None else None,
        behind=content.behind,
        last_refresh=content.last_refresh,
        last_error=content.last_error,
        # A table of CREATE TABLE AS has no workflow.
        workflow_id=said.workflow_id or ("" if seen.entry is not None else seen.identifier.workflow_id),
        last_action=content.last_start.action if content.last_start else None,
        last_reason=content.last_start.reason if content.last_start else None,
        last_started_at=content.last_start.started_at if content.last_start else None,
        next_refresh=_next_refresh(said, registered, now),
        share_of_day=content.shares.of_day,
        share_of_week=content.shares.of_week,
    )


def _next_refresh(said: _Said, registered: CatalogDynamicTable | None, now: datetime) -> datetime | None:
    is_suspended = registered is not None and registered.refresh_handler.job_state is JobState.SUSPENDED
    return _next_tick(said.cron, said.timezone, now) if said.cron and not is_suspended else None


def _missing(
    seen: _Seen, said: _Said, workspace: Workspace, content: _Content, overdue: datetime | None
) -> PartitionSet | tuple[()]:
    """Return the partitions missing for lost or overdue ticks; none for a table without schedule or time partitions."""
    fresh = content.fresh_until
    due = max((time for time in (overdue, content.lost_tick) if time is not None), default=None)
    if fresh is None or due is None or due <= fresh or not said.formatters or not said.period or seen.entry is None:
        return ()
    # With a watermark source, partitions are due when their time is over, not at a tick.
    cron = said.cron if content.watermark is None else None
    times = TimeTable(cron, said.timezone, said.period, said.formatters)
    made = made_before(workspace, seen.identifier, content.version)
    return missing_partitions(times, seen.entry.columns, made, fresh, due)


def _problem(content: _Content) -> str | None:
    if content.version is None or content.fresh_until is not None:
        return None
    if content.data_timestamp is not None:
        ahead = content.data_timestamp.isoformat()
        return f"its data timestamp, {ahead}, is in the future: a wrong clock made that version; the next refresh corrects it"
    return "no scheduled refresh has made a version yet"


class _Said(NamedTuple):
    format: str = DEFAULT_FORMAT
    refresh_mode: str = ""
    freshness: str = ""
    workflow_id: str = ""
    cron: str | None = None
    timezone: str = "UTC"
    formatters: Mapping[str, str] = MappingProxyType({})

    @property
    def period(self) -> Freshness | None:
        """The freshness; ``None`` if an externally modified catalog entry has an invalid one."""
        try:
            return Freshness.parse(self.freshness)
        except ValueError:
            return None


def _said(definition: DynamicTable | None, registered: CatalogDynamicTable | None) -> _Said:
    """Return the settings from the definition, or from the catalog if the table is no longer defined."""
    if definition is not None:
        told = (definition.format, definition.mode.value, definition.freshness.text, definition.workflow_id)
        return _Said(*told, definition.cron, definition.timezone, definition.formatters)
    if registered is not None:
        handler = registered.refresh_handler
        declared = registered.definition or {}
        schedule = declared.get("schedule")
        workflow_id = handler.job_detail.get("workflowId", "")
        told = (registered.format, handler.actual_refresh_mode.value, registered.freshness, workflow_id)
        options = {match["column"]: value for name, value in registered.options.items() if (match := FORMATTER.fullmatch(name))}
        formatters = {key: options[key] for key in registered.partition_keys if key in options}
        return _Said(*told, None if schedule == NO_SCHEDULE else schedule, declared.get("timezone", "UTC"), formatters)
    return _Said()
