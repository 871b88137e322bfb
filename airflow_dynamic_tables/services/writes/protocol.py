"""The staged write of a table: lease, stage, one commit, one outcome.

Every write goes through :func:`staged_write`: refreshes, CREATE TABLE AS, rollbacks, compactions, publishing from quarantine,
verifications, which have no commit, and operations that only hold a table. An operation supplies its commit; all outcomes are
handled here:

=========================  =======================================================================================
the commit landed          recorded in the ledger; if that fails, the table has the version nevertheless
CommitUnknownError         nothing is deleted; the next write or sweep looks the token up in the table
QuarantinedError           the stage is kept until a person decides
any other exception        the stage is aborted: fenced off if its commit had begun, and its files are deleted
=========================  =======================================================================================

The steps can be traced, see :mod:`airflow_dynamic_tables.core.refresh.steps`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import uuid4

from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.refresh.reasons import Reason, RefreshAction
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitUnknownError,
    ConflictError,
    QuarantinedError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome, notify
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import YIELDING, lease_kept, new_lease, open_stage, resume_stage
from airflow_dynamic_tables.services.writes.settling import abort, abort_stage, record_commit, settle

_Committed = TypeVar("_Committed")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StagedWrite:
    """A write in progress: ``stage`` is its row in the ledger, ``staged`` its stage in the table."""

    workspace: Workspace
    operation: Operation
    stage: Stage
    staged: StagedTable
    outcome: WriteOutcome = field(init=False)
    _is_told: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Initialize the outcome as not ended."""
        stage = self.stage
        self.outcome = WriteOutcome(self.operation, Ending.RELEASED, stage.token, stage.table, stage.partitions)

    @contextmanager
    def step(self, name: str, since: float | None = None) -> Iterator[None]:
        """Time the body as the named step.

        :param since: start time by :func:`time.monotonic`, if the step began before the body.
        """
        start = time.monotonic() if since is None else since
        try:
            yield
        finally:
            self.note(seconds={**self.outcome.seconds, name: round(time.monotonic() - start, 3)})

    def note(self, **changes: object) -> None:
        """Replace fields of the outcome."""
        self.outcome = replace(self.outcome, **changes)  # type: ignore[arg-type]  # the names are checked by replace

    def wrote(self, result: RefreshResult) -> None:
        """Record the result of the job in the outcome."""
        spark = {f"spark.{name}": seconds for name, seconds in result.seconds.items()}
        seconds = {**self.outcome.seconds, **spark}
        self.note(rows=result.rows, bytes=result.bytes, files=len(result.files), dropped=result.dropped, seconds=seconds)

    def publish(
        self,
        commit: Callable[[Callable[[], None]], _Committed],
        check: Callable[[], None] = lambda: None,
        changes: RefreshChanges | None = None,
    ) -> _Committed:
        """Publish the stage atomically.

        :param commit: performs the commit; calls its argument on every attempt, after reading the table and before publishing.
        :param check: raises if the table must no longer be replaced.
        :param changes: fields of the refresh that are recorded before anything is published.
        """

        def before_publish() -> None:
            check()
            # Only a stage from quarantine may have had several owners, one after the other.
            owner = self.stage.process if self.operation is Operation.PUBLISH else None
            ledger = self.workspace.ledger
            ledger.move_stage(self.stage.token, (StageState.OPEN,), StageState.COMMITTING, changes, held_by=owner)
            trace(Step.PUBLISHING, self.stage.token)

        done = commit(before_publish)
        trace(Step.PUBLISHED, self.stage.token)
        return done

    def landed(self, version: Version) -> None:
        """Record in the ledger that the commit landed. The table has the version even if this fails.

        :raises CommitRejectedError: if the stage was aborted meanwhile and the table does not have the version.
        """
        has_record = record_commit(self.workspace, self.stage.token, version, self.outcome.seconds)
        self.note(ending=Ending.COMMITTED, version=version if version.number else None, has_record=has_record)
        if has_record:
            trace(Step.COMPLETED, self.stage.token)

    def skip(self, reason: Reason) -> None:
        """End the write because nothing has to be done; nothing has been published yet."""
        ended: RefreshChanges = {
            "state": RefreshState.SKIPPED,
            "action": RefreshAction.SKIP,
            "reason": reason.text,
            "reason_code": reason.code,
        }
        self.note(ending=Ending.SKIPPED, reason=reason, action=RefreshAction.SKIP)
        settle(self.workspace, self.stage, None, surely_not_landed=True, ended=ended)

    def tell(self) -> None:
        """Notify every listener of the outcome, once. Exceptions of listeners are logged."""
        if not self._is_told:
            self._is_told = True
            notify(self.workspace.listeners, self.outcome)


