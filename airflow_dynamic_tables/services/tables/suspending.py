"""Suspending: a table is refreshed no more, by whomever, until somebody resumes it; versions, history and readers stay."""

from __future__ import annotations

from dataclasses import replace

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.services.workspace import Workspace


def suspend(workspace: Workspace, identifier: TableIdentifier) -> JobState:
    """Let no refresh of a table begin any more; one that runs goes on to its end. Idempotent.

    :return: the state that it had.
    :raises TableNotFoundError: when the catalog has no such dynamic table.
    """
    return _put(workspace, identifier, JobState.SUSPENDED)


def resume(workspace: Workspace, identifier: TableIdentifier) -> JobState:
    """Let a table be refreshed again: the next refresh makes up for what it missed. Nothing happens to one that is not suspended.

    :return: the state that it had.
    :raises TableNotFoundError: as of :func:`suspend`.
    """
    before = job_state(workspace, identifier)
    if before is not JobState.SUSPENDED:
        return before
    current = workspace.table(identifier).current()
    return _put(workspace, identifier, JobState.INITIALIZING if current is None else JobState.RUNNING)


def job_state(workspace: Workspace, identifier: TableIdentifier) -> JobState:
    """Whether a table is refreshed.

    :raises TableNotFoundError: as of :func:`suspend`.
    """
    table = workspace.catalog(identifier.catalog).get_table(identifier.path)
    return _dynamic(identifier, table).refresh_handler.job_state


def _put(workspace: Workspace, identifier: TableIdentifier, state: JobState) -> JobState:
    """Write the state in one step: a refresh that begins may write what its definition says, and take nothing of it back."""

    def changed(table: AnyTable) -> CatalogDynamicTable:
        entry = _dynamic(identifier, table)
        return replace(entry, refresh_handler=replace(entry.refresh_handler, job_state=state))

    before = workspace.catalog(identifier.catalog).change_table(identifier.path, changed)
    return _dynamic(identifier, before).refresh_handler.job_state


def _dynamic(identifier: TableIdentifier, table: AnyTable) -> CatalogDynamicTable:
    if not isinstance(table, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    return table
