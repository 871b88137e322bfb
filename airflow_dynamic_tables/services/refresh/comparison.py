"""Comparison of a table and its sources with the states that its refreshes recorded. Unknown state counts as changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.key_sources import AffectedPartitions
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.core.refresh.source_changes import SourceDifference, SourceHistory, SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.refresh.changed_keys import ChangedKeys
from airflow_dynamic_tables.services.refresh.filtered_changes import FilteredChanges
from airflow_dynamic_tables.services.refresh.partition_mappings import PartitionMappings
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A change of a source, and the partitions whose rows it may change.

    A source without versions counts as changed, and so does one that the refresh did not read (``is_new``). ``why`` is the reason
    for people.
    """

    source: str
    why: str
    affected: AffectedPartitions
    has_versions: bool
    is_new: bool


class Comparison:
    """Comparison of the current state of a table and its sources with the states recorded by its refreshes.

    ``now`` is the current state of the table; ``versions`` are those that made the partitions compared so far. ``mappings`` are
    those of the partitions.

    :param sources: the sources of the definitions.
    """

    def __init__(
        self, workspace: Workspace, registered: RegisteredTable, bound: Bound, sources: Mapping[TableIdentifier, Source]
    ) -> None:
        self.versions: set[int] = set()
        self._ledger = workspace.ledger
        self._bound = bound
        self._filters = FilteredChanges(workspace, bound, sources)
        self._keys = ChangedKeys(workspace, bound, sources, self._facts)
        own = str(bound.table.identifier)
        readings = workspace.ledger.readings(bound.table.identifier, own)
        self.now = registered.loaded.state(readings.latest) if registered.loaded.layout() is not None else None
        self._histories = {own: SourceHistory(readings, self.now)}
        self.mappings = PartitionMappings(bound.table, bound.sources, registered.columns)
        self._changes: dict[str | None, list[SourceChange]] = {}
        self._now = {source.identifier: source.state for source in bound.sources}

    def why_moved(self, spec: Mapping[str, str | None], history: Sequence[Refresh]) -> str | None:
        """Return why a partition must be refreshed; ``None`` if it is unchanged.

        :param history: the refreshes of the table, newest first.
        """
        refresh = next((one for one in history if one.partitions.covers(spec)), None)
        if refresh is None:
            return f"{describe(spec) or 'the complete table'} has never been built"
        if refresh.recipe != self._bound.recipe:
            return self._bound.why_other_recipe
        self.versions.add(refresh.version or 0)
        own = self.own_change_since(refresh.token)
        if own is not None and own.affected.include(spec):
            return own.why
        changes = self.changes_since(refresh.token)
        return next((change.why for change in changes if change.affected.include(spec)), None)

    def changes_since(self, token: str | None) -> list[SourceChange]:
        """Return the changes of sources since a refresh; ``None`` is an unknown one."""
        if token not in self._changes:
            found = ((source, self._effective(token, source)) for source in self._bound.sources)
            self._changes[token] = [
                change for source, other in found if other is not None for change in self._changes_of(token, source, other)
            ]
        return self._changes[token]

    def _changes_of(self, token: str | None, source: SourceBinding, difference: SourceDifference) -> Iterator[SourceChange]:
        """Yield the change of a source; for a dimension, one for each fact that has keys of changed rows."""
        change = self._change(token, source, difference)
        if not self._is_dimension(source):
            yield change
            return
        effect = self._keys.since(source, token or "", difference)
        if effect.partitions is None:
            yield replace(change, why=f"{change.why}; the partitions with its changed keys are not known: {effect}")
            return
        for fact, partitions in effect.partitions.items():
            if partitions:
                why = f"{source.identifier} moved: {effect}"
                yield replace(change, why=why, affected=self.mappings.of(fact).affected(partitions))

    def _is_dimension(self, source: SourceBinding) -> bool:
        """Return whether the changes of a source are mapped by the keys of its rows."""
        return self._policy(source.identifier) is OnChange.AFFECTED and not self.mappings.determined_by(source)

    def _facts(self) -> set[str]:
        """Return the sources whose partitions are mapped to those of the table, and whose changes count."""
        return {
            source.identifier
            for source in self._bound.sources
            if self._policy(source.identifier) is not OnChange.IGNORE and self.mappings.determined_by(source)
        }

    def _policy(self, source: str) -> OnChange:
        return self._bound.table.on_change.get(source, OnChange.REFRESH)

    def counted_since(self, token: str | None) -> list[SourceChange]:
        """Return the changes since a refresh, without those of sources whose changes are ignored."""
        return [change for change in self.changes_since(token) if self._policy(change.source) is not OnChange.IGNORE]

    def common_state(self, source: str, partitions: Iterable[tuple[Mapping[str, str | None], str]]) -> SourceState | None:
        """Return a state of a source that has exactly those changes that are in each of some partitions of the table.

        :param partitions: each with the token of the refresh that made it.
        :return: ``None`` if there is none.
        """
        found = list(partitions)
        history = self._history(source, self._now[source])
        latest = history.latest({token for _, token in found})
        if latest is None:
            return None
        for token in {token for _, token in found}:
            affected = self.mappings.of(source).affected(history.changed_between(token, latest))
            if any(affected.include(spec) for spec, other in found if other == token):
                return None
        return self._ledger.source_states(latest).get(source)

    def state_read(self, source: SourceBinding, token: str) -> SourceState | None:
        """Return the state of a source that a refresh read, without its partitions; ``None`` if it is not known."""
        history = self._history(source.identifier, self._now.get(source.identifier))
        return history.state(token) if history.knows(token) else None

    @property
    def why_without_effect(self) -> str:
        """Why changes of sources that were found have no effect, as a sentence; empty if there are none."""
        return "; ".join(filter(None, (self._filters.why, self._keys.why)))

    def _effective(self, token: str | None, source: SourceBinding) -> SourceDifference | None:
        """Return the difference of a source since a refresh, without partitions whose changes the query filters out."""
        difference = self._since(token, source.identifier, source.state)
        if difference is None or difference.partitions is None or source.state is None:
            return difference
        return self._filters.remaining(source, token or "", difference)

    def own_change_since(self, token: str | None) -> SourceChange | None:
        """Return how the table differs from the state in which a refresh left it; ``None`` if it does not."""
        name = str(self._bound.table.identifier)
        if (difference := self._since(token, name, self.now)) is None:
            return None
        affected = self.mappings.itself.affected(difference.partitions)
        return SourceChange(name, f"the table is not as its refresh left it: {difference.why}", affected, True, False)

    def _change(self, token: str | None, source: SourceBinding, difference: SourceDifference) -> SourceChange:
        return SourceChange(
            source=source.identifier,
            why=f"{source.identifier} moved: {difference.why}",
            affected=self.mappings.of(source.identifier).affected(difference.partitions),
            has_versions=source.state is not None and source.state.partitions is not None,
            is_new=not self._history(source.identifier, source.state).knows(token),
        )

    def is_known(self, token: str | None) -> bool:
        """Return whether the state of a source is known as a refresh read it."""
        return any(self._history(source.identifier, source.state).knows(token) for source in self._bound.sources)

    def _since(self, token: str | None, source: str, now: SourceState | None) -> SourceDifference | None:
        return self._history(source, now).difference(token)

    def _history(self, source: str, now: SourceState | None) -> SourceHistory:
        if source not in self._histories:
            self._histories[source] = SourceHistory(self._ledger.readings(self._bound.table.identifier, source), now)
        return self._histories[source]
