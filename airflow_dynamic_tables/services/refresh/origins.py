"""Origins of rows: the refreshes that made partitions of a table, and the tables that they read, down to those without refreshes.

Everything is read from the history. A table is compared with its sources, as an incremental refresh does, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError, UnsupportedError, UpstreamError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.catching_up import standing
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.planning import Bound, bind_query, bind_sources
from airflow_dynamic_tables.services.workspace import Workspace

_LATEST = 1_000
"""Limit of refreshes of a table that are read from the history."""

_Spec = Mapping[str, str | None]


class OriginState(StrEnum):
    """Whether the rows are as they would be now."""

    CURRENT = "CURRENT"
    CHANGED = "CHANGED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Origin:
    """Partitions of a table whose rows are in the table asked for, and the refresh that made them."""

    depth: int
    """0: the table asked for; 1: the tables that its query reads; and so on."""
    table: str
    partitions: PartitionSet
    """Empty: the complete table, or partitions that cannot be told apart; null: none, the source had no rows for them."""
    version: str | None
    """The version that was read, or of the refresh."""
    read_by: str | None = None
    """The table whose refresh read them; null: they are those asked for."""
    refreshed_at: datetime | None = None
    """When the refresh began; null: no refresh made them, or it is not known."""
    schedule_time: datetime | None = None
    token: str | None = None
    """Of the refresh."""
    state: OriginState = OriginState.UNKNOWN
    """CHANGED: at depth 0, a refresh would make other rows; below, the table has changed since it was read."""
    why: str = ""
    """The first change; otherwise the reason of the refresh."""


def origins(
    workspace: Workspace,
    definitions: Definitions,
    table: DynamicTable,
    partitions: PartitionSet | None = None,
    hidden: Set[TableIdentifier] = frozenset(),
) -> list[Origin]:
    """Return where the rows of a table come from: the table first, each table before those that it was made of.

    :param partitions: only these partitions.
    :param hidden: tables that are left out, with the tables that only these read.
    :raises UpstreamError: if the table has no version, or no refresh made a partition.
    :raises UnsupportedError: if the table is refreshed continuously.
    """
    if table.is_continuous:
        raise UnsupportedError(f"{table.identifier} is refreshed continuously; its history has the batches of the stream.")
    registered = workspace.look_up(table.identifier)
    if registered.current() is None:
        raise UpstreamError(f"{table.identifier} has no version yet; refresh it first.")
    made = workspace.ledger.made_partitions(table.identifier)
    specs: Sequence[_Spec]
    if partitions is None:
        specs = [parse_spec(text) if text else {} for text in made.refreshes]
    else:
        specs = list(normalised(partitions, registered.columns))
    search = _Search(workspace, definitions, hidden)
    by_token: dict[str | None, list[_Spec]] = {}
    for spec in specs:
        by_token.setdefault(made.token(spec), []).append(spec)
    with workspace.catalogs.holding_sources():
        return [origin for token, found in by_token.items() for origin in search.of_refresh(table, token, found)]


@dataclass(slots=True)
class _Search:
    workspace: Workspace
    definitions: Definitions
    hidden: Set[TableIdentifier]
    compared: dict[TableIdentifier, tuple[Bound, Comparison]] = field(default_factory=dict)
    seen: set[tuple[str, str, PartitionSet]] = field(default_factory=set)

    def of_refresh(self, table: DynamicTable, token: str | None, specs: Sequence[_Spec]) -> Iterator[Origin]:
        """Yield the origins of partitions that one refresh made."""
        refresh = self.workspace.ledger.get_refresh(token) if token is not None else None
        partitions = _set_of(specs)
        if refresh is None:
            why = "the refresh that made it is not known, as after a rollback"
            yield Origin(0, str(table.identifier), partitions, None, why=why)
            return
        state, why = self._compared(table, refresh, specs)
        yield _made(0, table, partitions, refresh, None, (state, why))
        yield from self._sources(1, table, refresh, specs)

    def _compared(self, table: DynamicTable, refresh: Refresh, specs: Sequence[_Spec]) -> tuple[OriginState, str]:
        """Return whether a refresh would make other rows now, and why."""
        try:
            bound, comparison = self._compare(table)
            if bound.at(refresh.schedule_time).recipe != refresh.recipe:
                return OriginState.CHANGED, "its definition changed"
            own = comparison.own_change_since(refresh.token)
            changes = [*comparison.counted_since(refresh.token), *([own] if own is not None else [])]
        except (DynamicTableError, OSError) as error:
            return OriginState.UNKNOWN, str(error).removesuffix(".")
        why = next((change.why for change in changes if any(map(change.affected.include, specs))), "")
        return (OriginState.CHANGED if why else OriginState.CURRENT), why

    def _sources(self, depth: int, table: DynamicTable, refresh: Refresh, specs: Sequence[_Spec]) -> Iterator[Origin]:
        """Yield the origins of the rows that a refresh read for some partitions."""
        states = self.workspace.ledger.source_states(refresh.token)
        for name, version in refresh.sources.items():
            identifier = TableIdentifier.parse(name)
            texts = states[name].partitions if name in states else None
            partitions = self._feeding(table, name, specs, list(texts or ()))
            if identifier in self.hidden or (name, version, partitions) in self.seen:
                continue
            self.seen.add((name, version, partitions))
            state, why = self._since(table, name, refresh, specs)
            parent = self.definitions.tables.get(identifier)
            makers = self._makers(parent, version, partitions) if parent is not None else []
            if parent is None or not makers:
                yield Origin(depth, name, partitions, version, str(table.identifier), state=state, why=why)
                continue
            for maker, own in makers:
                yield _made(depth, parent, _set_of(own), maker, str(table.identifier), (state, why))
                yield from self._sources(depth + 1, parent, maker, own)

    def _feeding(self, table: DynamicTable, source: str, specs: Sequence[_Spec], texts: Sequence[str]) -> PartitionSet:
        """Return the partitions of a source whose rows may be in some partitions of a table."""
        if not any(texts):
            return WHOLE_TABLE
        try:
            found = self._compare(table)[1].mappings.of(source).feeding(specs, texts)
        except (DynamicTableError, OSError):
            return WHOLE_TABLE
        return NO_PARTITIONS if not found else PartitionSet.of(map(parse_spec, found))

    def _since(self, table: DynamicTable, source: str, refresh: Refresh, specs: Sequence[_Spec]) -> tuple[OriginState, str]:
        """Return whether a source has changed since a refresh read it, as far as it concerns some partitions."""
        try:
            changes = self._compare(table)[1].changes_since(refresh.token)
        except (DynamicTableError, OSError) as error:
            return OriginState.UNKNOWN, str(error).removesuffix(".")
        for change in changes:
            if change.source == source and any(map(change.affected.include, specs)):
                return OriginState.CHANGED, change.why
        return OriginState.CURRENT, ""

    def _makers(self, table: DynamicTable, snapshot: str, partitions: PartitionSet) -> list[tuple[Refresh, list[_Spec]]]:
        """Return the refreshes that made the partitions of a table at a snapshot; none if one is not known."""
        history = self.workspace.ledger.list_refreshes(table.identifier, _LATEST, but=(RefreshAction.SKIP, RefreshAction.NO_DATA))
        read = next((one for one in history if one.snapshot == snapshot and one.version), None)
        if read is None:
            return []
        earlier = standing((one for one in history if (one.version or 0) <= (read.version or 0)), read.version)
        found: dict[str, tuple[Refresh, list[_Spec]]] = {}
        for spec in partitions or WHOLE_TABLE:
            maker = next((one for one in earlier if one.partitions.covers(spec)), None)
            if maker is None:
                return []
            found.setdefault(maker.token, (maker, []))[1].append(spec)
        return list(found.values())

    def _compare(self, table: DynamicTable) -> tuple[Bound, Comparison]:
        if table.identifier not in self.compared:
            sources = self.definitions.sources
            whole = inline_views(self.workspace, table, sources)
            bound = bind_query(self.workspace, whole, bind_sources(self.workspace, whole, sources))
            registered = self.workspace.look_up(table.identifier)
            self.compared[table.identifier] = bound, Comparison(self.workspace, registered, bound, sources)
        return self.compared[table.identifier]


def _set_of(specs: Sequence[_Spec]) -> PartitionSet:
    return WHOLE_TABLE if any(not spec for spec in specs) else PartitionSet.of(specs)


def _made(
    depth: int,
    table: DynamicTable,
    partitions: PartitionSet,
    refresh: Refresh,
    read_by: str | None,
    told: tuple[OriginState, str],
) -> Origin:
    state, why = told
    version = str(refresh.version) if refresh.version else None
    times = (refresh.started_at, refresh.schedule_time)
    return Origin(depth, str(table.identifier), partitions, version, read_by, *times, refresh.token, state, why or refresh.reason)
