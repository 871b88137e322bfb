"""The effect of a changed definition on the rows of some partitions, before the change is deployed.

The deployed query and the new one are run on the same versions of their sources, into a stage that is never published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, ShownDifference, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column, spark_ddl
from airflow_dynamic_tables.definitions.cache import restored
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import NotFoundError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.compared_stages import ComparedStage, Submit, compared_stage
from airflow_dynamic_tables.services.refresh.planning import Bound, bind_query, bind_sources
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.tables.entries import declared_part
from airflow_dynamic_tables.services.workspace import Workspace

_FILES = "parquet"


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A request to compare the rows that two definitions of a table make of some partitions.

    ``rows`` is the number of rows of each difference to show. ``schedule_time`` is the time in both queries.
    """

    table: DynamicTable
    sources: Mapping[TableIdentifier, Source]
    partitions: PartitionSet
    schedule_time: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class QueryChange:
    """What a change of a definition does to rows of a table."""

    table: str
    partitions: PartitionSet
    """Empty: the complete table."""
    rows_before: int
    rows_after: int
    removed: int
    """Rows that only the deployed query returns, in the columns that both have."""
    added: int
    """Rows that only the new query returns, in the columns that both have."""
    columns: Mapping[str, str]
    """The columns that were added or removed, or have another type."""
    changed_values: Mapping[str, int] | None
    """By column, the values that differ between rows of one key; null: no expectation says which columns are unique."""
    removed_rows: tuple[Mapping[str, str | None], ...]
    added_rows: tuple[Mapping[str, str | None], ...]

    @property
    def is_none(self) -> bool:
        """Whether rows and columns are the same."""
        return not (self.removed or self.added or self.columns)


def sample_change(
    workspace: Workspace, request: SampleRequest, submit: Submit, on_lost: Callable[[], None] | None = None
) -> QueryChange:
    """Compute partitions by the deployed definition and by the new one, and compare their rows.

    Nothing is published or recorded.

    :raises UnsupportedError: if that cannot be compared; the message contains the reason.
    :raises ConflictError: if the partitions are being refreshed, or a refresh of them begins meanwhile.
    """
    new = inline_views(workspace, request.table, request.sources)
    name = new.identifier
    try:
        registered = workspace.look_up(name)
    except NotFoundError as error:
        raise UnsupportedError(f"{name} is not deployed, so there are no rows of before to compare with.") from error
    if not isinstance(registered.entry, CatalogDynamicTable) or not declared_part(registered.entry):
        raise UnsupportedError(f"The deployed definition of {name} is not known; apply it first.")
    old = inline_views(workspace, restored(declared_part(registered.entry)), request.sources)
    _check(request, old, new)
    before, after = _bound(workspace, request, old, new)
    for bound, which in ((before, "deployed"), (after, "new")):
        if why := bound.why_it_varies:
            raise UnsupportedError(
                f"The {which} query of {name} may return other rows each time, so a difference says nothing: {why}."
            )
    partitions = request.partitions
    if not partitions.is_whole:
        partitions = normalised(partitions, registered.columns)
    with compared_stage(workspace, registered, partitions, submit, on_lost) as stage:
        former = stage.run(_plan(workspace, stage, before, "before", request))
        shown = ShownDifference(request.rows, _key(new))
        planned = _plan(workspace, stage, after, "after", request)
        result = stage.run(replace(planned, compares=_as_source(former, name), shows=shown))
    return _change(request, partitions, former, result)


def _check(request: SampleRequest, old: DynamicTable, new: DynamicTable) -> None:
    """Check that both definitions can be run on the partitions.

    :raises UnsupportedError: if not.
    """
    name = new.identifier
    for table in (old, new):
        for source in (request.sources[each] for each in table.upstream if each in request.sources):
            if source.watermark is not None or source.event_time is not None:
                why = f"{source.identifier} has a watermark, which decides what each refresh reads"
                raise UnsupportedError(f"The queries of {name} cannot be compared: {why}.")
    keys = {key for spec in request.partitions for key in spec}
    for table, which in ((old, "deployed"), (new, "new")):
        if missing := sorted(keys - {*plain_keys(table.partition_keys)}):
            raise UnsupportedError(
                f"{missing[0]} is no partition key of the {which} definition of {name}, so the rows of a partition are not "
                "known; compare all rows with --sample all."
            )


def _bound(workspace: Workspace, request: SampleRequest, old: DynamicTable, new: DynamicTable) -> tuple[Bound, Bound]:
    """Bind the tables of both queries once, so that both read the same versions."""
    upstream = tuple(dict.fromkeys((*old.upstream, *new.upstream)))
    # The names of the views must be in neither query.
    both = replace(new, upstream=upstream, expanded_query=f"{old.expanded_query}\n{new.expanded_query}")
    sources = bind_sources(workspace, both, request.sources, request.partitions)

    def bound(table: DynamicTable) -> Bound:
        found = bind_query(workspace, replace(table, upstream=upstream), sources).at(request.schedule_time)
        read = [source for source, each in zip(sources, upstream, strict=True) if each in table.upstream]
        return replace(found, table=table, sources=tuple(read))

    return bound(old), bound(new)


def _plan(workspace: Workspace, stage: ComparedStage, bound: Bound, part: str, request: SampleRequest) -> RefreshPlan:
    """Return the plan of a query, whose files contain all columns in whatever format the table has."""
    table, opened = bound.table, stage.stage
    why = (RefreshAction.VERIFY, f"the rows {part} a change of the definition")
    location = f"{opened.location}/{part}"
    return replace(
        bound.plan(opened.token, request.schedule_time, why, workspace.settings.allowed, location),
        statement=statement(table.expanded_query, opened.partitions),
        partitions=opened.partitions,
        file_format=_FILES,
        keys_in_files=True,
        expectations=tuple(one for one in table.expectations if one.action is Action.DROP),
    )


def _as_source(result: RefreshResult, name: TableIdentifier) -> SourceBinding:
    files = tuple(file.path for file in result.files)
    return SourceBinding(str(name), "before", _FILES, "before", files, schema=spark_ddl(result.columns))


def _key(table: DynamicTable) -> tuple[str, ...]:
    """Return the columns that are unique by an expectation; empty if there is none."""
    return next((one.unique for one in table.expectations if one.unique), ())


def _change(request: SampleRequest, partitions: PartitionSet, former: RefreshResult, result: RefreshResult) -> QueryChange:
    found = result.difference
    if found is None:
        name = request.table.identifier
        raise StageRejectedError(f"the job of {name} compared nothing; Spark runs another release of this package.")
    return QueryChange(
        table=str(request.table.identifier),
        partitions=partitions,
        rows_before=found.before,
        rows_after=found.after,
        removed=found.removed,
        added=found.added,
        columns=_column_changes(former.columns, result.columns),
        changed_values=found.changed,
        removed_rows=found.removed_rows,
        added_rows=found.added_rows,
    )


def _column_changes(before: Sequence[Column], after: Sequence[Column]) -> dict[str, str]:
    old, new = ({column.name: column.type for column in columns} for columns in (before, after))
    removed = {name: f"removed ({kind})" for name, kind in old.items() if name not in new}
    added = {name: f"added ({kind})" for name, kind in new.items() if name not in old}
    other = {name: f"{old[name]} -> {kind}" for name, kind in new.items() if old.get(name, kind) != kind}
    return {**removed, **added, **other}
