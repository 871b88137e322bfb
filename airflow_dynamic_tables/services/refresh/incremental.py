"""Incremental refreshes: the partitions whose rows may differ from those that the query returns now, without Spark.

Partitions that cannot be determined are all rows, unless the table is ``incremental_strict``, which refuses that.
"""

from __future__ import annotations

import logging
from itertools import islice

from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.core.refresh.source_changes import MadePartitions
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.exceptions import DynamicTableError, UnsupportedError
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.dirty_partitions import DirtySearch
from airflow_dynamic_tables.services.refresh.merges import Merges
from airflow_dynamic_tables.services.refresh.planning import Bound, Merging, ToDo, bind_inputs
from airflow_dynamic_tables.services.refresh.preview import why_it_varies
from airflow_dynamic_tables.services.refresh.requests import MOST_PARTITIONS, RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

log = logging.getLogger(__name__)

_CAUSES = 3
"""Limit of changes that the reason of a refresh names, each with its partitions."""


def find_changed(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> ToDo:
    """Return the work of an incremental refresh; its partitions are none if the table equals its query.

    :raises UnsupportedError: if all rows must be replaced and the table is ``incremental_strict``.
    """
    version = registered.current()
    if version is None:
        return ToDo(WHOLE_TABLE)
    bound: Bound | None = None
    merging: Merging | None = None
    try:
        bound = bind_inputs(workspace, request, WHOLE_TABLE)
        partitions, why, merging = _search(workspace, request, registered, bound)
    except (DynamicTableError, OSError) as error:
        # The refresh meets the same error and handles it.
        partitions, why = WHOLE_TABLE, f"it is not known which sources changed: {error}"
    code = ReasonCode.SOURCES_CHANGED
    if partitions.is_whole and merging is None:
        code = ReasonCode.NOT_INCREMENTAL
        if request.table.mode is RefreshMode.INCREMENTAL_STRICT:
            raise UnsupportedError(
                f"{request.table.identifier} has refresh_mode: incremental_strict and cannot be refreshed by partition: {why}. "
                f"Refresh all rows once with: dynamic-tables refresh {request.table.identifier} --full-refresh"
            )
    return ToDo(partitions, bound=bound, base=version.token, change=Reason(code, why), merging=merging)


def _search(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, bound: Bound
) -> tuple[PartitionSet, str, Merging | None]:
    """Return the partitions that changed, why, and how their new rows can be merged, if they can."""
    table = bound.table
    made = workspace.ledger.made_partitions(table.identifier)
    if not made.is_complete:
        return WHOLE_TABLE, "no refresh has made the complete table yet", None
    if made.recipes != {bound.recipe}:
        return WHOLE_TABLE, bound.why_other_recipe, None
    if why := why_it_varies(table):
        return WHOLE_TABLE, why, None
    if registered.loaded.undone():
        return WHOLE_TABLE, "another engine changed the table", None
    comparison = Comparison(workspace, registered, bound, request.sources)
    partitions, why = _changed(registered, bound, comparison, made)
    if partitions.is_empty:
        return partitions, why, None
    found = Merges(workspace, registered, bound, comparison, made, request.sources).find(partitions)
    if isinstance(found, str):
        log.debug("New rows of the sources of %s are not merged: %s.", table.identifier, found)
        return partitions, why, None
    return partitions, f"{why}; only the rows added since are computed", found


def _changed(registered: RegisteredTable, bound: Bound, comparison: Comparison, made: MadePartitions) -> tuple[PartitionSet, str]:
    """Return the partitions that changed, and why."""
    search = DirtySearch(bound.table, comparison, made, comparison.mapped_keys, is_incremental=True)
    if why := search.why_any():
        return WHOLE_TABLE, why
    found = list(islice(search.dirty(), MOST_PARTITIONS + 1))
    if len(found) > MOST_PARTITIONS:
        return WHOLE_TABLE, f"more than {MOST_PARTITIONS:,} partitions changed"
    if not found and (excluded := comparison.why_without_effect):
        return NO_PARTITIONS, f"no change since its partitions were made has an effect: {excluded}"
    if not found:
        return NO_PARTITIONS, f"nothing that it reads has moved since its partitions were made: {bound.versions}"
    causes: dict[str, list[dict[str, str]]] = {}
    for spec, why in found:
        causes.setdefault(why, []).append(dict(spec))
    texts = [f"{PartitionSet.of(specs).brief}: {why}" for why, specs in islice(causes.items(), _CAUSES)]
    if len(causes) > _CAUSES:
        texts.append(f"and {len(causes) - _CAUSES} more changes")
    return normalised(PartitionSet.of(spec for spec, _ in found), registered.columns), "; ".join(texts)
