"""Stages are opened, and kept alive while their owner works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TypedDict

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, CommitUnknownError, ConflictError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.stages.processes import current_process, is_dead
from airflow_dynamic_tables.services.stages.settling import log, settle
from airflow_dynamic_tables.services.workspace import Workspace

LEASE = timedelta(minutes=2)
"""How long a stage stays its owner's without a sign of life."""

COMPACTION = "compaction"
"""Owner of the stages of compactions: no versions, which can be made at any time, so they give way to everybody."""

COMMIT_PATIENCE = timedelta(minutes=10)
"""How long a lease is renewed after the commit began: one that takes longer hangs on a connection that fell silent."""


class Lease(TypedDict):
    """What a :class:`~airflow_dynamic_tables.ledger.base.Stage` says of who works on it, and since when."""

    process: str
    opened_at: datetime
    lease_until: datetime


def new_lease(workspace: Workspace) -> Lease:
    """The lease of a stage that this process is about to open."""
    now = workspace.now()
    return Lease(process=current_process(), opened_at=now, lease_until=now + LEASE)


def open_stage(workspace: Workspace, stage: Stage) -> None:
    """Take the lease; stages in the way whose owner is gone are settled first.

    :raises ConflictError: when a living owner holds some of the same partitions, or what a dead one left may still land.
    """
    while blockers := workspace.ledger.open_stage(stage):
        for blocker in blockers:
            # A new try of the same work supersedes the old one: whatever still runs of it is a zombie.
            if blocker.owner != stage.owner:
                check_gone(workspace, blocker)
            _move_away(workspace, blocker, stage)


def resume_stage(workspace: Workspace, stage: Stage, process: str) -> None:
    """Take the lease again, for a stage in quarantine; stages in the way whose owner is gone are settled first.

    :param process: who publishes it.
    :raises ConflictError: as of :func:`open_stage`, and when somebody else decides on it.
    """
    while blockers := workspace.ledger.resume_stage(stage.token, process, workspace.now() + LEASE):
        for blocker in blockers:
            check_gone(workspace, blocker)
            _move_away(workspace, blocker, stage)


def is_abandoned(workspace: Workspace, stage: Stage) -> bool:
    """Whether nobody works on a stage any more that is not in quarantine."""
    is_given_up = stage.state in (StageState.FENCING, StageState.ABORTING)
    return is_given_up or stage.lease_until < workspace.now() or is_dead(stage.process)


def check_gone(workspace: Workspace, blocker: Stage) -> None:
    """Check that nobody works on a stage any more, or nobody but a compaction.

    :raises ConflictError: when somebody does; says who.
    """
    if blocker.owner != COMPACTION and not is_abandoned(workspace, blocker):
        what = "created" if blocker.creates else "refreshed"
        raise ConflictError(
            f"{blocker.table} is being {what} by {blocker.owner} since {blocker.opened_at.isoformat()}; "
            f"try again when that ended, or after {blocker.lease_until.isoformat()} if it died."
        )


def _move_away(workspace: Workspace, blocker: Stage, stage: Stage) -> None:
    """Settle a stage in the way whose owner is gone.

    :raises ConflictError: when its commit may still land.
    """
    try:
        with suppress(CommitRejectedError):  # it came to its end by itself just now
            settle(workspace, blocker, f"superseded by {stage.token}")
    except CommitUnknownError as error:
        raise ConflictError(f"{error}; {stage.table} can be refreshed again as soon as it is fenced off.") from error
    except OSError:
        log.exception("Could not delete stage %s, which is out of the way; the next sweep does it.", blocker.token)


@contextmanager
def lease_kept(workspace: Workspace, token: str, on_lost: Callable[[], None] | None = None) -> Iterator[None]:
    """Renew the lease from a thread while the body runs.

    :param on_lost: called from that thread when somebody took the stage away, or may do so because it cannot be kept.
    """
    done = threading.Event()

    def renew() -> None:
        if _lost(workspace, token, done) and on_lost is not None and not done.is_set():
            on_lost()

    thread = threading.Thread(target=renew, name=f"lease-{token}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _renewed(workspace: Workspace, token: str) -> StageState:
    """Renew the lease; one that has landed meanwhile needs none.

    :raises ConflictError: when it was lost.
    """
    try:
        return workspace.ledger.renew_lease(token, workspace.now() + LEASE)
    except ConflictError:
        stage = workspace.ledger.get_stage(token)
        if stage is None or stage.state is not StageState.COMMITTED:
            raise
        return stage.state


def _lost(workspace: Workspace, token: str, done: threading.Event) -> bool:
    """Renew the lease until the work is done; True when it was lost before."""
    renewed = time.monotonic()
    committing: float | None = None
    while not done.wait(LEASE.total_seconds() / 4):
        now = time.monotonic()
        try:
            state = _renewed(workspace, token)
        except ConflictError:
            return True
        except CatalogUnavailableError:
            continue  # the lease outlives a short outage; a long one costs it, and the commit will notice
        except Exception:
            log.exception("Could not renew the lease of stage %s.", token)
            if now - renewed > LEASE.total_seconds():
                log.error("The lease of stage %s is over; its refresh is stopped.", token)
                return True
            continue
        renewed = now
        if state is StageState.COMMITTED:
            return False
        if state is StageState.COMMITTING:
            committing = now if committing is None else committing
            if now - committing > COMMIT_PATIENCE.total_seconds():
                log.error("The commit of stage %s hangs; its lease is not renewed any more.", token)
                return True
    return False
