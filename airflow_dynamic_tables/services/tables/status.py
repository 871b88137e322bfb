"""What stands where: tables, their freshness, their history and their first rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.schedule.cron import allowed_lag
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.tables.dates import FORMATTER
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import NO_SCHEDULE, DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.ledger.latest import Latest
from airflow_dynamic_tables.services.tables.freshness import latest_known, stretch
from airflow_dynamic_tables.services.tables.progress import Pace, SourcePosition, paces_of, positions_of
from airflow_dynamic_tables.services.tables.ticks import TimeTable, missing_partitions, ranges
from airflow_dynamic_tables.services.workspace import Workspace

_allowed_lag = lru_cache(maxsize=1024)(allowed_lag)
"""Of a thousand tables at one time, most have the schedule of another one; a quarter of a millisecond for each is too much."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One dynamic table at a glance.

    ``defined`` says whether the definitions have it; ``None``: that is not known. ``fresh_until`` is the time up to which it
    holds what its sources had. ``lag_seconds`` is how far that lies behind now, ``allowed_lag_seconds`` how far it may at this
    time (see :func:`~airflow_dynamic_tables.core.schedule.cron.allowed_lag`), and ``late`` whether it is further; ``None``
    while the table has no version. ``missing_partitions`` counts the partitions of ticks that failed or never ran and should
    have been made up for, and ``missing`` names them. ``problem`` says why it is not known how fresh the table is.
    ``suspended_because`` is why nothing refreshes it, as far as somebody said.
    """

    identifier: str
    defined: bool | None
    format: str
    refresh_mode: str
    freshness: str
    freshness_seconds: int | None
    job_state: str | None
    suspended_because: str | None
    version: int | None
    data_timestamp: datetime | None
    fresh_until: datetime | None
    lag_seconds: int | None
    allowed_lag_seconds: int | None
    late: bool | None
    missing_partitions: int
    missing: str | None
    problem: str | None
    last_refresh: str | None
    last_error: str | None
    workflow_id: str


@dataclass(frozen=True, slots=True)
class TableDetails:
    """One dynamic table in full; ``versions`` are the kept ones, newest first; ``sources`` are those of the current one."""

    status: TableStatus
    table: CatalogTable | CatalogDynamicTable
    versions: tuple[Version, ...]
    refreshes: tuple[Refresh, ...]
    pace: tuple[Pace, ...] = ()
    sources: tuple[SourcePosition, ...] = ()


@dataclass(slots=True)
class Listing:
    """Dynamic tables at a glance, sorted; ``problems`` says of catalogs and tables, by name, why they cannot be looked at."""

    tables: list[TableStatus] = field(default_factory=list)
    problems: dict[str, CatalogError | ConfigurationError] = field(default_factory=dict)


def list_tables(workspace: Workspace, definitions: Mapping[TableIdentifier, DynamicTable], *, complete: bool = True) -> Listing:
    """Every defined dynamic table, and every one of their catalogs that is no longer defined.

    A catalog that cannot be asked hides no table of another one. It is asked once, and its defined tables are listed as the
    history tells of them.

    :param complete: whether these are all definitions; when some have mistakes, nobody knows which tables those would define.
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
                    except (CatalogError, ConfigurationError) as error:  # such as an extra that is not installed here
                        listing.problems[str(name)] = error
        except (CatalogError, ConfigurationError) as error:
            listing.problems[catalog_name] = error
    statuses = {
        name: _status(seen[name], content, workspace, defined=name in definitions or others)
        for name, content in _contents(workspace, versions).items()
    }
    if hidden := dict.fromkeys(names - statuses.keys()):
        statuses |= zip(hidden, overview(workspace, hidden, definitions, complete=complete), strict=True)
    listing.tables = [statuses[name] for name in sorted(names)]
    return listing


