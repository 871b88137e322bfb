"""Cascades: refresh a table and then every direct or indirect reader of it, each once, in upstream order.

A table is refreshed for the partitions derived from those replaced in its parents, if they can be derived from its query;
otherwise as by a request of its own. A table below one that was not refreshed is not refreshed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import product
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.core.cycles import needed_first
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import lineage
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.frozen_partitions import frozen_partitions
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    Skipped,
    asked_time,
    latest_schedule_time,
    requested_partitions,
)
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

Refresh = Callable[[RefreshRequest, Callable[[RefreshPlan], None]], Version | Skipped]
"""Runs a refresh to its end, and calls its second argument with every plan before the plan's job runs."""


class CascadeOutcome(StrEnum):
    """The outcome of a table in a cascade."""

    REFRESHED = "REFRESHED"
    SKIPPED = "SKIPPED"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    NOT_BEGUN = "NOT_BEGUN"
    """A table upstream of it was not refreshed."""


@dataclass(frozen=True, slots=True)
class CascadeStep:
    """The outcome of one table: ``partitions`` were planned to be replaced; ``detail`` is the reason for these, or for none."""

    table: TableIdentifier
    outcome: CascadeOutcome
    detail: str
    version: int | None = None
    partitions: PartitionSet = NO_PARTITIONS

    @property
    def ends_branch(self) -> bool:
        """Whether the tables that read it are not refreshed."""
        return self.outcome not in (CascadeOutcome.REFRESHED, CascadeOutcome.SKIPPED)


def cascade(workspace: Workspace, definitions: Definitions, first: RefreshRequest, refresh: Refresh) -> Iterator[CascadeStep]:
    """Refresh a table and all its direct and indirect readers; each step is yielded when it is done.

    :param first: the request for the table. The other requests have the same owner, and its schedule time if a user named one.
    :raises CatalogError: if the readers are unknown because a view of a catalog cannot be read.
    """
    tables = _below(workspace, definitions, first)
    steps: dict[TableIdentifier, CascadeStep] = {}
    for name, table in tables.items():
        parents = [steps[parent] for parent in dict.fromkeys(table.upstream) if parent in steps]
        step = _step(_Follower(workspace, definitions, first, table, parents), refresh)
        log.info("%s: %s, %s.", name, step.outcome, step.detail)
        steps[name] = step
        yield step


def whole_table_time(workspace: Workspace, table: DynamicTable) -> datetime:
    """Return the schedule time of a complete replacement: the latest tick, or the later time up to which the table is fresh."""
    tick = latest_schedule_time(table, workspace.now())
    fresh = fresh_until(workspace, workspace.table(table.identifier, table.format).current())
    return max(tick, fresh) if fresh is not None else tick


def following_partitions(table: DynamicTable, parent: DynamicTable, replaced: PartitionSet) -> PartitionSet | None:
    """Return the partitions of a table whose rows may change with the given partitions of a parent.

    :return: ``None`` if unknown: the keys of the parent do not determine a partition key, or the parent has no partitions.
    """
    keys = plain_keys(table.partition_keys)
    if not keys or len(keys) < len(table.partition_keys) or not parent.partition_keys:
        return None
    if replaced.is_whole:
        return WHOLE_TABLE
    settings = row_settings(table.spark.conf)
    # Columns of the parent may have changed their types, so only keys that the query returns unchanged are followed.
    found = {key: lineage(table.expanded_query, key, {}, settings).sources.get(str(parent.identifier)) for key in keys}
    specs = [{name.lower(): value for name, value in spec.items()} for spec in replaced]
    values = [{key: own.values(spec) for key, own in found.items() if own is not None} for spec in specs]
    if any(len(each) < len(keys) or None in each.values() for each in values):
        return None
    return PartitionSet.of(
        dict(zip(keys, row, strict=True)) for each in values for row in product(*(sorted(each[key] or ()) for key in keys))
    )


def _below(workspace: Workspace, definitions: Definitions, first: RefreshRequest) -> dict[TableIdentifier, DynamicTable]:
    """Return the table and all its direct and indirect readers in upstream order, with the views of catalogs inlined."""
    views = {name for name, source in definitions.sources.items() if source.is_view}
    tables = {
        name: inline_views(workspace, table, definitions.sources) if views & {*table.upstream} else table
        for name, table in definitions.tables.items()
    }
    below = {first.table.identifier}
    ordered = needed_first({name: sorted(tables.keys() & {*tables[name].upstream}) for name in sorted(tables)})
    for name in ordered:
        if below & {*tables[name].upstream}:
            below.add(name)
    return {name: tables[name] for name in ordered if name in below}


