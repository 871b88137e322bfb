"""Suspending: a table is refreshed no more, by whomever, until somebody resumes it; versions, history and readers stay."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.states import Asked, state_after
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.services.registered import look_up
from airflow_dynamic_tables.services.tables.workflows import resume_workflow, suspend_workflow
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of a table before and after it was suspended or resumed."""

    identifier: TableIdentifier
    before: JobState
    after: JobState
    reason: str = ""
    """Why the table is suspended now."""
    workflow: str = ""
    """What the scheduler did with the workflow; empty: the scheduler was not asked."""


def suspend(workspace: Workspace, identifier: TableIdentifier, reason: str = "") -> StateChange:
    """Let no refresh of a table begin any more, but by hand with force; one that runs goes on to its end. Idempotent.

    Its scheduler pauses the workflow, as far as it can be reached: the table is suspended whatever it says.

    :param reason: why, for whoever finds the table suspended; one that is suspended already keeps its own without another.
    :raises TableNotFoundError: when the catalog has no such dynamic table.
    """
    change = _put(workspace, identifier, Asked.SUSPEND, without_secrets(reason))  # everybody may read a metastore
    return replace(change, workflow=suspend_workflow(workspace, identifier))


def resume(workspace: Workspace, identifier: TableIdentifier) -> StateChange:
    """Let a table be refreshed again: the next refresh makes up for what it missed. Idempotent.

    The failures that it had in a row are forgotten. Its scheduler is told even when the table is not suspended: it may have been
    out of reach when it was resumed.

    :raises TableNotFoundError: as of :func:`suspend`.
    """
    registered = look_up(workspace, identifier)
    before = registered.handler.job_state
    if before is not JobState.SUSPENDED:
        return StateChange(identifier, before, before, workflow=resume_workflow(workspace, identifier))
    workspace.ledger.forget_failures(identifier)
    change = _put(workspace, identifier, Asked.RESUME_EMPTY if registered.current() is None else Asked.RESUME)
    return replace(change, workflow=resume_workflow(workspace, identifier))


def job_state(workspace: Workspace, identifier: TableIdentifier) -> JobState:
    """Whether a table is refreshed.

    :raises TableNotFoundError: as of :func:`suspend`.
    """
    return workspace.dynamic_table(identifier).refresh_handler.job_state


def _put(workspace: Workspace, identifier: TableIdentifier, asked: Asked, reason: str = "") -> StateChange:
    """Write the state in one step: a refresh that begins may write what its definition says, and take nothing of it back."""

    def changed(table: AnyTable) -> CatalogDynamicTable:
        entry = as_dynamic(identifier, table)
        handler = entry.refresh_handler
        state = state_after(asked, handler.job_state)
        return replace(entry, refresh_handler=handler.in_state(state, reason or handler.suspended_because))

    before = as_dynamic(identifier, workspace.catalog(identifier.catalog).change_table(identifier.path, changed))
    now = changed(before).refresh_handler
    return StateChange(identifier, before.refresh_handler.job_state, now.job_state, now.suspended_because)
