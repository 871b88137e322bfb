"""Planning: what one refresh will do, with every source bound to a version; and what it works on from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.actions import Reason, RefreshAction
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.sinks.options import tuned
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.core.tables.dates import check_dates
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column, Rebuild, TableLayout
from airflow_dynamic_tables.core.tables.versions import Base, Version
from airflow_dynamic_tables.definitions.model import KEYS, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.queries.functions import bind_functions
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import bind_sources
from airflow_dynamic_tables.services.refresh.catching_up import fresh_then
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, StreamBatch, requested_partitions
from airflow_dynamic_tables.services.registered import RegisteredTable, find_entry
from airflow_dynamic_tables.services.stages.protocol import StagedWrite
from airflow_dynamic_tables.services.tables.entries import forgotten_comments
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.workspace import Workspace

Why = tuple[RefreshAction, Reason]
"""What a refresh does, and why."""

_MEANING = 2
"""Goes up when this release writes other rows for the same query than an earlier one did, so that every table is made anew."""

_PLACES = (("timezone",), ("format", "partition_keys", "formatters", "comment", "comments"), ("expectations", "row_counts"))
"""The places of fields in the digest, which must not change: no table is to be made anew for a release."""

_LATER = tuple(each for each in KEYS if each.key.decides and each.field not in {name for names in _PLACES for name in names})
"""Keys without a place: a table that does not say them has the digest that it had before there was the key."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to do what a request asks for."""

    request: RefreshRequest
    registered: RegisteredTable
    write: StagedWrite
    plan: RefreshPlan

    @property
    def stage(self) -> Stage:
        """Its row in the ledger."""
        return self.write.stage


