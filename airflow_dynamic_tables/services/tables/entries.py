"""Catalog entries of dynamic tables, built from their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_dynamic_tables.catalog.values import Asked, CatalogDynamicTable, JobState, RefreshHandler, state_after
from airflow_dynamic_tables.definitions.cache import normalised
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import same_query
from airflow_dynamic_tables.schedulers.registry import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.registered import RegisteredTable, find_entry
from airflow_dynamic_tables.services.tables.owners import DEPLOYED_BY
from airflow_dynamic_tables.services.workspace import Workspace

FORGOTTEN_COMMENTS = "forgotten_comments"
"""Key in the catalog's definition: columns whose comments the next refresh removes."""

ROWS_BEFORE = "rows_before"
"""Key in the catalog's definition: the snapshot of the table before its definition changed the rows."""


def new_entry(table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    """Return the catalog entry of a table that is not registered yet."""
    return CatalogDynamicTable(
        columns=(),
        original_query=table.query,
        expanded_query=table.expanded_query,
        freshness=table.freshness.text,
        declared_refresh_mode=table.declared_mode,
        refresh_handler=RefreshHandler(table.mode, job_state, job_detail(table)),
        comment=table.comment,
        partition_keys=table.partition_keys,
        format=table.format,
        options={**table.options, **table.retention.options},  # the maintenance reads them there without a definition
        definition=normalised(table),
    )


def registered_or_new(workspace: Workspace, table: DynamicTable) -> RegisteredTable:
    """Return a table as registered, or as its first refresh would register it; changes nothing.

    :raises UnsupportedError: if the catalog does not support the table's format.
    """
    entry = find_entry(workspace, table.identifier) or new_entry(table, JobState.INITIALIZING)
    return RegisteredTable(table.identifier, entry, workspace.table(table.identifier, table.format, table.atomicity))


def altered(entry: CatalogDynamicTable, table: DynamicTable, asked: Asked = Asked.REGISTER) -> CatalogDynamicTable:
    """Update an entry with the current definition, and keep the parts written by commits and other engines.

    :param asked: the requested operation, which may change the state of the table.
    """
    before = entry.refresh_handler
    fresh = new_entry(table, state_after(asked, before.job_state))
    # services.tables.workflows deletes a workflow of another scheduler and then updates this.
    detail = fresh.refresh_handler.job_detail if scheduler_of(entry) == DEFAULT_SCHEDULER else before.job_detail
    handler = replace(fresh.refresh_handler, job_detail=detail)
    notes = {name: value for name, value in (entry.definition or {}).items() if name in (ROWS_BEFORE, DEPLOYED_BY)}
    if forgotten := _forgotten(entry, table):
        notes[FORGOTTEN_COMMENTS] = forgotten
    wanted = replace(
        fresh,
        refresh_handler=handler.in_state(handler.job_state, before.suspended_because),
        columns=entry.columns,
        location=entry.location,
        snapshot=entry.snapshot,
        properties=entry.properties,
    )
    return with_notes(wanted, notes)


def rows_before(entry: CatalogDynamicTable, table: DynamicTable) -> dict[str, Any]:
    """Return a note with the snapshot of an entry if the new definition changes the rows."""
    is_same = (entry.partition_keys, entry.format) == (table.partition_keys, table.format)
    means_the_same = is_same and same_query(entry.expanded_query, table.expanded_query)
    return {} if means_the_same or entry.snapshot is None else {ROWS_BEFORE: entry.snapshot}


def with_notes(entry: CatalogDynamicTable, notes: Mapping[str, Any]) -> CatalogDynamicTable:
    """Add notes to the definition of an entry."""
    return replace(entry, definition={**(entry.definition or {}), **notes})


def declared_part(entry: CatalogDynamicTable) -> dict[str, Any]:
    """Return the definition of an entry without notes; empty if an earlier release wrote it."""
    notes = (FORGOTTEN_COMMENTS, ROWS_BEFORE, DEPLOYED_BY)
    return {name: value for name, value in (entry.definition or {}).items() if name not in notes}


def forgotten_comments(entry: CatalogDynamicTable) -> dict[str, str]:
    """Return empty comments for the columns whose comments were removed from the definition."""
    return dict.fromkeys((entry.definition or {}).get(FORGOTTEN_COMMENTS, ()), "")


def _forgotten(entry: CatalogDynamicTable, table: DynamicTable) -> list[str]:
    """Return columns that had a comment in an earlier definition and have none now; kept until they have one again."""
    earlier = entry.definition or {}
    return sorted({*earlier.get("columns", ()), *earlier.get(FORGOTTEN_COMMENTS, ())} - {*table.comments})


def scheduler_of(entry: CatalogDynamicTable) -> str:
    """Return the name of the scheduler of a table's workflow."""
    return entry.refresh_handler.job_detail.get("schedulerType") or DEFAULT_SCHEDULER


def job_detail(table: DynamicTable) -> dict[str, str]:
    """Return the reference to a table's workflow before a scheduler has completed it."""
    return {"schedulerType": table.scheduler or DEFAULT_SCHEDULER, "endpoint": "", "workflowId": table.workflow_id}
