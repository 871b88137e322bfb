"""Binding of the sources of a refresh to versions. Each format implements it for its tables."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable
from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.formats import is_placed_by_entry
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows, Source, option_problem, path_problem
from airflow_dynamic_tables.core.schema import spark_ddl
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    DynamicTableError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
    UpstreamError,
)
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.registry import bind, connection_options, count_rows, is_bound
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.watermarks.increments import Growth
from airflow_dynamic_tables.services.watermarks.source_progress import look
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def bind_sources(
    workspace: Workspace,
    table: DynamicTable,
    sources: Mapping[TableIdentifier, Source],
    partitions: PartitionSet = WHOLE_TABLE,
    growth: Growth | None = None,
) -> tuple[SourceBinding, ...]:
    """Bind every table that the query reads to its current version. Each table is read once.

    :param partitions: the partitions to refresh.
    :param growth: state of the sources with a watermark.
    :raises ConfigurationError: if the folder of a source is missing or empty.
    :raises UpstreamError: if a dynamic table has no version yet, or a source with a watermark has no complete partition.
    :raises UnsupportedError: if reading a table requires a library that the job lacks, or the table cannot be read by partition.
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
    """Add the event time of a source to its binding.

    :raises UnsupportedError: if its rows are deduplicated and single partitions are refreshed, because duplicates may be in
        different partitions.
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


def _no_version(identifier: TableIdentifier) -> UpstreamError:
    return UpstreamError(f"{identifier} has no version yet; refresh it first.")


def _is_known_to_spark(table: LakeTable, conf: Mapping[str, str], catalog: str) -> bool:
    """Return whether Spark is configured to read a table whose files alone do not define its content."""
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
        raise _no_version(identifier) from error  # a table that does not exist has no known format
    return content.bound(identifier, view)


def what_is_not_there(workspace: Workspace, awaited: AwaitedData) -> str | None:
    """Return why the awaited data is missing, as a sentence without a full stop; ``None`` if it is there.

    Data that cannot be checked counts as missing, because a refresh without it would be silently wrong.

    :raises DynamicTableError: if a retry cannot succeed.
    """
    try:
        if awaited.rows is not None and awaited.source is not None:
            return _missing_rows(workspace, awaited, awaited.source, awaited.rows)
        return None if _is_there(workspace, awaited) else f"{awaited} is not there yet"
    except CatalogUnavailableError as error:
        return f"{awaited} cannot be looked for: {str(error).rstrip('.')}"


def _missing_rows(workspace: Workspace, awaited: AwaitedData, identifier: TableIdentifier, rows: AwaitedRows) -> str | None:
    stores = workspace.readable(identifier.catalog).stores()
    try:
        counted = count_rows(Source(identifier, rows.format, rows.path), stores, awaited.partition, rows.least)
    except TableNotFoundError:
        return f"{identifier} is not there yet"
    return None if counted >= rows.least else f"{awaited.place} has {counted} of {rows.least} rows"


def _is_there(workspace: Workspace, awaited: AwaitedData) -> bool:
    if awaited.source is None:
        return exists(awaited.text)
    catalog = workspace.readable(awaited.source.catalog)
    try:
        return bool(catalog.list_partitions(awaited.source.path, awaited.partition))
    except TableNotFoundError:
        return False