@dataclass(frozen=True, slots=True)
class Bound:
    """A table with its views inlined, what it reads, and its query with the names that these have in the job."""

    table: DynamicTable
    sources: tuple[SourceBinding, ...]
    query: str
    functions: tuple[FunctionBinding, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings that decide what the query means."""
        return {name: value for name, value in self.table.spark.conf.items() if decides_rows(name)}

    @property
    def recipe(self) -> str:
        """A digest of all that decides the rows besides what the sources hold: the same one makes the same rows of the same."""
        sources = [_without_content(source) for source in self.sources]
        first, *others = ([getattr(self.table, name) for name in names] for names in _PLACES)
        later = {each.name: value for each in _LATER if (value := getattr(self.table, each.field)) != each.default}
        meant = ((_MEANING, self.query, self.functions, sources, self.settings, *first), *others, *([later] if later else []))
        return hashlib.sha256(json.dumps(to_plain(meant), sort_keys=True).encode()).hexdigest()


def _without_content(source: SourceBinding) -> SourceBinding:
    """How a source is read, without what it holds, where and in which columns: its state tells that, and names it.

    The options of a server have the snapshot that is read.
    """
    options = source.options if source.has_files else {}
    return replace(source, version="", files=(), base_path=None, schema=None, options=options, parts=(), state=None, times=())


@dataclass(frozen=True, slots=True)
class ToDo:
    """What a refresh does, as it was found before it took the lease.

    ``partitions`` are those that it replaces, ``growth`` the sources that have a watermark. ``bound`` is all that it reads, where
    that was compared already, with what the version of token ``base`` was made of.
    """

    partitions: PartitionSet
    growth: Growth | None = None
    bound: Bound | None = None
    base: str | None = None

    def bound_since(self, current: Version | None) -> Bound | None:
        """What was compared, as long as nobody has committed since: they may have read what is newer."""
        return self.bound if current is not None and current.token == self.base else None


def planned_partitions(request: RefreshRequest, columns: Sequence[Column], growth: Growth | None = None) -> PartitionSet:
    """The partitions that a request replaces, spelled as the columns of the table spell them: two spellings are one lease.

    Where sources have a watermark, that says which time partitions are complete, and no schedule does.

    :param columns: those of the table; none before its first commit.
    :param growth: those sources.
    :raises ConfigurationError: when a value is none of its column's type, or none that its date formatter gives.
    """
    try:
        requested = requested_partitions(request)
        if growth is not None and request.partitions is None and request.table.formatters and not request.full_refresh:
            requested = growth.published.union(request.updated or NO_PARTITIONS)
        partitions = normalised(requested, columns)
        for spec in () if request.partitions is None or partitions.is_whole else partitions:
            check_dates(spec, request.table.formatters)
    except ValueError as error:
        raise ConfigurationError(f"{request.table.identifier}: {error}.") from error
    return partitions


def check_partitions(workspace: Workspace, request: RefreshRequest) -> None:
    """Check the partitions that a run by hand names, so that it does not wait for parents before it is refused.

    :raises ConfigurationError: as :func:`planned_partitions`.
    """
    if request.partitions is not None:
        entry = find_entry(workspace, request.table.identifier)
        planned_partitions(request, entry.columns if entry is not None else ())  # its first refresh registers it


def fitting_layout(request: RefreshRequest, registered: RegisteredTable) -> tuple[TableLayout | None, Rebuild]:
    """What the rows of a refresh have to fit, ``None`` before the first commit, and what the refresh may change of it.

    :raises SchemaEvolutionError: when the definition has other partition keys than the table, and they have to stay.
    """
    layout = registered.loaded.layout()
    if layout is None:
        return None, Rebuild.NOTHING
    rebuild = layout.rebuild if request.full_refresh else Rebuild.NOTHING
    layout.check_keys(request.table.identifier, request.table.partition_keys, rebuild)
    return layout, rebuild


def planned_sink(request: RefreshRequest, staged: StagedTable) -> Sink | None:
    """The table of a server that the rows of a refresh go into, in the way that its definition says; ``None``: files."""
    sink = staged.sink()
    return sink and tuned(sink, request.table.options)


def bind(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, growth: Growth | None = None) -> Bound:
    """Bind everything that the query reads and calls to what it is now.

    :param partitions: those that are refreshed.
    :param growth: the sources that have a watermark.
    :raises ConfigurationError: see :func:`~airflow_dynamic_tables.services.refresh.binding.bind_sources`, as for UpstreamError.
    :raises CatalogError: see :func:`~airflow_dynamic_tables.services.queries.views.inline_views`.
    """
    table = inline_views(workspace, request.table, request.sources)
    sources = bind_sources(workspace, table, request.sources, partitions, growth)
    views = dict(zip(table.upstream, (quote(source.view) for source in sources), strict=True))
    query, functions = bind_functions(workspace, replace_tables(table.expanded_query, views))
    return Bound(table, sources, query, functions)


def plan(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, stage: Stage, why: Why, to_do: ToDo
) -> RefreshPlan:
    """Bind every source at the version it has now; those of a stream were bound when that began.

    :param why: see :func:`~airflow_dynamic_tables.services.refresh.requests.action_of`.
    :raises DynamicTableError: see :func:`bind`.
    """
    current = registered.current()
    if request.batch is not None:
        return _batch_plan(request, request.batch, stage, current, why)
    bound = to_do.bound_since(current) or bind(workspace, request, stage.partitions, to_do.growth)
    fresh = fresh_then(workspace, registered, request, stage.partitions, has_watermark=to_do.growth is not None)
    # A version of which the number is not known has no token.
    stands_on = Base(current.token, current.data_timestamp) if current is not None and current.token else None
    planned = _refresh_plan(workspace, request, registered, stage, why, bound)
    return replace(planned, data_timestamp=fresh, stands_on=stands_on)


def _refresh_plan(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, stage: Stage, why: Why, bound: Bound
) -> RefreshPlan:
    action, reason = why
    table = bound.table
    current, entry = registered.current(), registered.entry
    forgotten = forgotten_comments(entry) if current is not None and isinstance(entry, CatalogDynamicTable) else {}
    traits = FORMATS[table.format]
    return RefreshPlan(
        token=request.token,
        identifier=str(table.identifier),
        schedule_time=request.schedule_time,
        action=action,
        reason=reason.text,
        statement=statement(table.expanded_query, stage.partitions),
        query=bound.query,
        stage=stage.location,
        file_format=traits.file_format,
        keys_in_files=traits.keys_in_files,
        partition_keys=table.partition_keys,
        partitions=stage.partitions,
        sources=bound.sources,
        functions=bound.functions,
        comment=table.comment,
        comments={**forgotten, **table.comments},
        timezone=table.timezone,
        expectations=table.expectations,
        base=current.snapshot if current is not None else None,
        settings=bound.settings,
        allowed=workspace.settings.allowed,
        recipe=bound.recipe,
    )


def _batch_plan(request: RefreshRequest, batch: StreamBatch, stage: Stage, current: Version | None, why: Why) -> RefreshPlan:
    """The plan of a batch of a stream, made of that of the stream; its sources were bound when that began."""
    action, reason = why
    return replace(
        batch.plan,
        token=request.token,
        stage=stage.location,
        schedule_time=request.schedule_time,
        data_timestamp=request.schedule_time,
        action=action,
        reason=reason.text,
        base=current.snapshot if current is not None else None,
        stream=None,
        position=batch.position,
        follows=batch.follows,
    )