def new_stage(workspace: Workspace, registered: RegisteredTable, token: str, owner: str, location: str) -> Stage:
    """Return the ledger row of a write to a complete table, with a lease of this process. Nothing is written yet."""
    return Stage(
        token=token,
        table=registered.identifier,
        location=location,
        owner=owner,
        format=registered.entry.format,
        **new_lease(workspace),
    )


def open_write(workspace: Workspace, operation: Operation, stage: Stage, staged: StagedTable) -> StagedWrite:
    """Take the lease of a table for a write.

    :raises ConflictError: if a live owner holds some of the same partitions, or the commit of a dead owner may still land.
    """
    write = StagedWrite(workspace, operation, stage, staged)
    if operation is Operation.PUBLISH:
        resume_stage(workspace, stage, stage.process)
        return write
    if stage.owner not in YIELDING:
        open_stage(workspace, stage)
    elif workspace.ledger.open_stage(stage):
        raise ConflictError(f"{stage.table} is being refreshed; its {operation} waits until next time")
    trace(Step.OPENED, stage.token)
    return write


@contextmanager
def preparing(write: StagedWrite) -> Iterator[None]:
    """Wrap the preparation of a write under its lease; abort the stage if it fails."""
    try:
        yield
    except BaseException as error:
        abort(write.workspace, write.stage.token, error)
        write.note(ending=Ending.FAILED, error=error)
        write.tell()
        raise
    if write.outcome.ending is Ending.SKIPPED:
        write.tell()


@contextmanager
def finishing(write: StagedWrite, on_lost: Callable[[], None] | None = None) -> Iterator[None]:
    """Wrap the work of a write: keep its lease, bring its stage to a final state, and notify the listeners.

    :param on_lost: called from another thread if the stage was lost; it should stop the work.
    """
    workspace, token = write.workspace, write.stage.token
    try:
        with lease_kept(workspace, token, on_lost):
            yield
    except CommitUnknownError as error:
        write.note(ending=Ending.UNKNOWN, error=error)
        if write.operation is Operation.PUBLISH:
            _put_back(write)
        else:
            with suppress(CatalogUnavailableError):
                workspace.ledger.update_refresh(token, error=str(error))
        raise
    except QuarantinedError as error:
        write.note(ending=Ending.QUARANTINED, error=error)
        _quarantine(write, str(error))
        raise
    except BaseException as error:
        write.note(ending=Ending.FAILED, error=error)
        if write.operation is Operation.PUBLISH:
            _put_back(write, is_refused=isinstance(error, StageRejectedError | ConflictError))
        else:
            abort_stage(workspace, token, error)
        raise
    finally:
        write.tell()


@contextmanager
def staged_write(
    workspace: Workspace,
    operation: Operation,
    stage: Stage,
    staged: StagedTable,
    on_lost: Callable[[], None] | None = None,
) -> Iterator[StagedWrite]:
    """Take the lease, keep it while the body commits, and bring the stage to a final state on every outcome.

    :param on_lost: see :func:`finishing`.
    """
    write = open_write(workspace, operation, stage, staged)
    with finishing(write, on_lost):
        yield write
        if write.outcome.ending is Ending.RELEASED:
            abort_stage(workspace, stage.token, ConflictError(f"nothing was written: it was a {operation}"))


@contextmanager
def held(workspace: Workspace, registered: RegisteredTable, what: str, operation: Operation = Operation.HOLD) -> Iterator[None]:
    """Hold the lease of a table while the body runs.

    :raises ConflictError: if the table is being refreshed.
    """
    token = f"{what}-{uuid4()}"
    location = f"{registered.loaded.folder() or ''}/{token}"  # nothing is written there
    stage = new_stage(workspace, registered, token, f"a {what} ({token})", location)
    with staged_write(workspace, operation, stage, registered.lake_table.stage(token)):
        yield


def _quarantine(write: StagedWrite, reason: str) -> None:
    """Put the stage into quarantine and end its refresh.

    :raises CommitRejectedError: if the stage was lost meanwhile.
    """
    ended: RefreshChanges = {
        "state": RefreshState.QUARANTINED,
        "error": reason,
        "finished_at": write.workspace.now(),
        "seconds": write.outcome.seconds,
    }
    write.workspace.ledger.move_stage(write.stage.token, (StageState.OPEN,), StageState.QUARANTINED, ended)


def _put_back(write: StagedWrite, *, is_refused: bool = False) -> None:
    """Return a stage to quarantine after publishing failed, once its commit can no longer land.

    :param is_refused: the commit was refused, so it certainly did not land.
    """
    ledger, token, process = write.workspace.ledger, write.stage.token, write.stage.process
    if is_refused:
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.QUARANTINED, held_by=process)
        return
    try:
        ledger.move_stage(token, (StageState.COMMITTING,), StageState.FENCING, held_by=process)
        settle(write.workspace, replace(write.stage, state=StageState.FENCING), None)
    except Exception:
        log.exception("Could not put stage %s back into quarantine; the next one that publishes or sweeps does it.", token)
