"""The search for dirty partitions: those whose sources changed after the refresh that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from airflow_dynamic_tables.core.refresh.key_sources import AffectedPartitions
from airflow_dynamic_tables.core.refresh.source_changes import MadePartitions, sorted_text
from airflow_dynamic_tables.services.refresh.comparison import Comparison, SourceChange

Spec = Mapping[str, str]
"""A partition: values of the keys that are searched for."""


@dataclass(frozen=True, slots=True)
class _Effect:
    """A change and the partitions that may have other rows after it, by their texts; ``None`` if any may."""

    change: SourceChange
    partitions: dict[str, dict[str, str]] | None


class DirtySearch:
    """Search for the dirty partitions of a table.

    :param keys: the partition keys that distinguish the partitions that are searched for.
    :param every: further partitions that may be dirty, if a change that cannot be mapped is searched for partition by partition.
    :param is_incremental: whether the table must equal its query: sources without versions or that were not read before, and
        changes of the table by other engines count, too.
    """

    def __init__(
        self,
        comparison: Comparison,
        made: MadePartitions,
        keys: Sequence[str],
        every: Sequence[Spec] | None = None,
        *,
        is_incremental: bool = False,
    ) -> None:
        self._comparison = comparison
        self._made = made
        self._keys = tuple(keys)
        self._every = every or ()
        self._is_incremental = is_incremental
        self._found: dict[str | None, list[_Effect]] = {}

    def why_any(self) -> str:
        """Return the change that may have brought rows of any partition of a table that was made completely; empty if none."""
        if not self._made.is_complete:
            return ""  # it has the partitions that were scheduled or requested, and no others
        return next((effect.change.why for effect in self._effects(self._made.token({})) if effect.partitions is None), "")

    def dirty(
        self, is_wanted: Callable[[Spec], bool] = lambda _: True, why: Callable[[Spec], str] = lambda _: ""
    ) -> Iterator[tuple[Spec, str]]:
        """Yield the dirty partitions with their first changes.

        Partitions that no refresh has made are omitted, unless one has made the complete table, or there is another reason.

        :param is_wanted: other partitions are not compared.
        :param why: returns another reason why a partition is dirty; empty if there is none.
        """
        for spec in self.candidates():
            if is_wanted(spec) and (found := why(spec) or (self._why(spec) if self._made.covers(spec) else "")):
                yield spec, found

    def candidates(self) -> Sequence[Spec]:
        """Return the partitions that the table has or had, and those that a source got."""
        effects = self._effects(self._made.token({})) if self._made.is_complete else ()
        of_sources = (spec for effect in effects for spec in (effect.partitions or {}).values())
        return self._made.specs(self._keys, self._comparison.now, chain(of_sources, self._every))

    def _why(self, spec: Spec) -> str:
        effects = self._effects(self._made.token(spec))
        return next((effect.change.why for effect in effects if effect.change.affected.include(spec)), "")

    def _effects(self, token: str | None) -> list[_Effect]:
        """Return the changes since a refresh with the partitions that may have other rows."""
        if token not in self._found:
            self._found[token] = [self._effect(change) for change in self._changes(token)]
        return self._found[token]

    def _changes(self, token: str | None) -> list[SourceChange]:
        """Return the changes since a refresh, without those of sources whose changes are ignored."""
        changes = self._comparison.counted_since(token)
        if self._is_incremental:
            own = self._comparison.own_change_since(token)
            return [*changes, own] if own is not None else changes
        is_unknown = not self._comparison.is_known(token)
        return [change for change in changes if change.has_versions and (is_unknown or not change.is_new)]

    def _effect(self, change: SourceChange) -> _Effect:
        specs = change.affected.specs(self._keys) if self._keys else None
        if specs is not None and self._is_incremental:
            specs = self._incremental_specs(change.affected, specs)
        return _Effect(change, None if specs is None else {sorted_text(spec): spec for spec in specs})

    def _incremental_specs(self, affected: AffectedPartitions, specs: list[dict[str, str]]) -> list[dict[str, str]] | None:
        """Return the affected partitions of which the query returns rows now, and others in which the table may have rows.

        :param specs: those whose days are spelled ``yyyy-MM-dd``, whether the query returns rows of them or not.
        """
        every = self._comparison.mappings.all_partitions(self._keys)
        if every is None:
            return None if affected.any_other_spelling(self._keys) else specs
        found = [spec for spec in every if affected.include(spec)]
        now = self._comparison.now
        return found if now is not None and now.partitions is not None else [*specs, *found]
