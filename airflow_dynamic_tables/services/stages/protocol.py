"""One staged write of a table: lease, stage, one commit, one outcome.

Refreshes, CREATE TABLE AS, rollbacks, compactions, what is published from quarantine, and whatever holds a table go through
:func:`staged_write`. An operation says what its commit is; everything that may go wrong is decided here:

=========================  =======================================================================================
the commit landed          the ledger is told; if it cannot be, the table has the version all the same
CommitUnknownError         nothing is deleted; the next write, or a sweep, looks the token up in the table
QuarantinedError           the stage is kept until a person decides
anything else              the stage is given up: fenced off, if its commit had begun, and its files are deleted
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

from airflow_dynamic_tables.core.refresh.actions import Reason, RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitUnknownError,
    ConflictError,
    QuarantinedError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import StagedTable
from airflow_dynamic_tables.ledger.base import RefreshChanges, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome, log_outcome
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.stages.leases import lease_kept, new_lease, open_stage, resume_stage
from airflow_dynamic_tables.services.stages.settling import abort, give_up, settle, tell_landed
from airflow_dynamic_tables.services.workspace import Workspace

_Committed = TypeVar("_Committed")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StagedWrite:
    """A write under way: ``stage`` is its row in the ledger, ``staged`` its stage in the table."""

    workspace: Workspace
    operation: Operation
    stage: Stage
    staged: StagedTable
    outcome: WriteOutcome = field(init=False)
    _is_told: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """It has not ended."""
        stage = self.stage
        self.outcome = WriteOutcome(self.operation, Ending.RELEASED, stage.token, stage.table, stage.partitions)

    @contextmanager
    def step(self, name: str, since: float | None = None) -> Iterator[None]:
        """Time the body as that step.

        :param since: when it began, by :func:`time.monotonic`, if that was before the body.
        """
        start = time.monotonic() if since is None else since
        try:
            yield
        finally:
            self.note(seconds={**self.outcome.seconds, name: round(time.monotonic() - start, 3)})

    def note(self, **changes: object) -> None:
        """Change some fields of the outcome."""
        self.outcome = replace(self.outcome, **changes)  # type: ignore[arg-type]  # the names are checked by replace

    def wrote(self, result: RefreshResult) -> None:
        """Note what the job wrote into the stage."""
        spark = {f"spark.{name}": seconds for name, seconds in result.seconds.items()}
        seconds = {**self.outcome.seconds, **spark}
        self.note(rows=result.rows, bytes=result.bytes, files=len(result.files), seconds=seconds)

    def publish(
        self,
        commit: Callable[[Callable[[], None]], _Committed],
        check: Callable[[], None] = lambda: None,
        changes: RefreshChanges | None = None,
    ) -> _Committed:
        """Make the stage visible in one step.

        :param commit: does it; calls its argument for every attempt, after it has read the table and before it publishes.
        :param check: raises when the table must not be replaced any more.
        :param changes: fields of the refresh that are recorded before anything is published.
        """

        def before_publish() -> None:
            check()
            # Only of what comes from quarantine there may have been several owners, one after the other.
            owner = self.stage.process if self.operation is Operation.PUBLISH else None
            ledger = self.workspace.ledger
            ledger.move_stage(self.stage.token, (StageState.OPEN,), StageState.COMMITTING, changes, held_by=owner)
            trace(Step.PUBLISHING, self.stage.token)

        done = commit(before_publish)
        trace(Step.PUBLISHED, self.stage.token)
        return done

    def landed(self, version: Version) -> None:
        """Tell the ledger that the commit landed. The table has the version, whether the ledger can be told or not.

        :raises CommitRejectedError: when the stage was given up meanwhile, and the table does not have the version.
        """
        has_record = tell_landed(self.workspace, self.stage.token, version, self.outcome.seconds)
        self.note(ending=Ending.COMMITTED, version=version if version.number else None, has_record=has_record)
        if has_record:
            trace(Step.COMPLETED, self.stage.token)

    def skip(self, reason: Reason) -> None:
        """End the write: there is nothing to do, as it turned out before it published anything."""
        ended: RefreshChanges = {
            "state": RefreshState.SKIPPED,
            "action": RefreshAction.SKIP,
            "reason": reason.text,
            "reason_code": reason.code,
        }
        self.note(ending=Ending.SKIPPED, reason=reason)
        settle(self.workspace, self.stage, None, surely_not_landed=True, ended=ended)

    def tell(self) -> None:
        """Tell every listener how the write ended, once; what one of them raises is logged."""
        listeners = () if self._is_told else (log_outcome, *self.workspace.listeners)
        self._is_told = True
        for listener in listeners:
            try:
                listener(self.outcome)
            except Exception:
                log.exception("A listener of the %s of %s failed.", self.operation, self.stage.table)


def new_stage(workspace: Workspace, registered: RegisteredTable, token: str, owner: str, location: str) -> Stage:
    """The row of a write of a complete table in the ledger, with a lease of this process; nothing is written yet."""
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

    :raises ConflictError: when a living owner holds some of the same partitions, or what a dead one left may still land.
    """
    write = StagedWrite(workspace, operation, stage, staged)
    if operation is Operation.PUBLISH:
        resume_stage(workspace, stage, stage.process)
        return write
    if operation is not Operation.COMPACTION:
        open_stage(workspace, stage)
    elif workspace.ledger.open_stage(stage):  # it gives way to everything
        raise ConflictError("it is being refreshed; its small files stay until next time")
    trace(Step.OPENED, stage.token)
    return write


@contextmanager
def preparing(write: StagedWrite) -> Iterator[None]:
    """Around what is done under the lease before the work of a write begins; abort the stage when that fails."""
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
    """Around the work of a write: keep its lease, bring its stage to an end, and tell the listeners.

    :param on_lost: called from another thread when the stage was taken away meanwhile; it should stop the work.
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
            give_up(workspace, token, error)
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
    """Take the lease, keep it while the body commits, and bring the stage to its end, whatever happens.

    :param on_lost: as of :func:`finishing`.
    :raises ConflictError: as of :func:`open_write`.
    """
    write = open_write(workspace, operation, stage, staged)
    with finishing(write, on_lost):
        yield write
        if write.outcome.ending is Ending.RELEASED:
            give_up(workspace, stage.token, ConflictError(f"nothing was written: it was a {operation}"))


def _quarantine(write: StagedWrite, reason: str) -> None:
    """Put the stage into quarantine and end its refresh.

    :raises CommitRejectedError: when the stage was taken away meanwhile.
    """
    ended: RefreshChanges = {
        "state": RefreshState.QUARANTINED,
        "error": reason,
        "finished_at": write.workspace.now(),
        "seconds": write.outcome.seconds,
    }
    write.workspace.ledger.move_stage(write.stage.token, (StageState.OPEN,), StageState.QUARANTINED, ended)


def _put_back(write: StagedWrite, *, is_refused: bool = False) -> None:
    """Put a stage that was to be published back into quarantine, once its commit can no longer land.

    :param is_refused: it surely did not.
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