def _step(follower: _Follower, refresh: Refresh) -> CascadeStep:
    name = follower.table.identifier
    if lost := [str(step.table) for step in follower.parents if step.ends_branch]:
        why = f"{' and '.join(lost)} {'was' if len(lost) == 1 else 'were'} not refreshed"
        return CascadeStep(name, CascadeOutcome.NOT_BEGUN, why)
    replaced: list[PartitionSet] = []
    try:
        request, why = follower.request()
        outcome = refresh(request, lambda plan: replaced.append(plan.partitions))
    except DynamicTableError as error:
        return CascadeStep(name, CascadeOutcome.FAILED, str(error))
    if isinstance(outcome, Skipped):
        is_suspended = outcome.reason.code is ReasonCode.SUSPENDED
        return CascadeStep(name, CascadeOutcome.SUSPENDED if is_suspended else CascadeOutcome.SKIPPED, outcome.reason.text)
    return CascadeStep(name, CascadeOutcome.REFRESHED, why, outcome.number, _union(replaced))


@dataclass(frozen=True, slots=True)
class _Follower:
    """A table of a cascade, with the steps of its parents."""

    workspace: Workspace
    definitions: Definitions
    first: RefreshRequest
    table: DynamicTable
    parents: list[CascadeStep]

    def request(self) -> tuple[RefreshRequest, str]:
        """Return the request for the table, and the reason for its partitions."""
        if not self.parents:
            return self.first, "asked for"
        own = self._own()
        if not own.table.partition_keys:
            return replace(own, schedule_time=whole_table_time(self.workspace, own.table)), "it has no partitions"
        if self.workspace.table(own.table.identifier, own.table.format).current() is None:
            return own, "it had no version yet, so its own refresh was made"
        following = {step.table: self._following(step) for step in self.parents}
        known = _union(partitions for partitions in following.values() if partitions is not None)
        if known.is_whole and own.table.frozen is not None:
            return own, f"{_names(following)} was replaced as a whole, and it has frozen partitions, so its own refresh was made"
        if known.is_whole:
            whole = replace(own, schedule_time=whole_table_time(self.workspace, own.table), full_refresh=True)
            return whole, f"{_names(following)} was replaced as a whole"
        unknown = {name: None for name, partitions in following.items() if partitions is None}
        if not unknown:
            return replace(own, partitions=self._thawed(own, known)), f"the partitions that follow from {_names(following)}"
        why = f"which partitions follow from {_names(unknown)} is not known, so its own refresh was made"
        if known.is_empty:
            return own, why
        every = known.union(requested_partitions(own))
        if every.is_whole and own.table.frozen is not None:
            return own, why
        return replace(own, partitions=self._thawed(own, every)), f"{why}, and those that follow from the others"

    def _thawed(self, request: RefreshRequest, partitions: PartitionSet) -> PartitionSet:
        """Return partitions without the frozen ones, which only a user replaces."""
        frozen = frozen_partitions(self.workspace, request, self.workspace.look_up(request.table.identifier))
        return partitions if frozen is None else frozen.split(partitions)[0]

    def _own(self) -> RefreshRequest:
        """Return the request that a user would make for the table with the same options."""
        first = self.first
        table = self.definitions.tables[self.table.identifier]
        now = self.workspace.now()
        return RefreshRequest(
            table=table,
            sources=self.definitions.sources,
            schedule_time=latest_schedule_time(table, now) if first.catches_up else asked_time(first.schedule_time, table, now),
            token=str(uuid5(NAMESPACE_URL, f"{first.token}/{table.identifier}")),
            owner=first.owner,
            force=first.force,
            catches_up=first.catches_up,
        )

    def _following(self, step: CascadeStep) -> PartitionSet | None:
        if step.outcome is CascadeOutcome.SKIPPED:
            return None
        if self.first.full_refresh:
            return WHOLE_TABLE
        return following_partitions(self.table, self.definitions.tables[step.table], step.partitions)


def _union(sets: Iterable[PartitionSet]) -> PartitionSet:
    return PartitionSet.of(spec for partitions in sets for spec in partitions)


def _names(tables: Mapping[TableIdentifier, object]) -> str:
    return " and ".join(map(str, tables))
