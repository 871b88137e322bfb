"""Scheduled refreshes that fail in a row: their table is suspended, so that nobody pays for what nobody mends."""

from __future__ import annotations

import logging

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.services.changing.registration import ensure
from airflow_dynamic_tables.services.changing.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.registered import find_entry
from airflow_dynamic_tables.services.workspace import Workspace

SUSPEND_AFTER_FAILURES = 5
"""How many scheduled refreshes in a row may fail before a table is suspended whose definition does not say."""

_LONGEST_ERROR = 500
"""How many characters of the last error the reason keeps; the history has all of it."""

log = logging.getLogger(__name__)


def note_failure(workspace: Workspace, table: DynamicTable, run: str, error: str, *, counts: bool = True) -> StateChange | None:
    """Count a scheduled refresh that failed for good, and suspend its table when it is one too many in a row.

    What was refreshed by hand is not told of here. Safe to call again, late, and while the table is refreshed elsewhere: a run
    counts once, and a refresh that succeeds meanwhile wins.

    :param run: the owner of its stages, the same for all its tries.
    :param counts: whether the table is to blame: when it is not, that is noted lest somebody counts the run later.
    :return: that it was suspended; ``None`` when it was not, or was so before.
    :raises CatalogUnavailableError: when ledger or catalog cannot be reached; the next failure makes up for it.
    """
    most = SUSPEND_AFTER_FAILURES if table.suspend_after_failures is None else table.suspend_after_failures
    failures = workspace.ledger.record_failure(table.identifier, run, workspace.now(), counts=counts)
    if not counts or not most or failures < most:
        return None
    entry = find_entry(workspace, table.identifier)
    if entry is None:
        ensure(workspace, table)  # every refresh failed before it came to that
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