def overview(
    workspace: Workspace,
    entries: Mapping[TableIdentifier, CatalogDynamicTable | None],
    definitions: Mapping[TableIdentifier, DynamicTable],
    *,
    complete: bool = True,
) -> list[TableStatus]:
    """Many tables at a glance, as catalog and history tell of them; the tables themselves are not asked, so that a thousand cost
    two questions. What another engine did to one is not seen; :func:`show_table` and :func:`list_tables` see it.

    :param entries: what their catalogs have of the tables, ``None``: nothing yet; in the order of the result.
    :param complete: as of :func:`list_tables`.
    """
    others = False if complete else None
    now = workspace.now()
    latest = workspace.ledger.latest(entries)
    unchanged = workspace.ledger.data_timestamps([stretch(one.token) for one in latest.values() if one.token])
    return [
        _status(
            _Seen(name, entry, definitions.get(name)),
            _told(latest.get(name, Latest()), unchanged, now),
            workspace,
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
    """One table of a catalog in full.

    :param limit: how many of the latest refreshes and versions.
    :param defined: whether the definitions have it, see :class:`TableStatus`.
    :param sources_now: what its sources are like now, by their names, as far as somebody looked.
    :raises TableNotFoundError: when the catalog does not have it.
    """
    entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    if isinstance(entry, CatalogView):
        raise TableNotFoundError(f"{identifier} is a view, not a dynamic table.")
    table = workspace.table(identifier, entry.format).load()
    versions, current = table.versions(), table.current()
    refreshes = tuple(workspace.ledger.list_refreshes(identifier, limit))
    return TableDetails(
        status=_status(
            _Seen(identifier, entry), _contents(workspace, {identifier: current})[identifier], workspace, defined=defined
        ),
        table=entry,
        versions=tuple(reversed(versions[-limit:])),
        refreshes=refreshes,
        pace=paces_of(refreshes),
        sources=positions_of(current, workspace.ledger.source_states(current.token), sources_now or {}) if current else (),
    )


def sample(workspace: Workspace, identifier: TableIdentifier, rows: int, version: int | None = None) -> list[dict[str, Any]]:
    """The first rows of a table as a version has them, the current one when none is named.

    :raises TableNotFoundError: when it has no version yet.
    :raises VersionNotFoundError: when that version is not kept; names those that are.
    """
    return workspace.table(identifier).sample(rows, version)


def _entries(workspace: Workspace, catalog_name: str) -> dict[TableIdentifier, Callable[[], AnyTable | None]]:
    """The dynamic tables of a catalog, by a query for each database; one by one where an entry of it cannot be read."""
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
    """A table as its catalog and as its definition have it."""

    identifier: TableIdentifier
    entry: AnyTable | None
    definition: DynamicTable | None = None

    @property
    def registered(self) -> CatalogDynamicTable | None:
        """The entry, when it is one of a dynamic table."""
        return self.entry if isinstance(self.entry, CatalogDynamicTable) else None


class _Content(NamedTuple):
    """What a table holds, and what its last refresh came to."""

    version: int | None
    data_timestamp: datetime | None
    fresh_until: datetime | None
    last_refresh: str | None
    last_error: str | None


def _told(latest: Latest, unchanged: Mapping[str, datetime], now: datetime) -> _Content:
    """As the history tells.

    :param unchanged: up to when versions were found to hold, by the tokens of what found it.
    """
    times = (latest.data_timestamp, unchanged.get(stretch(latest.token)) if latest.token else None)
    fresh = latest_known(times, now)
    return _Content(latest.version, latest.data_timestamp, fresh, latest.state, latest.error)


def _contents(workspace: Workspace, versions: Mapping[TableIdentifier, Version | None]) -> dict[TableIdentifier, _Content]:
    """As the tables themselves are; the ledger is asked for all of them together.

    :param versions: their current ones.
    """
    latest = workspace.ledger.latest(versions)
    unchanged = workspace.ledger.data_timestamps([stretch(version.token) for version in versions.values() if version])
    contents: dict[TableIdentifier, _Content] = {}
    for name, version in versions.items():
        last = latest.get(name, Latest())
        times = (version.data_timestamp, unchanged.get(stretch(version.token))) if version else ()
        fresh = latest_known(times, workspace.now())
        number, timestamp = (version.number, version.data_timestamp) if version else (None, None)
        contents[name] = _Content(number, timestamp, fresh, last.state, last.error)
    return contents


def _status(seen: _Seen, content: _Content, workspace: Workspace, *, defined: bool | None) -> TableStatus:
    said = _said(seen.definition, seen.registered)
    now = workspace.now()
    registered = seen.registered
    fresh = content.fresh_until
    lag = now - fresh if fresh else None
    period = said.period
    allowed = _allowed_lag(period, said.cron, said.timezone, now) if period else None
    missing = _missing(seen, said, workspace, fresh, now - allowed) if fresh and lag and allowed and lag > allowed else ()
    return TableStatus(
        identifier=str(seen.identifier),
        defined=defined,
        format=said.format,
        refresh_mode=said.refresh_mode,
        freshness=said.freshness,
        freshness_seconds=period.seconds if period else None,
        job_state=registered.refresh_handler.job_state.value if registered else None,
        suspended_because=(registered.refresh_handler.suspended_because or None) if registered else None,
        version=content.version,
        data_timestamp=content.data_timestamp,
        fresh_until=fresh,
        lag_seconds=int(lag.total_seconds()) if lag is not None else None,
        allowed_lag_seconds=int(allowed.total_seconds()) if allowed is not None else None,
        late=lag > allowed if lag is not None and allowed is not None else None,
        missing_partitions=len(missing),
        missing=ranges(missing) if missing else None,
        problem=_problem(content),
        last_refresh=content.last_refresh,
        last_error=content.last_error,
        workflow_id=said.workflow_id or seen.identifier.workflow_id,
    )


def _missing(seen: _Seen, said: _Said, workspace: Workspace, fresh: datetime, due: datetime) -> PartitionSet | tuple[()]:
    """The partitions of the ticks that a late table lacks; none of one that has no schedule, or no time partitions."""
    if not said.formatters or not said.period or seen.entry is None:
        return ()
    times = TimeTable(said.cron, said.timezone, said.period, said.formatters)
    return missing_partitions(workspace, seen.entry, seen.identifier, times, fresh, due)


def _problem(content: _Content) -> str | None:
    """Why it is not known how fresh a table is that has a version."""
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
        """The freshness; ``None`` when a catalog that others write to has none that is one."""
        try:
            return Freshness.parse(self.freshness)
        except ValueError:
            return None


def _said(definition: DynamicTable | None, registered: CatalogDynamicTable | None) -> _Said:
    """What the definition says of a table, or the catalog when nobody defines it any more."""
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
