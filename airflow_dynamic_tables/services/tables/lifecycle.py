"""Dynamic tables in the catalog: created, and altered when their definition changed."""

from __future__ import annotations

import logging
from dataclasses import replace
from enum import StrEnum

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, JobState, RefreshHandler
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.normalised import normalised
from airflow_dynamic_tables.exceptions import CatalogError, SchemaEvolutionError, TableNotFoundError
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

FORGOTTEN_COMMENTS = "forgotten_comments"
"""Key in what the catalog keeps of a definition: columns whose comments are to go with the next refresh."""


class Registration(StrEnum):
    """What became of a definition in the catalog."""

    CREATED = "created"
    ALTERED = "altered"
    UNCHANGED = "unchanged"
    ADOPTED = "adopted"


def create(workspace: Workspace, table: DynamicTable, job_state: JobState = JobState.INITIALIZING) -> Registration:
    """Register a dynamic table in its catalog, with its database; idempotent.

    An entry that an earlier release wrote without its definition is altered once. A suspended table stays suspended.

    :raises ConfigurationError: when its name may not be one.
    :raises CatalogError: when something else of that name exists.
    :raises SchemaEvolutionError: when the table holds rows in another format.
    """
    identifier = table.identifier
    check_names(identifier.catalog, identifier.database, identifier.table)
    catalog = workspace.catalog(identifier.catalog)
    catalog.create_database(identifier.database, CatalogDatabase(), ignore_if_exists=True)
    path = identifier.path
    try:
        entry = _dynamic(identifier, catalog.get_table(path))
    except TableNotFoundError:
        catalog.create_table(path, _entry(table, job_state), ignore_if_exists=True)
        return Registration.CREATED
    check_format(workspace, identifier, entry.format, table.format)
    wanted = _altered(entry, table, job_state)
    if wanted == entry:
        return Registration.UNCHANGED
    _tell_of_other_workflow(identifier, entry.refresh_handler, wanted.refresh_handler)
    _tell_of_other_mode(table, entry.refresh_handler)
    # Somebody may suspend the table meanwhile, and commits go on.
    catalog.change_table(path, lambda now: _altered(_dynamic(identifier, now), table, job_state))
    return Registration.ALTERED


def _dynamic(identifier: TableIdentifier, entry: AnyTable) -> CatalogDynamicTable:
    if not isinstance(entry, CatalogDynamicTable):
        raise CatalogError(f"{identifier} exists and is no dynamic table; adopt it, drop it or choose another name.")
    return entry


def _altered(entry: CatalogDynamicTable, table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    """An entry with what the definition says now."""
    wanted = replace(
        _entry(table, _next_state(entry.refresh_handler.job_state, job_state)),
        # What commits and other engines write is not the definition's affair.
        columns=entry.columns,
        location=entry.location,
        snapshot=entry.snapshot,
        properties=entry.properties,
    )
    if forgotten := _forgotten_comments(entry, table):
        wanted = replace(wanted, definition={**(wanted.definition or {}), FORGOTTEN_COMMENTS: forgotten})
    return wanted


def check_format(workspace: Workspace, identifier: TableIdentifier, known: str, wanted: str) -> None:
    """Check that rows which are there are of the definition's format: in another one nobody would find them.

    :raises SchemaEvolutionError: when they are not.
    """
    if known != wanted and workspace.table(identifier, known).layout() is not None:
        raise SchemaEvolutionError(
            f"{identifier} is a table of format {known}, its definition now says {wanted}. No refresh can change that in one "
            "step: drop the table (dynamic-tables drop) and refresh it again, or give the definition another name."
        )


def _tell_of_other_workflow(identifier: TableIdentifier, before: RefreshHandler, now: RefreshHandler) -> None:
    earlier, current = (handler.job_detail.get("workflowId") for handler in (before, now))
    if earlier and earlier != current:
        log.warning(
            "%s belonged to the DAG %s, and belongs to %s from now on. Delete the former in Airflow; if definitions still make "
            "it, with another 'dag_id_prefix' or 'dag', let them agree: both would refresh the table.",
            identifier,
            earlier,
            current,
        )


def _tell_of_other_mode(table: DynamicTable, before: RefreshHandler) -> None:
    """Told once, by whoever writes the new mode into the catalog; rows, versions and readers stay as they are."""
    earlier = before.actual_refresh_mode
    if earlier is not table.mode:
        log.warning("%s changes from %s to %s: %s.", table.identifier, earlier, table.mode, table.mode_reason)


def _forgotten_comments(entry: CatalogDynamicTable, table: DynamicTable) -> list[str]:
    """Columns that had a comment in an earlier definition and have none now; it is kept until they have one again."""
    earlier = entry.definition or {}
    return sorted({*earlier.get("columns", ()), *earlier.get(FORGOTTEN_COMMENTS, ())} - {*table.comments})


def is_suspended(workspace: Workspace, identifier: TableIdentifier) -> bool:
    """Whether somebody suspended the refreshes of a table; not when the catalog does not know it yet."""
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return False
    return isinstance(entry, CatalogDynamicTable) and entry.refresh_handler.job_state is JobState.SUSPENDED


def adopt(workspace: Workspace, table: DynamicTable) -> Registration:
    """Make a dynamic table of a table that is there already; no data is written, and what it holds stays readable.

    :raises TableNotFoundError: when there is none.
    :raises UnsupportedError: when its catalog cannot do that, or the table does not fit the definition.
    """
    catalog = workspace.catalog(table.identifier.catalog)
    is_new = catalog.adopt_table(table.identifier.path, _entry(table, JobState.INITIALIZING))
    return Registration.ADOPTED if is_new else Registration.UNCHANGED


def _next_state(current: JobState, asked: JobState) -> JobState:
    """The job state of a table that is registered again: only a command resumes, and what runs is not initialized again."""
    if JobState.SUSPENDED in (current, asked):
        return JobState.SUSPENDED
    return JobState.RUNNING if JobState.RUNNING in (current, asked) else JobState.INITIALIZING


def _entry(table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    detail = {"schedulerType": "airflow", "endpoint": "", "workflowId": table.workflow_id}
    return CatalogDynamicTable(
        columns=(),
        original_query=table.query,
        expanded_query=table.expanded_query,
        freshness=table.freshness.text,
        declared_refresh_mode=table.declared_mode,
        refresh_handler=RefreshHandler(table.mode, job_state, detail),
        comment=table.comment,
        partition_keys=table.partition_keys,
        format=table.format,
        options={**table.options, **table.retention.options},  # where the maintenance finds it without a definition
        definition=normalised(table),
    )
