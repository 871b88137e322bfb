"""Planning: the plan of one refresh, with every source bound to a version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_dates import check_dates, normalised
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.permissions import Allowed
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import Reason, RefreshAction
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.schema import Column, Rebuild, TableLayout
from airflow_dynamic_tables.core.sinks import Sink, tuned
from airflow_dynamic_tables.core.versions import Base, Version
from airflow_dynamic_tables.definitions.model import KEYS, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.queries import bind_functions, inline_views
from airflow_dynamic_tables.services.refresh.binding import bind_sources
from airflow_dynamic_tables.services.refresh.catching_up import fresh_then
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, StreamBatch, requested_partitions
from airflow_dynamic_tables.services.registered import RegisteredTable, find_entry
from airflow_dynamic_tables.services.tables.entries import forgotten_comments
from airflow_dynamic_tables.services.watermarks.increments import Growth
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.protocol import StagedWrite

Why = tuple[RefreshAction, Reason]
"""The action of a refresh and its reason."""

_MEANING = 2
"""Increased when a release writes other rows for the same query, so that every table is refreshed."""

_PLACES = (("timezone",), ("format", "partition_keys", "formatters", "comment", "comments"), ("expectations", "row_counts"))
"""Order of fields in the digest. It must not change, because a release must not refresh every table."""

_LATER = tuple(each for each in KEYS if each.key.decides and each.field not in {name for names in _PLACES for name in names})
"""Keys added later. A table that does not set them keeps its digest."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to fulfil a request."""

    request: RefreshRequest
    registered: RegisteredTable
    write: StagedWrite
    plan: RefreshPlan

    @property
    def stage(self) -> Stage:
        """The attempt's row in the ledger."""
        return self.write.stage


