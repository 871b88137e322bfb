"""Incremental refreshes: the partitions whose rows may differ from those that the query returns now, without Spark.

Partitions that cannot be determined are all rows, unless the table is ``incremental_strict``, which refuses that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, DirtyPartitions, LateChanges, sorted_text
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError, StaleSourceError, UnsupportedError
from airflow_dynamic_tables.services.refresh.catching_up import MOST_PARTITIONS as MOST_LATE
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.dirty_partitions import DirtySearch, Spec
from airflow_dynamic_tables.services.refresh.frozen_partitions import FrozenPartitions, frozen_partitions
from airflow_dynamic_tables.services.refresh.merges import Merges
from airflow_dynamic_tables.services.refresh.planning import Bound, Merging, ToDo, bind_inputs
from airflow_dynamic_tables.services.refresh.requests import MOST_PARTITIONS, RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

_CAUSES = 3
"""Limit of changes that the reason of a refresh names, each with its partitions."""

_TOO_MANY = f"more than {MOST_PARTITIONS:,} partitions changed"


def find_changed(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> ToDo:
    """Return the work of an incremental refresh; its partitions are none if the table equals its query.

    :raises UnsupportedError: if all rows must be replaced and the table is ``incremental_strict`` or has frozen partitions.
    :raises StaleSourceError: if a source did not change for too long.
    """
    version = registered.current()
    if version is None:
        return _first(workspace, request, registered)
    bound: Bound | None = None
    try:
        bound = bind_inputs(workspace, request, WHOLE_TABLE)
        frozen = frozen_partitions(workspace, request, registered)
        search = _Search(workspace, request, registered, bound)
        found = search.partitions() if frozen is None else search.without(frozen)
        found = replace(found, late=replace(found.late, found=_listed(found.partitions)))
    except (DynamicTableError, OSError) as error:
        if request.table.frozen is not None or isinstance(error, StaleSourceError):
            raise  # all rows must not be replaced
        # The refresh meets the same error and handles it.
        found = _Found(WHOLE_TABLE, f"it is not known which sources changed: {error}")
    if found.code is ReasonCode.NOT_INCREMENTAL and request.table.mode is RefreshMode.INCREMENTAL_STRICT:
        raise UnsupportedError(
            f"{request.table.identifier} has refresh_mode: incremental_strict and cannot be refreshed by partition: {found.why}. "
            f"Refresh all rows once with: dynamic-tables refresh {request.table.identifier} --full-refresh"
        )
    change = Reason(found.code, found.why)
    return ToDo(
        found.partitions,
        bound=bound,
        base=version.token,
        late=found.late,
        change=change,
        merging=found.merging,
        not_merged=found.not_merged,
    )


def _listed(dirty: PartitionSet) -> DirtyPartitions:
    """Return the dirty partitions as they are recorded: as many as a scheduled refresh replaces late ones."""
    return DirtyPartitions(PartitionSet.of(sorted(dirty, key=sorted_text)[:MOST_LATE]), len(dirty))


def _first(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> ToDo:
    """Return the work of the first refresh: the complete table, or all its partitions if they are too many for one commit."""
    whole = ToDo(WHOLE_TABLE)
    if not _is_divided(request.table) or registered.loaded.layout() is not None:
        return whole  # rows of partitions that the sources do not have must not stay
    bound = bind_inputs(workspace, request, WHOLE_TABLE)
    found = _Search(workspace, request, registered, bound).every()
    partitions = PartitionSet.of(sorted(found or (), key=sorted_text))
    return whole if len(partitions) <= (request.table.max_partitions_per_commit or 0) else ToDo(partitions, bound=bound)


def _is_divided(table: DynamicTable) -> bool:
    """Return whether the partitions of the table are replaced one by one where all its rows are, if they are too many."""
    return table.max_partitions_per_commit is not None and table.mode is RefreshMode.INCREMENTAL


@dataclass(frozen=True, slots=True)
class _Found:
    """The partitions that changed, or all rows, and why; how their new rows are merged, or why not.

    ``unmerged`` is the code if they could be merged, ``not_merged`` the text if they could not.
    """

    partitions: PartitionSet
    why: str
    merging: Merging | None = None
    unmerged: ReasonCode | None = None
    not_merged: str = ""
    late: LateChanges = NOTHING_LATE

    @property
    def code(self) -> ReasonCode:
        """The code of the reason."""
        is_all = self.partitions.is_whole and self.merging is None
        return self.unmerged or (ReasonCode.NOT_INCREMENTAL if is_all else ReasonCode.SOURCES_CHANGED)


class _Search:
    """The search for the partitions of a table whose rows may differ from those that its query returns now."""

    def __init__(self, workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, bound: Bound) -> None:
        self._workspace = workspace
        self._request = request
        self._registered = registered
        self._bound = bound
        self._made = workspace.ledger.made_partitions(bound.table.identifier)
        self._comparison = Comparison(workspace, registered, bound, request.sources)
        self._keys = self._comparison.mappings.mapped_keys

    def partitions(self) -> _Found:
        """Return the changed partitions, or all rows."""
        other = self._why_incomplete() or self._why_recipe() or self._why_varying() or self._why_undone()
        partitions, why = (WHOLE_TABLE, other) if other else self._changed()
        if partitions.is_whole and _is_divided(self._bound.table):
            partitions, why, other = self._listed(why)
        if partitions.is_empty or other:
            return _Found(partitions, why)
        workspace, request, bound = self._workspace, self._request, self._bound
        merges = Merges(workspace, self._registered, bound, self._comparison, self._made, request.sources)
        merging = merges.find(partitions)
        if isinstance(merging, str):
            return _Found(partitions, why, not_merged=merging)
        if isinstance(merging, Reason):
            return _Found(partitions, f"{why}; all rows are computed, because {merging}", unmerged=merging.code)
        return _Found(partitions, f"{why}; only the rows added since are computed", merging)

    def _changed(self) -> tuple[PartitionSet, str]:
        """Return the partitions that changed, and why."""
        search = self._changes()
        if why := search.why_any():
            return WHOLE_TABLE, why
        found = list(islice(search.dirty(), MOST_PARTITIONS + 1))
        return (WHOLE_TABLE, _TOO_MANY) if len(found) > MOST_PARTITIONS else self._explained(found)

    def _listed(self, cause: str) -> tuple[PartitionSet, str, str]:
        """Return the partitions to replace instead of all rows, why, and why their new rows cannot be merged, if they cannot.

        :param cause: why all rows would be replaced.
        :return: all rows if the partitions cannot be listed, or are not too many for one commit.
        """
        every, now = self.every(), self._comparison.now
        if every is None or now is None or now.partitions is None:
            return WHOLE_TABLE, f"{cause}; its partitions cannot be listed, so there is one commit", cause
        search = self._changes(every)
        always, recipe = self._why_varying() or self._why_undone(), self._bound.recipe

        def why(spec: Spec) -> str:
            made = self._made.made(spec)
            if made is None:
                return "it has not been made yet"
            return always or (self._bound.why_other_recipe if made.recipe != recipe else "")

        if len(search.candidates()) <= (self._bound.table.max_partitions_per_commit or 0):
            return WHOLE_TABLE, cause, cause
        found = list(search.dirty(why=why))
        return *self._explained(found), next(filter(None, (why(spec) for spec, _ in found)), "")

    def every(self) -> list[dict[str, str]] | None:
        """Return the partitions of which the query may return rows now; ``None`` if they are unknown."""
        if any(source.event_time is not None for source in self._bound.sources):
            return None
        return self._comparison.mappings.all_partitions(self._keys)

    def without(self, frozen: FrozenPartitions) -> _Found:
        """Return the changed partitions that are not frozen, and those that are.

        What concerns all rows concerns all of these, so they are listed. New rows are not merged, because some may be of frozen
        partitions.

        :raises UnsupportedError: if they cannot be listed.
        """
        every = self._comparison.mappings.all_partitions(self._keys)
        search = self._changes(every)
        other, recipe = self._why_varying(), self._bound.recipe

        def why(spec: Spec) -> str:
            made = self._made.made(spec)
            return other or (self._bound.why_other_recipe if made is None or made.recipe != recipe else "")

        unlisted = self._why_incomplete() or self._why_undone()
        if not unlisted and every is None:
            unlisted = other or self._why_recipe() or search.why_any()
        dirty = list(search.dirty(why=why)) if not unlisted else []
        if not unlisted and dirty and not frozen.keys <= {*self._keys}:
            unlisted = f"the partitions are not told apart by {', '.join(sorted(frozen.keys - {*self._keys}))}: {dirty[0][1]}"
        found = [each for each in dirty if not frozen.include(each[0])]
        if len(found) > MOST_PARTITIONS:
            unlisted = _TOO_MANY
        if unlisted:
            name = self._bound.table.identifier
            raise UnsupportedError(
                f"{name} has frozen partitions ({self._bound.table.frozen}), and it is not known which other ones to replace: "
                f"{unlisted}. Replace all rows, also the frozen ones, with: dynamic-tables refresh {name} --full-refresh --force"
            )
        changed = PartitionSet.of(spec for spec, _ in dirty if frozen.include(spec))
        return _Found(*self._explained(found), late=LateChanges(frozen=changed))

    def _changes(self, every: Sequence[Spec] | None = None) -> DirtySearch:
        return DirtySearch(self._comparison, self._made, self._keys, every, is_incremental=True)

    def _why_incomplete(self) -> str:
        return "" if self._made.is_complete else "no refresh has made the complete table yet"

    def _why_undone(self) -> str:
        return "another engine changed the table" if self._registered.loaded.undone() else ""

    def _why_varying(self) -> str:
        return self._bound.why_it_varies or ""

    def _why_recipe(self) -> str:
        return self._bound.why_other_recipe if self._made.recipes != {self._bound.recipe} else ""

    def _explained(self, found: Sequence[tuple[Spec, str]]) -> tuple[PartitionSet, str]:
        if not found and (excluded := self._comparison.why_without_effect):
            return NO_PARTITIONS, f"no change since its partitions were made has an effect: {excluded}"
        if not found:
            return NO_PARTITIONS, f"nothing that it reads has moved since its partitions were made: {self._bound.versions}"
        causes: dict[str, list[dict[str, str]]] = {}
        for spec, why in found:
            causes.setdefault(why, []).append(dict(spec))
        texts = [f"{PartitionSet.of(specs).brief}: {why}" for why, specs in islice(causes.items(), _CAUSES)]
        if len(causes) > _CAUSES:
            texts.append(f"and {len(causes) - _CAUSES} more changes")
        return normalised(PartitionSet.of(spec for spec, _ in found), self._registered.columns), "; ".join(texts)
