"""Incremental refreshes: the partitions whose rows may differ from those that the query returns now, without Spark.

Partitions that cannot be determined are all rows, unless the table is ``incremental_strict``, which refuses that.
"""

from __future__ import annotations

from itertools import islice

from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.exceptions import DynamicTableError, UnsupportedError
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.dirty_partitions import DirtySearch
from airflow_dynamic_tables.services.refresh.planning import Bound, ToDo, bind_inputs
from airflow_dynamic_tables.services.refresh.preview import why_it_varies
from airflow_dynamic_tables.services.refresh.requests import MOST_PARTITIONS, RefreshRequest
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

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
    try:
        bound = bind_inputs(workspace, request, WHOLE_TABLE)
        partitions, why = _search(workspace, registered, bound)
    except (DynamicTableError, OSError) as error:
        # The refresh meets the same error and handles it.
        partitions, why = WHOLE_TABLE, f"it is not known which sources changed: {error}"
    code = ReasonCode.SOURCES_CHANGED
    if partitions.is_whole:
        code = ReasonCode.NOT_INCREMENTAL
        if request.table.mode is RefreshMode.INCREMENTAL_STRICT:
            raise UnsupportedError(
                f"{request.table.identifier} has refresh_mode: incremental_strict and cannot be refreshed by partition: {why}. "
                f"Refresh all rows once with: dynamic-tables refresh {request.table.identifier} --full-refresh"
            )
    return ToDo(partitions, bound=bound, base=version.token, change=Reason(code, why))


def _search(workspace: Workspace, registered: RegisteredTable, bound: Bound) -> tuple[PartitionSet, str]:
    table = bound.table
    made = workspace.ledger.made_partitions(table.identifier)
    if not made.is_complete:
        return WHOLE_TABLE, "no refresh has made the complete table yet"
    if made.recipes != {bound.recipe}:
        return WHOLE_TABLE, bound.why_other_recipe
    if why := why_it_varies(table):
        return WHOLE_TABLE, why
    if registered.loaded.undone():
        return WHOLE_TABLE, "another engine changed the table"
    comparison = Comparison(workspace, registered, bound)
    search = DirtySearch(table, comparison, made, comparison.mapped_keys, is_incremental=True)
    if why := search.why_any():
        return WHOLE_TABLE, why
    found = list(islice(search.dirty(), MOST_PARTITIONS + 1))
    if len(found) > MOST_PARTITIONS:
        return WHOLE_TABLE, f"more than {MOST_PARTITIONS:,} partitions changed"
    if not found:
        return NO_PARTITIONS, f"nothing that it reads has moved since its partitions were made: {bound.versions}"
    causes: dict[str, list[dict[str, str]]] = {}
    for spec, why in found:
        causes.setdefault(why, []).append(dict(spec))
    texts = [f"{PartitionSet.of(specs).brief}: {why}" for why, specs in islice(causes.items(), _CAUSES)]
    if len(causes) > _CAUSES:
        texts.append(f"and {len(causes) - _CAUSES} more changes")
    return normalised(PartitionSet.of(spec for spec, _ in found), registered.columns), "; ".join(texts)