@dataclass(frozen=True, slots=True)
class Bound:
    """A table with inlined views, its bound sources, and its query with the names of the sources' views in the job."""

    table: DynamicTable
    sources: tuple[SourceBinding, ...]
    query: str
    functions: tuple[FunctionBinding, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings that affect the result of the query."""
        return {name: value for name, value in self.table.spark.conf.items() if decides_rows(name)}

    @property
    def recipe(self) -> str:
        """A digest of everything besides the content of the sources that determines the rows."""
        sources = [_without_content(source) for source in self.sources]
        first, *others = ([getattr(self.table, name) for name in names] for names in _PLACES)
        later = {each.name: value for each in _LATER if (value := getattr(self.table, each.field)) != each.default}
        meant = ((_MEANING, self.query, self.functions, sources, self.settings, *first), *others, *([later] if later else []))
        return hashlib.sha256(json.dumps(to_plain(meant), sort_keys=True).encode()).hexdigest()

    def plan(
        self, token: str, schedule_time: datetime, why: tuple[RefreshAction, str], allowed: Allowed, stage: str = ""
    ) -> RefreshPlan:
        """Return the plan of a job that runs the query.

        :param why: the action, and the text of its reason.
        :param allowed: the permissions of the installation.
        :param stage: location for the rows; empty if the job writes none, or gets it later.
        """
        table, traits = self.table, FORMATS[self.table.format]
        action, reason = why
        return RefreshPlan(
            token=token,
            identifier=str(table.identifier),
            schedule_time=schedule_time,
            action=action,
            reason=reason,
            statement=table.expanded_query,
            query=self.query,
            stage=stage,
            file_format=traits.file_format,
            keys_in_files=traits.keys_in_files,
            partition_keys=table.partition_keys,
            sources=self.sources,
            functions=self.functions,
            comment=table.comment,
            comments=table.comments,
            timezone=table.timezone,
            expectations=table.expectations,
            settings=self.settings,
            allowed=allowed,
        )


def _without_content(source: SourceBinding) -> SourceBinding:
    """Return the binding without content, location and columns, which the state of the source covers.

    The options of a server contain the snapshot to read.
    """
    options = source.options if source.has_files else {}
    return replace(source, version="", files=(), base_path=None, schema=None, options=options, parts=(), state=None, times=())


@dataclass(frozen=True, slots=True)
class ToDo:
    """The work of a refresh, as determined before it took the lease.

    ``partitions`` are the partitions to replace, ``growth`` the sources with a watermark. ``bound`` are the inputs if they were
    already compared with those of the version of token ``base``.
    """

    partitions: PartitionSet
    growth: Growth | None = None
    bound: Bound | None = None
    base: str | None = None

    def bound_since(self, current: Version | None) -> Bound | None:
        """Return the compared inputs if there was no commit since; a later commit may have read newer inputs."""
        return self.bound if current is not None and current.token == self.base else None


def planned_partitions(request: RefreshRequest, columns: Sequence[Column], growth: Growth | None = None) -> PartitionSet:
    """Return the partitions that a request replaces, with values normalised to the column types, so that leases compare equal.

    If sources have a watermark, that determines the complete time partitions instead of the schedule.

    :param columns: the columns of the table; empty before its first commit.
    :param growth: state of the sources with a watermark.
    :raises ConfigurationError: if a value does not fit its column's type or its date formatter.
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
    """Check the partitions of a run by hand, so that an invalid run fails before it waits for parents.

    :raises ConfigurationError: as for :func:`planned_partitions`.
    """
    if request.partitions is not None:
        entry = find_entry(workspace, request.table.identifier)
        planned_partitions(request, entry.columns if entry is not None else ())  # the first refresh registers the table


def fitting_layout(request: RefreshRequest, registered: RegisteredTable) -> tuple[TableLayout | None, Rebuild]:
    """Return the table layout that the rows must fit, ``None`` before the first commit, and what the refresh may rebuild.

    :raises SchemaEvolutionError: if the definition's partition keys differ from the table's and cannot be changed.
    """
    layout = registered.loaded.layout()
    if layout is None:
        return None, Rebuild.NOTHING
    rebuild = layout.rebuild if request.full_refresh else Rebuild.NOTHING
    layout.check_keys(request.table.identifier, request.table.partition_keys, rebuild)
    return layout, rebuild


def planned_sink(request: RefreshRequest, staged: StagedTable) -> Sink | None:
    """Return the server table that receives the rows, with the options of the definition; ``None`` if files are written."""
    sink = staged.sink()
    return sink and tuned(sink, request.table.options)


def bind(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, growth: Growth | None = None) -> Bound:
    """Bind every table and function of the query to its current state.

    :param partitions: the partitions to refresh.
    :param growth: state of the sources with a watermark.
    :raises ConfigurationError: see :func:`~airflow_dynamic_tables.services.refresh.binding.bind_sources`, as for UpstreamError.
    :raises CatalogError: see :func:`~airflow_dynamic_tables.services.queries.inline_views`.
    """
    table = inline_views(workspace, request.table, request.sources)
    return bind_query(workspace, table, bind_sources(workspace, table, request.sources, partitions, growth))


def bind_query(workspace: Workspace, table: DynamicTable, sources: tuple[SourceBinding, ...]) -> Bound:
    """Bind the query and the functions of a table.

    :param table: with inlined views.
    :param sources: the bindings of its upstream tables, in that order.
    """
    views = dict(zip(table.upstream, (quote(source.view) for source in sources), strict=True))
    query, functions = bind_functions(workspace, replace_tables(table.expanded_query, views))
    return Bound(table, sources, query, functions)


def plan(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, stage: Stage, why: Why, to_do: ToDo
) -> RefreshPlan:
    """Plan a refresh with every source bound to its current version. The sources of a stream were bound when it started.

    :param why: see :func:`~airflow_dynamic_tables.services.refresh.requests.action_of`.
    :raises DynamicTableError: see :func:`bind`.
    """
    current = registered.current()
    if request.batch is not None:
        return _batch_plan(request, request.batch, stage, current, why)
    bound = to_do.bound_since(current) or bind(workspace, request, stage.partitions, to_do.growth)
    fresh = fresh_then(workspace, registered, request, stage.partitions, has_watermark=to_do.growth is not None)
    # A version with an unknown number has no token.
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
    allowed = workspace.settings.allowed
    planned = bound.plan(request.token, request.schedule_time, (action, reason.text), allowed, stage.location)
    return replace(
        planned,
        statement=statement(table.expanded_query, stage.partitions),
        partitions=stage.partitions,
        comments={**forgotten, **table.comments},
        base=current.snapshot if current is not None else None,
        recipe=bound.recipe,
    )


def _batch_plan(request: RefreshRequest, batch: StreamBatch, stage: Stage, current: Version | None, why: Why) -> RefreshPlan:
    """Return the plan of a stream batch, derived from the plan of the stream, whose sources were bound when it started."""
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
