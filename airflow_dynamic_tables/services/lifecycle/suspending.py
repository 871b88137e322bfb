"""Suspension: a suspended table is not refreshed until it is resumed; versions, history and readers are unaffected."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import Asked, CatalogDynamicTable, JobState, state_after
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.tables.workflows import resume_workflow, suspend_workflow
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of a table before and after it was suspended or resumed."""

    identifier: TableIdentifier
    before: JobState
    after: JobState
    reason: str = ""
    """Why the table is suspended now."""
    workflow: str = ""
    """The scheduler's action on the workflow; empty: the scheduler was not called."""


def suspend(workspace: Workspace, identifier: TableIdentifier, reason: str = "") -> StateChange:
    """Suspend a table: no new refresh begins, except by hand with force; a running refresh completes. Idempotent.

    Its scheduler pauses the workflow if it is available; the table is suspended in any case.

    :param reason: the reason shown to users; without one, a table that is already suspended keeps its reason.
    :raises TableNotFoundError: if the catalog has no such dynamic table.
    """
    change = _put(workspace, identifier, Asked.SUSPEND, without_secrets(reason))  # all users may be able to read a metastore
    return replace(change, workflow=suspend_workflow(workspace, identifier))


def resume(workspace: Workspace, identifier: TableIdentifier) -> StateChange:
    """Resume a table: the next refresh makes up for missed ticks. Idempotent.

    Its consecutive failures are reset. Its scheduler is called even if the table is not suspended, because it may have been
    unavailable when the table was resumed.
    """
    registered = workspace.look_up(identifier)
    before = registered.handler.job_state
    if before is not JobState.SUSPENDED:
        return StateChange(identifier, before, before, workflow=resume_workflow(workspace, identifier))
    workspace.ledger.forget_failures(identifier)
    change = _put(workspace, identifier, Asked.RESUME_EMPTY if registered.current() is None else Asked.RESUME)
    return replace(change, workflow=resume_workflow(workspace, identifier))


def _put(workspace: Workspace, identifier: TableIdentifier, asked: Asked, reason: str = "") -> StateChange:
    """Change the state atomically, so that a concurrent refresh that writes its definition does not revert it."""

    def changed(entry: CatalogDynamicTable) -> CatalogDynamicTable:
        handler = entry.refresh_handler
        state = state_after(asked, handler.job_state)
        return replace(entry, refresh_handler=handler.in_state(state, reason or handler.suspended_because))

    before = workspace.change(identifier, changed)
    now = changed(before).refresh_handler
    return StateChange(identifier, before.refresh_handler.job_state, now.job_state, now.suspended_because)


SUSPEND_AFTER_FAILURES = 5
"""Default number of consecutive failed scheduled refreshes after which a table is suspended."""

_LONGEST_ERROR = 500
"""Maximum length of the last error in the reason; the history has the full text."""

log = logging.getLogger(__name__)


def note_failure(workspace: Workspace, table: DynamicTable, run: str, error: str, *, counts: bool = True) -> StateChange | None:
    """Count a permanently failed scheduled refresh, and suspend its table after too many consecutive failures.

    Refreshes by hand are not counted. The call is idempotent and safe late or concurrently: a run counts once, and a concurrent
    successful refresh takes precedence.

    :param run: the owner of its stages, the same for all its attempts.
    :param counts: whether the table is to blame; if not, this is recorded so that the run is not counted later.
    :return: the suspension; ``None`` if the table was not suspended, or already was.
    :raises CatalogUnavailableError: if the ledger or catalog is unavailable; the next failure repeats it.
    """
    most = SUSPEND_AFTER_FAILURES if table.suspend_after_failures is None else table.suspend_after_failures
    failures = workspace.ledger.record_failure(table.identifier, run, workspace.now(), counts=counts)
    if not counts or not most or failures < most:
        return None
    entry = workspace.find_entry(table.identifier)
    if entry is None:
        ensure(workspace, table)  # every refresh failed before it registered the table
    elif entry.refresh_handler.job_state is JobState.SUSPENDED:
        return None
    change = suspend(workspace, table.identifier, _reason(failures, error))
    if workspace.ledger.failures_in_a_row(table.identifier) < most:
        resume(workspace, table.identifier)
        return None
    log.error(
        "%s is suspended: %s. Mend it and resume it: dynamic-tables resume %s.", table.identifier, change.reason, table.identifier
    )
    return change


def _reason(failures: int, error: str) -> str:
    said = " ".join(error.split())
    short = said if len(said) <= _LONGEST_ERROR else f"{said[:_LONGEST_ERROR]}…"
    return f"{failures} scheduled refreshes failed in a row, the last one with: {short}"
