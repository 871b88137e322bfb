"""Expectations: check the rows that a job has written before the commit."""

from __future__ import annotations

import logging

from airflow_dynamic_tables.core.refresh.expectations import Action, ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.exceptions import EmptyBatchError, ExpectationError, QuarantinedError
from airflow_dynamic_tables.services.refresh.planning import Attempt
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def check(workspace: Workspace, attempt: Attempt, result: RefreshResult) -> None:
    """Record the result of every expectation in the ledger, then enforce their actions.

    Row counts are checked here; the other expectations were checked by the job.

    :raises ExpectationError: if an expectation with the action ``fail`` is violated.
    :raises QuarantinedError: if an expectation with the action ``quarantine`` is violated.
    """
    planned = attempt.plan
    outcomes = (*result.expectations, *_row_counts(attempt, result.rows))
    if not outcomes:
        return

    workspace.ledger.update_refresh(
        planned.token,
        expectations=outcomes,
        rows=result.rows,
        bytes=result.bytes,
        files=len(result.files),
        application_id=result.application_id,
    )

    violated = [expectation for expectation in outcomes if expectation.violations]
    for expectation in violated:
        if expectation.action in (Action.WARN, Action.DROP):
            log.warning("%s: %s.", planned.identifier, expectation)

    if failed := [str(expectation) for expectation in violated if expectation.action == Action.FAIL]:
        raise ExpectationError(f"{planned.identifier} is not as expected, nothing was committed: {', '.join(failed)}.")
    if tripped := [str(expectation) for expectation in violated if expectation.action == Action.QUARANTINE]:
        raise QuarantinedError(
            f"{planned.identifier} is in quarantine: {', '.join(tripped)}; look at {planned.rows_location}, then run "
            f"dynamic-tables publish {planned.token} or dynamic-tables abort {planned.token}"
        )


def refuse_empty(planned: RefreshPlan, result: RefreshResult) -> None:
    """Refuse a stream batch without rows. Only the first may be empty, to replace the table, and only without event time.

    :raises EmptyBatchError: if it has no rows.
    """
    waits = any(source.event_time is not None for source in planned.sources)
    if planned.position is not None and not result.rows and (planned.follows is not None or waits):
        raise EmptyBatchError(f"batch {planned.position.batch} of stream {planned.position.stream} has no rows")


def _row_counts(attempt: Attempt, rows: int) -> tuple[ExpectationResult, ...]:
    bounds = attempt.request.table.row_counts
    before, missing = _rows_before(attempt) if any(bound.compares for bound in bounds) else (None, 0)
    return tuple(bound.check(rows, before, is_average=missing > 0) for bound in bounds)


def _rows_before(attempt: Attempt) -> tuple[int | None, int]:
    """Return the number of rows that the stage replaces, and the number of planned partitions missing in the current version.

    Each missing partition counts as one of average size.
    """
    counts = attempt.registered.loaded.count(attempt.plan.partitions)
    if counts is None or not counts.partitions:
        return None, 0
    missing = len(attempt.plan.partitions) - counts.held
    return counts.replaced + round(missing * counts.total / counts.partitions), missing
