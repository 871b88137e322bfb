"""Merges: a refresh that computes only the new rows of one source, and merges them into the rows that its table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.key_sources import Obstacle
from airflow_dynamic_tables.core.refresh.merge_costs import ReadBytes, why_costlier
from airflow_dynamic_tables.core.refresh.merge_rules import MergeKind, MergeRule
from airflow_dynamic_tables.core.refresh.plan import Merge, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import WRITE_NOTHING, Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import MadePartitions
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.definitions.queries.text import merge_rule
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.registry import added_since, files_since
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.partition_mappings import types_of
from airflow_dynamic_tables.services.refresh.planning import Bound, Merging, source_of, view_name
from airflow_dynamic_tables.services.tables.source_reads import pace_of
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

_FAILED = (RefreshState.FAILED, RefreshState.ABORTED, RefreshState.REJECTED)

_LATEST = 100
"""Limit of refreshes read from the history for the durations."""

_Made = tuple[Mapping[str, str | None], str]
"""A partition of a table and the token of the refresh that made it."""


class _NoMergeError(Exception):
    """The new rows cannot be merged."""


@dataclass(frozen=True, slots=True)
class Merges:
    """The search for a merge that replaces the computation of partitions."""

    workspace: Workspace
    registered: RegisteredTable
    bound: Bound
    comparison: Comparison
    made: MadePartitions
    sources: Mapping[TableIdentifier, Source]

    def find(self, partitions: PartitionSet) -> Merging | Reason | str:
        """Return the merge for some partitions whose sources changed.

        :return: the reason if the new rows can be merged, but replacing the partitions costs less; a text without a full stop
            says why they cannot be merged.
        """
        try:
            history = self.workspace.ledger.list_refreshes(self.bound.table.identifier, _LATEST, but=WRITE_NOTHING)
            self._check_table(history)
            made = self._made_by(partitions)
            grown = self._grown(made)
            rule = merge_rule(
                self.bound.table.expanded_query, grown.identifier, types_of(self.bound.sources), self.bound.settings
            )
            if isinstance(rule, Obstacle):
                raise _NoMergeError(f"{rule.cause}, at {self.bound.place(rule.offset)} of the query; {rule.remedy}")
            self._check_rule(rule)
            merging, added = self._merging(rule, grown, made)
            why = self._why_costlier(merging, added, partitions, history)
        except (DynamicTableError, _NoMergeError, ValueError, OSError) as error:
            return str(error).removesuffix(".")
        return Reason(ReasonCode.MERGE_COSTS_MORE, why) if why else merging

    def _check_table(self, history: Sequence[Refresh]) -> None:
        if self.bound.functions:
            raise _NoMergeError(f"{self.bound.functions[0].identifier} may depend on several rows")
        if any(source.event_time is not None for source in self.bound.sources):
            raise _NoMergeError("a source has an event time")
        last = next(iter(history), None)
        if last is not None and last.action is RefreshAction.MERGE and last.state in _FAILED:
            # For example, files of the versions in between may be gone, of which other refreshes are independent.
            raise _NoMergeError("the last merge failed")

    def _check_rule(self, rule: MergeRule) -> None:
        """Check that the table can be changed by a rule, and that its expectations can be checked on the new rows."""
        table = self.bound.table
        if rule.kind is MergeKind.APPEND:
            if not self.registered.lake_table.can_add:
                raise _NoMergeError("the format of the table adds no rows")
            name = str(table.identifier)
            if table.row_counts or any(one.unique or one.compares_with(name) for one in table.expectations):
                raise _NoMergeError("its expectations are of all rows")
        elif any(one.action is Action.DROP for one in table.expectations):
            raise _NoMergeError("its expectations drop rows")

    def _made_by(self, partitions: PartitionSet) -> list[_Made]:
        """Return the refreshes that made some partitions, also of parts of them."""
        known = [(parse_spec(text) if text else {}, made.token) for text, made in self.made.refreshes.items()]
        specs = [spec for spec in partitions if spec]
        found: list[tuple[Mapping[str, str | None], str | None]] = [(spec, self.made.token(spec)) for spec in specs]
        found += [(spec, token) for spec, token in known if not specs or any(one.items() <= spec.items() for one in specs)]
        made = [(spec, token) for spec, token in found if token is not None]
        if len(made) != len(found):
            raise _NoMergeError("the refresh that made a partition is not known")
        return made

    def _grown(self, made: Sequence[_Made]) -> SourceBinding:
        """Return the only source that changed since the partitions were made."""
        names: set[str] = set()
        for spec, token in made:
            own = self.comparison.own_change_since(token)
            if own is not None and own.affected.include(spec):
                raise _NoMergeError(own.why)
            names |= {change.source for change in self.comparison.counted_since(token) if change.affected.include(spec)}
        if len(names) != 1:
            raise _NoMergeError(f"{len(names)} sources changed")
        return next(source for source in self.bound.sources if source.identifier in names)

    def _merging(self, rule: MergeRule, grown: SourceBinding, made: Sequence[_Made]) -> tuple[Merging, int | None]:
        """Return the merge, and the bytes of the files with the new rows; ``None`` if they are not known."""
        table = self.bound.table
        for name, types in types_of(self.bound.sources).items():
            if any("collate" in kind.lower() for kind in types.values()):
                raise _NoMergeError(f"{name} has columns with a collation")
        since = self.comparison.common_state(grown.identifier, made)
        if since is None:
            raise _NoMergeError("its partitions were made of different rows of the source")
        identifier = TableIdentifier.parse(grown.identifier)
        described = self.sources.get(identifier) or source_of(self.workspace, identifier)
        stores = self.workspace.readable(identifier.catalog).stores()
        if FORMATS[described.format].has_history:
            added = added_since(described, stores, grown.view, since)
        elif identifier in self.sources:
            added = files_since(described, stores, grown.view, since)
        else:
            raise _NoMergeError(f"{grown.identifier} has no versions")
        if added.binding is None or added.waiting:
            raise _NoMergeError(f"{grown.identifier}: {added.ended or added.waiting or 'no rows were added'}")
        # Files may appear while they are listed, so only those of two equal listings are all that were added.
        if added.binding.version != grown.version:
            raise _NoMergeError(f"{grown.identifier} changed just now")
        own = self.registered.loaded.read().bound(table.identifier, view_name(table, 0) + "_former")
        new = own.view + "_new"
        statement = rule.statement(self.registered.columns, own.view, new, is_tolerant=table.float_tolerance is not None)
        sources = []
        for source in self.bound.sources:
            if source is grown:
                sources.append(replace(source, files=added.binding.files, parts=added.binding.parts))
            elif source.identifier.lower() in rule.empty:
                sources.append(_emptied(source))
            else:
                sources.append(source)
        return Merging(tuple(sources), Merge(own, new, statement)), added.bytes

    def _why_costlier(self, merging: Merging, added: int | None, partitions: PartitionSet, history: Sequence[Refresh]) -> str:
        """Return why replacing the partitions costs less than their merge, without a full stop; empty if it does not."""
        if merging.merge.only_adds:
            return ""  # the added files are among those that a replacement reads
        if partitions.is_whole and self.bound.table.mode is RefreshMode.INCREMENTAL_STRICT:
            return ""  # all rows must not be replaced
        return why_costlier(*_durations(history), self._read_bytes(merging, added, partitions))

    def _read_bytes(self, merging: Merging, added: int | None, partitions: PartitionSet) -> ReadBytes | None:
        """Return the bytes that only the merge, and that only a replacement reads; ``None`` if they are not known."""
        own = merging.merge.current.state
        if added is None or own is None or own.sizes is None:
            return None
        former = sum(size for text, size in own.sizes.items() if partitions.covers(parse_spec(text) if text else {}))
        replacement = 0
        for source, merged in zip(self.bound.sources, merging.sources, strict=True):
            if merged is source:
                continue  # both ways read it
            if source.state is None or source.state.sizes is None:
                return None
            sizes = source.state.sizes
            feeding = self.comparison.mappings.of(source.identifier).feeding([*partitions], sizes)
            replacement += sum(sizes[text] for text in feeding)
        return ReadBytes(added + former, replacement)


def _durations(history: Sequence[Refresh]) -> tuple[list[float], list[float]]:
    """Return the seconds of merges and of refreshes without a merge, newest first."""
    merged: list[float] = []
    others: list[float] = []
    for refresh in history:
        if refresh.is_made_of_sources and refresh.seconds:
            (merged if refresh.action is RefreshAction.MERGE else others).append(pace_of(refresh).seconds)
    return merged, others


def _emptied(source: SourceBinding) -> SourceBinding:
    """Return a source without rows."""
    if source.schema is None or not source.has_files or source.table is not None:
        raise _NoMergeError(f"the columns of {source.identifier} are not known")
    return replace(source, files=(), parts=())
