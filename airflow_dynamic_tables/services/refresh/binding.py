"""Binding: which version of every table a refresh reads. How, each format knows."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source, option_problem, path_problem
from airflow_dynamic_tables.core.streaming.streams import EventTime
from airflow_dynamic_tables.core.tables.formats import is_placed_by_entry
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DynamicTableError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
    UpstreamError,
)
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.registry import bind, connection_options, is_bound
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.watermarks.looking import look
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def bind_sources(
    workspace: Workspace,
    table: DynamicTable,
    sources: Mapping[TableIdentifier, Source],
    partitions: PartitionSet = WHOLE_TABLE,
    growth: Growth | None = None,
) -> tuple[SourceBinding, ...]:
    """Bind every table the query reads to the version it has now; each table is looked at once.

    :param partitions: what is refreshed of the table.
    :param growth: the sources that have a watermark, as somebody has looked at them.
    :raises ConfigurationError: when a source's folder is missing or empty.
    :raises UpstreamError: when a dynamic table has no version yet, or a source with a watermark no whole partition.
    :raises UnsupportedError: when a table cannot be read without a library that the job lacks, or not by partitions.
    """
    bindings = []
    for number, identifier in enumerate(table.upstream):
        view = view_name(table, number)
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
            bindings.append(bind(source, workspace.readable(identifier.catalog).stores(), view, table.spark.conf))
        else:
            bindings.append(_bind_table(workspace, table, identifier, view))
        if source is not None and source.event_time is not None:
            bindings[-1] = _told_apart(table, bindings[-1], source.event_time, partitions)
    return tuple(bindings)


def _told_apart(table: DynamicTable, binding: SourceBinding, event_time: EventTime, partitions: PartitionSet) -> SourceBinding:
    """The binding of a source of whose rows some are one.

    :raises UnsupportedError: when partitions are made one by one: each could leave a row to the other.
    """
    if event_time.deduplicate and not partitions.is_whole:
        columns = ", ".join(event_time.deduplicate)
        raise UnsupportedError(
            f"{table.identifier} reads {binding.identifier}, whose rows are told apart by {columns} over all partitions, so none "
            "is refreshed alone; refresh the whole table, or let a stream keep it fresh."
        )
    return replace(binding, event_time=event_time)


def look_at_sources(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]
) -> dict[str, SourceState]:
    """What every table the query reads is like now, by its name; those that cannot be looked at are left out, with a warning."""
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
    """The temporary view that stands for one of the tables that a table reads, by its number among them."""
    identifier = table.upstream[number]
    text = table.expanded_query.lower()
    view = re.sub(r"\W", "_", f"{identifier.database}_{identifier.table}_{number}", flags=re.ASCII)
    while view.lower() in text:  # a common table expression of that name would be read in its place
        view += "_"
    return view


def _check_options(source: Source) -> None:
    """What a catalog says of a table goes into the plan, too.

    :raises ConfigurationError: when it holds a secret.
    """
    problems = (path_problem(source.path), *(option_problem(source.format, option) for option in source.options))
    if problem := next(filter(None, problems), None):
        raise ConfigurationError(f"{source.identifier}: {problem}.")


def connection_variable(conn_id: str) -> str:
    """The environment variable in which a job finds what a connection says."""
    return "DYNAMIC_TABLES_CONNECTION_" + re.sub(r"\W", lambda sign: f"_{ord(sign[0]):x}_", conn_id, flags=re.ASCII)


def job_environment(workspace: Workspace, plan: RefreshPlan) -> dict[str, str]:
    """Environment variables that the driver of a job needs: passwords, which must not stand in a plan or on a command line.

    :raises ConfigurationError: when a connection is not there, or does not say what it has to.
    """
    environment: dict[str, str] = {}
    for source in plan.sources:
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
    """A table that only a view names, or one of ours that is read as those of its server, as its catalog describes it.

    :return: ``None`` when the catalog has no such table.
    :raises UpstreamError: when one of ours has no version yet.
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


def _no_version(identifier: TableIdentifier) -> UpstreamError:
    return UpstreamError(f"{identifier} has no version yet; refresh it first.")


def _is_known_to_spark(table: LakeTable, conf: Mapping[str, str], catalog: str) -> bool:
    """Whether the Spark of a refresh can read a table also where its files alone do not tell what it holds."""
    return table.library in conf.get("spark.sql.extensions", "") if table.library else f"spark.sql.catalog.{catalog}" in conf


def _bind_table(workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, view: str) -> SourceBinding:
    try:
        found = workspace.table(identifier)
        content = found.read(identifier.sql if _is_known_to_spark(found, table.spark.conf, identifier.catalog) else None)
    except NotFoundError as error:
        raise _no_version(identifier) from error
    except UnsupportedError as error:
        if workspace.catalog(identifier.catalog).table_exists(identifier.path):
            raise
        raise _no_version(identifier) from error  # so that nobody knows its format
    return content.bound(identifier, view)
