"""Planning: the plan of one refresh, with its query and every source bound to a version. Each format binds its tables."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.core.formats import FORMATS, VIEW, is_placed_by_entry
from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.partition_dates import start_of
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.permissions import Allowed
from airflow_dynamic_tables.core.refresh.plan import BoundTime, FunctionBinding, Merge, RefreshPlan, SourceBinding, named_times
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import NOTHING_LATE, LateChanges, SourceState
from airflow_dynamic_tables.core.refresh.sources import Source, option_problem, path_problem
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.schema import Rebuild, TableLayout, spark_ddl
from airflow_dynamic_tables.core.sinks import tuned
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.core.versions import Base, Version
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.model import KEYS, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.definitions.queries.text import bind_times
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DynamicTableError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
    UpstreamError,
    VersionNotFoundError,
)
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable
from airflow_dynamic_tables.formats.registry import bind, bind_at, connection_options, is_bound
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.queries import bind_functions, inline_views
from airflow_dynamic_tables.services.refresh.catching_up import fresh_then
from airflow_dynamic_tables.services.refresh.partition_mappings import PartitionMappings
from airflow_dynamic_tables.services.refresh.preview import statement, why_it_varies
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, StreamBatch
from airflow_dynamic_tables.services.refresh.source_ages import check_ages
from airflow_dynamic_tables.services.source_progress import Growth, look
from airflow_dynamic_tables.services.tables.entries import forgotten_comments
from airflow_dynamic_tables.services.tables.source_reads import found_fresh
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.protocol import StagedWrite

log = logging.getLogger(__name__)


_MEANING = 2
"""Increased when a release writes other rows for the same query, so that every table is refreshed."""

_PLACES = (("timezone",), ("format", "partition_keys", "formatters", "comment", "comments"), ("expectations", "row_counts"))
"""Order of fields in the digest. It must not change, because a release must not refresh every table."""

_LATER = tuple(each for each in KEYS if each.key.decides and each.field not in {name for names in _PLACES for name in names})
"""Keys added later. A table that does not set them keeps its digest."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A table with inlined views, its bound sources, and its query with the names of the sources' views in the job.

    ``stale`` says which sources are older than their definitions allow, without a full stop; empty if none is.
    """

    table: DynamicTable
    sources: tuple[SourceBinding, ...]
    query: str
    functions: tuple[FunctionBinding, ...]
    times: tuple[BoundTime, ...] = ()
    stale: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings that affect the result of the query."""
        return row_settings(self.table.spark.conf)

    @property
    def recipe(self) -> str:
        """A digest of everything besides the content of the sources that determines the rows."""
        sources = [_without_content(source) for source in self.sources]
        first, *others = ([getattr(self.table, name) for name in names] for names in _PLACES)
        later = {each.name: value for each in _LATER if (value := getattr(self.table, each.field)) != each.default}
        meant = ((_MEANING, self.query, self.functions, sources, self.settings, *first), *others, *([later] if later else []))
        meant = (*meant, *([self.times] if self.times else []))
        return hashlib.sha256(json.dumps(to_plain(meant), sort_keys=True).encode()).hexdigest()

    @property
    def versions(self) -> str:
        """The sources with their versions, for people."""
        return ", ".join(f"{source.identifier} ({source.version})" for source in self.sources) or "it reads no table"

    @property
    def why_it_varies(self) -> str | None:
        """Why the query may return different rows for the same inputs, without a full stop; ``None`` if it does not."""
        return why_it_varies(self.table, self.query, self.times, self.functions)

    @property
    def why_other_recipe(self) -> str:
        """The possible reason why a refresh had another recipe, without a full stop."""
        times = ", ".join(named_times(self.query, self.times))
        return f"{times} is another time, or its definition changed" if times else "its definition changed"

    def place(self, offset: int) -> str:
        """Return line and column of a character of the query before its sources are replaced by views."""
        before = self.table.expanded_query[:offset]
        return f"{before.count(chr(10)) + 1}:{offset - (before.rfind(chr(10)) + 1) + 1}"

    def at(self, time: datetime) -> Bound:
        """Bind what the query says about the time of its run to another time."""
        # A function of a catalog may return fields of any name.
        times = bind_times(self.query, time, self.table.timezone, self.settings)
        return replace(self, times=tuple(one for one in times if not (one.is_name and self.functions)))

    def plan(
        self, token: str, schedule_time: datetime, why: tuple[RefreshAction, str], allowed: Allowed, stage: str = ""
    ) -> RefreshPlan:
        """Return the plan of a job that runs the query.

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
            times=self.times,
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


def bind_inputs(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, growth: Growth | None = None) -> Bound:
    """Bind every table and function of the query to its current state, and its functions of time to the schedule time.

    :raises ConfigurationError: see :func:`bind_sources`, as for UpstreamError.
    :raises StaleSourceError: see :func:`~.source_ages.check_ages`.
    """
    table = inline_views(workspace, request.table, request.sources)
    bound = bind_query(workspace, table, bind_sources(workspace, table, request.sources, partitions, growth))
    stale = check_ages(request.sources, bound.sources, workspace.now(), may_fail=request.is_scheduled)
    if stale:
        log.warning("%s: %s.", table.identifier, stale)
    bound = replace(bound, stale=stale)
    return bound if request.is_one_off else bound.at(request.schedule_time)


def bind_query(workspace: Workspace, table: DynamicTable, sources: tuple[SourceBinding, ...]) -> Bound:
    """Bind the query and the functions of a table.

    :param table: with inlined views.
    :param sources: the bindings of its upstream tables, in that order.
    """
    views = dict(zip(table.upstream, (quote(source.view) for source in sources), strict=True))
    query, functions = bind_functions(workspace, replace_tables(Cache.of_user().analyse(table.expanded_query), views))
    return Bound(table, sources, query, functions)


def bind_sources(
    workspace: Workspace,
    table: DynamicTable,
    sources: Mapping[TableIdentifier, Source],
    partitions: PartitionSet = WHOLE_TABLE,
    growth: Growth | None = None,
    recorded: Mapping[str, str] | None = None,
) -> tuple[SourceBinding, ...]:
    """Bind every table that the query reads to its current version. Each table is read once.

    :param recorded: earlier versions to bind instead, by the full name of the table.
    :raises ConfigurationError: if the folder of a source is missing or empty.
    :raises UpstreamError: if a dynamic table has no version yet, or a source with a watermark has no complete partition.
    :raises UnsupportedError: if reading a table requires a library that the job lacks, or the table cannot be read by partition.
    """
    bindings = []
    for number, identifier in enumerate(table.upstream):
        view = view_name(table, number)
        version = (recorded or {}).get(str(identifier))
        source = sources.get(identifier) or _described(workspace, identifier)
        if source is not None and source.endless is not None:
            raise UnsupportedError(
                f"{identifier} never ends, so only a stream reads it: give {table.identifier} refresh_mode: continuous and "
                "strategy: stream; nothing else refreshes it."
            )
        if growth is not None and str(identifier) in growth.sources:
            bindings.append(growth.binding(str(identifier), view, partitions))
        elif source is not None and is_bound(source):
            _check_options(source)
            stores = workspace.readable(identifier.catalog).stores()
            conf = table.spark.conf
            bound = bind(source, stores, view, conf) if version is None else bind_at(source, stores, view, conf, version)
            bindings.append(bound)
        else:
            bindings.append(_bind_table(workspace, table, identifier, view, version))
        if source is not None and source.event_time is not None:
            bindings[-1] = _told_apart(table, bindings[-1], source.event_time, partitions)
    return tuple(bindings)


def _told_apart(table: DynamicTable, binding: SourceBinding, event_time: EventTime, partitions: PartitionSet) -> SourceBinding:
    """Add the event time of a source to its binding.

    :raises UnsupportedError: if its rows are deduplicated and single partitions are refreshed, because duplicates may be in
        different partitions.
    """
    if event_time.deduplicate and not partitions.is_whole:
        columns = ", ".join(event_time.deduplicate)
        raise UnsupportedError(
            f"{table.identifier} reads {binding.identifier}, whose rows are told apart by {columns} over all partitions, so none "
            "is refreshed alone; refresh the complete table, or let a stream keep it fresh."
        )
    return replace(binding, event_time=event_time)


def look_at_sources(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]
) -> dict[str, SourceState]:
    """Return the current state of every table that the query reads, by name. Unreadable tables are omitted with a warning."""
    states: dict[str, SourceState] = {}
    whole = inline_views(workspace, table, sources)
    current = workspace.table(table.identifier, table.format).current()
    for identifier in whole.upstream:
        only = replace(whole, upstream=(identifier,))
        try:
            growth = look(workspace, only, sources, current)
            partitions = growth.published if growth is not None else WHOLE_TABLE
            (binding,) = bind_sources(workspace, only, sources, partitions, growth)
        except DynamicTableError as error:
            log.warning("Cannot read %s: %s", identifier, error)
        else:
            states[binding.identifier] = binding.state or SourceState(binding.version)
    return states


def view_name(table: DynamicTable, number: int) -> str:
    """Return the name of the temporary view of an upstream table, by its position in ``upstream``."""
    identifier = table.upstream[number]
    text = table.expanded_query.lower()
    view = re.sub(r"\W", "_", f"{identifier.database}_{identifier.table}_{number}", flags=re.ASCII)
    while view.lower() in text:  # a common table expression of that name would hide the view
        view += "_"
    return view


def _check_options(source: Source) -> None:
    """Check the path and options from a catalog, because they become part of the plan.

    :raises ConfigurationError: if they contain a secret.
    """
    problems = (path_problem(source.path), *(option_problem(source.format, option) for option in source.options))
    if problem := next(filter(None, problems), None):
        raise ConfigurationError(f"{source.identifier}: {problem}.")


def connection_variable(conn_id: str) -> str:
    """Return the name of the environment variable with the options of a connection for a job."""
    return "DYNAMIC_TABLES_CONNECTION_" + re.sub(r"\W", lambda sign: f"_{ord(sign[0]):x}_", conn_id, flags=re.ASCII)


def job_environment(workspace: Workspace, plan: RefreshPlan) -> dict[str, str]:
    """Return the environment variables of a job's driver with passwords, which must not be in a plan or on a command line.

    :raises ConfigurationError: if a connection is missing or incomplete.
    """
    environment: dict[str, str] = {}
    for source in (*plan.sources, *plan.references, *([plan.compares] if plan.compares is not None else [])):
        if source.conn_id is not None:
            connection = workspace.settings.connections(source.conn_id)
            options = connection_options(source.format, source.conn_id, connection)
            environment[connection_variable(source.conn_id)] = json.dumps(options)
        elif source.password_variable is not None:
            for store in workspace.readable(TableIdentifier.parse(source.identifier).catalog).stores():
                environment |= store.passwords
    if plan.sink is not None and plan.sink.password_variable is not None:
        for store in workspace.readable(TableIdentifier.parse(plan.identifier).catalog).stores():
            environment |= store.passwords
    return environment


def _described(workspace: Workspace, identifier: TableIdentifier) -> Source | None:
    """Return the source of a table as its catalog describes it.

    This applies to tables that only a view references, and to own tables that are read through their server.

    :return: ``None`` if the catalog has no such table.
    :raises UpstreamError: if an own table has no version yet.
    """
    catalog = workspace.readable(identifier.catalog)
    try:
        entry = catalog.get_table(identifier.path)
    except (TableNotFoundError, UnsupportedError):
        return None
    reads_as = next((store.reads_as for store in catalog.stores() if store.reads_as is not None), None)
    if isinstance(entry, CatalogDynamicTable) and entry.format == reads_as:
        if entry.snapshot is None:
            raise _no_version(identifier)
        return Source(identifier, reads_as)
    if not isinstance(entry, CatalogTable):
        return None
    if reads_as is not None and not is_placed_by_entry(entry.format):
        return Source(identifier, reads_as)
    schema = spark_ddl(entry.columns) or None
    return Source(identifier, entry.format, entry.location, entry.partition_keys, schema, entry.options)


def source_of(workspace: Workspace, identifier: TableIdentifier) -> Source:
    """Return a table of a catalog, of which no source is declared.

    :raises UpstreamError: if it does not exist.
    """
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except NotFoundError as error:
        raise _no_version(identifier) from error
    return Source(identifier, VIEW) if isinstance(entry, CatalogView) else Source(identifier, entry.format, entry.location)


def _no_version(identifier: TableIdentifier) -> UpstreamError:
    return UpstreamError(f"{identifier} has no version yet; refresh it first.")


def _is_known_to_spark(table: LakeTable, conf: Mapping[str, str], catalog: str) -> bool:
    """Return whether Spark is configured to read a table whose files alone do not define its content."""
    return table.library in conf.get("spark.sql.extensions", "") if table.library else f"spark.sql.catalog.{catalog}" in conf


def _bind_table(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, view: str, version: str | None
) -> SourceBinding:
    try:
        found = workspace.existing_table(identifier)
        spark_name = identifier.sql if _is_known_to_spark(found, table.spark.conf, identifier.catalog) else None
        content = found.read(spark_name) if version is None else found.load().read_at(version, spark_name)
    except VersionNotFoundError:
        raise
    except NotFoundError as error:
        raise _no_version(identifier) from error
    except UnsupportedError as error:
        if workspace.catalog(identifier.catalog).table_exists(identifier.path):
            raise
        raise _no_version(identifier) from error  # a table that does not exist has no known format
    return content.bound(identifier, view)


Why = tuple[RefreshAction, Reason]
"""The action of a refresh and its reason."""


@dataclass(frozen=True, slots=True)
class Merging:
    """The merge of the new rows of a source into a table: the sources to read instead of the complete ones."""

    sources: tuple[SourceBinding, ...]
    merge: Merge


@dataclass(frozen=True, slots=True)
class ToDo:
    """The work of a refresh, as determined before it took the lease.

    ``partitions`` are the partitions to replace, ``growth`` the sources with a watermark. ``bound`` are the inputs if they were
    already compared with those of the version of token ``base``. ``late`` are older partitions whose sources changed, ``change``
    is the reason for the partitions of an incremental refresh. ``merging`` is for inputs that are still ``bound``; ``not_merged``
    says why the rows added to a source cannot be merged. ``frozen`` are partitions that are left out. ``later`` are those of the
    next commits of the refresh, if it makes several: this is ``commit`` number of so many. ``search`` is the number of the last
    search for dirty partitions before any input was read.
    """

    partitions: PartitionSet
    growth: Growth | None = None
    bound: Bound | None = None
    base: str | None = None
    late: LateChanges = NOTHING_LATE
    change: Reason | None = None
    merging: Merging | None = None
    not_merged: str = ""
    frozen: PartitionSet = NO_PARTITIONS
    later: PartitionSet = NO_PARTITIONS
    commit: tuple[int, int] = (1, 1)
    search: int | None = None

    def bound_since(self, current: Version | None) -> Bound | None:
        """Return the compared inputs if there was no commit since; a later commit may have read newer inputs."""
        return self.bound if self.is_based_on(current) else None

    def is_based_on(self, current: Version | None) -> bool:
        """Return whether there was no commit since it was determined."""
        return self.base == (current.token if current is not None else None)

    def divided(self, table: DynamicTable) -> ToDo:
        """Return the work of the first of several commits, the oldest partitions, if the table limits those of one commit."""
        most = table.max_partitions_per_commit
        if most is None or self.partitions.is_whole or self.merging is not None or len(self.partitions) <= most:
            return self
        specs = sorted(self.partitions, key=partial(_age, table)) if table.formatters else list(self.partitions)
        first, later = PartitionSet.of(specs[:most]), PartitionSet.of(specs[most:])
        number, _ = self.commit
        return replace(self, partitions=first, later=later, commit=(number, number + -(-len(later) // most)))

    def following(self, base: str | None, table: DynamicTable) -> ToDo:
        """Return the work of the next commit, of the ``later`` partitions.

        :param base: the token of the version of this commit; ``None`` if others were made since the work was determined.
        """
        number, _ = self.commit
        rest = replace(self, partitions=self.later, later=NO_PARTITIONS, base=base, commit=(number + 1, number + 1))
        return rest.divided(table)

    @property
    def left(self) -> int | None:
        """The number of partitions known to be out of date that this commit does not replace; ``None`` if it is unknown."""
        left = self.later.union(self.late.to_leave)
        return None if left.is_whole else len(left)

    def merging_since(self, current: Version | None) -> Merging | None:
        """Return the merge if there was no commit since."""
        return self.merging if self.bound_since(current) is not None else None

    @property
    def without_frozen(self) -> str:
        """A sentence about frozen partitions without a full stop; empty if there are none."""
        return f"without {self.frozen.brief}, frozen" if not self.frozen.is_empty else ""

    def explained(self, reason: Reason) -> Reason:
        """Add the state of the sources to the reason of the refresh."""
        stale = self.bound.stale if self.bound is not None else ""
        if self.change is not None:
            text = "; ".join(filter(None, (reason.text, self._number, self.change.text, str(self.late), stale)))
            return Reason(self.change.code, text)
        causes = (reason.text, self._number, str(self.growth or ""), self.without_frozen, str(self.late), stale)
        text = "; ".join(filter(None, causes))
        is_only_late = not self.partitions.is_empty and self.partitions == self.late.to_refresh
        return Reason(ReasonCode.LATE_DATA if is_only_late else reason.code, text)

    @property
    def _number(self) -> str:
        number, last = self.commit
        return f"commit {number} of {last}" if last > 1 else ""


def _age(table: DynamicTable, spec: Mapping[str, str | None]) -> datetime:
    """Return the start of a partition; null and values that are no times come first."""
    try:
        return start_of(spec, table.formatters)
    except ValueError:
        return datetime.min  # noqa: DTZ901  # partitions have wall-clock times


def plan(write: StagedWrite, request: RefreshRequest, registered: RegisteredTable, why: Why, to_do: ToDo) -> RefreshPlan:
    """Plan a refresh with every source bound to its current version. The sources of a stream were bound when it started.

    :raises SchemaEvolutionError: if the definition's partition keys differ from the table's and cannot be changed.
    """
    layout, rebuild = _fitting_layout(request, registered)
    if request.batch is not None:
        planned = _batch_plan(request, request.batch, write.stage, registered.current(), why)
    else:
        planned = _refresh_plan(write, request, registered, why, to_do)
    sink = write.staged.sink()
    limits = registered.lake_table.limits
    return replace(planned, layout=layout, rebuild=rebuild, sink=sink and tuned(sink, request.table.options), limits=limits)


def _fitting_layout(request: RefreshRequest, registered: RegisteredTable) -> tuple[TableLayout | None, Rebuild]:
    """Return the table layout that the rows must fit, ``None`` before the first commit, and what the refresh may rebuild.

    :raises SchemaEvolutionError: if the definition's partition keys differ from the table's and cannot be changed.
    """
    layout = registered.loaded.layout()
    if layout is None:
        return None, Rebuild.NOTHING
    rebuild = layout.rebuild if request.full_refresh else Rebuild.NOTHING
    layout.check_keys(request.table.identifier, request.table.partition_keys, rebuild)
    return layout, rebuild


def _refresh_plan(write: StagedWrite, request: RefreshRequest, registered: RegisteredTable, why: Why, to_do: ToDo) -> RefreshPlan:
    workspace, stage = write.workspace, write.stage
    current, entry = registered.current(), registered.entry
    action, reason = why
    bound = to_do.bound_since(current) or bind_inputs(workspace, request, stage.partitions, to_do.growth)
    allowed = workspace.settings.allowed
    merging = to_do.merging_since(current)
    planned = bound.plan(request.token, request.schedule_time, (action, reason.text), allowed, stage.location)
    forgotten = forgotten_comments(entry) if current is not None and isinstance(entry, CatalogDynamicTable) else {}
    if to_do.later.is_empty:
        fresh = fresh_then(workspace, registered, request, stage.partitions, has_watermark=to_do.growth is not None)
    else:
        fresh = found_fresh(workspace, current)
    planned = replace(
        planned,
        statement=statement(bound.table.expanded_query, stage.partitions),
        partitions=stage.partitions,
        comments={**forgotten, **bound.table.comments},
        base=current.snapshot if current is not None else None,
        recipe=bound.recipe,
        data_timestamp=fresh,
        # A version with an unknown number has no token.
        stands_on=Base(current.token, current.data_timestamp) if current is not None and current.token else None,
        sources=merging.sources if merging is not None else planned.sources,
        merge=merging.merge if merging is not None else None,
        compared=_compared(bound, registered.loaded, stage.partitions),
        references=_references(workspace, bound, request.sources),
    )
    if planned.partitions.is_whole or to_do.growth is not None:  # only files of complete partitions are bound then
        return planned
    return PartitionMappings(bound.table, bound.sources, registered.columns).restricted(planned)


def _compared(bound: Bound, loaded: LoadedTable, partitions: PartitionSet) -> SourceBinding | None:
    """Return the current rows of the table, if an expectation compares rows with those of partitions that are not replaced."""
    table = bound.table
    is_needed = not partitions.is_whole and any(one.compares_with(str(table.identifier)) for one in table.expectations)
    if not is_needed or loaded.current() is None:
        return None
    return loaded.read().bound(table.identifier, f"{view_name(table, 0)}_compared" if table.upstream else "compared")


def _references(workspace: Workspace, bound: Bound, sources: Mapping[TableIdentifier, Source]) -> tuple[SourceBinding, ...]:
    """Return the other tables that expectations refer to, at the version that the query reads, or else their current one.

    :raises ConfigurationError: see :func:`bind_sources`, as for UpstreamError.
    """
    if all(one.relationship is None for one in bound.table.expectations):
        return ()
    read = {source.identifier: source for source in bound.sources}
    others = tuple(name for name in bound.table.references if str(name) not in read)
    bindings = bind_sources(workspace, replace(bound.table, upstream=others), sources)
    return (*(read[str(name)] for name in bound.table.references if str(name) in read), *bindings)


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
