"""Leases of stages: their owners, renewal, and detection of dead owners."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TypedDict
from uuid import uuid4

from airflow_dynamic_tables.clients.processes import machine, started
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, CommitUnknownError, ConflictError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.settling import log, settle


def current_process() -> str:
    """Return a unique identifier of this process: host, process-id namespace, process id, start time, and a random part.

    The random part distinguishes containers with the same host name on a kernel that does not expose namespaces.
    """
    return "|".join((*_identity(), uuid4().hex))


def is_current(process: str) -> bool:
    """Return whether the identifier is that of this process."""
    return process.split("|")[:-1] == list(_identity())


def _identity() -> tuple[str, ...]:
    pid = os.getpid()
    return (socket.gethostname(), machine(), str(pid), started(pid) or "")


def is_dead(process: str) -> bool:
    """Return whether a process has certainly ended.

    A process of another machine or container is never reported dead; its lease has to expire.
    """
    try:
        host, namespace, pid, start, *_ = process.split("|")
    except ValueError:
        return False
    if not namespace or not start or (host, namespace) != (socket.gethostname(), machine()):
        return False
    with suppress(PermissionError):  # the process of another user, which /proc may hide
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
    return started(int(pid)) not in (None, start)


LEASE = timedelta(minutes=2)
"""Time after which a lease expires if it is not renewed."""

COMPACTION = "compaction"
"""Owner of compaction stages."""

VERIFICATION = "verification"
"""Owner of stages that are compared with the table."""

YIELDING = (COMPACTION, VERIFICATION)
"""Owners whose stages create no versions and can be repeated at any time, so they yield to all other writes."""

COMMIT_PATIENCE = timedelta(minutes=10)
"""How long a lease is renewed after the commit began. A longer commit is assumed to hang on a dead connection."""


class Lease(TypedDict):
    """The fields of a :class:`~airflow_dynamic_tables.ledger.base.Stage` that describe its lease."""

    process: str
    opened_at: datetime
    lease_until: datetime


def new_lease(workspace: Workspace) -> Lease:
    """Return the lease of a stage that this process is about to open."""
    now = workspace.now()
    return Lease(process=current_process(), opened_at=now, lease_until=now + LEASE)


def open_stage(workspace: Workspace, stage: Stage) -> None:
    """Take the lease of a stage, and settle conflicting stages whose owner has ended.

    :raises ConflictError: if a live owner holds some of the same partitions, or the commit of a dead owner may still land.
    """
    while blockers := workspace.ledger.open_stage(stage):
        for blocker in blockers:
            # A new attempt supersedes the previous attempt of the same work; any process that still runs the latter is a zombie.
            if blocker.owner != stage.owner:
                check_gone(workspace, blocker)
            _move_away(workspace, blocker, stage)


def resume_stage(workspace: Workspace, stage: Stage, process: str) -> None:
    """Take the lease of a quarantined stage again, and settle conflicting stages whose owner has ended.

    :raises ConflictError: as for :func:`open_stage`, and if another process is publishing or aborting the stage.
    """
    while blockers := workspace.ledger.resume_stage(stage.token, process, workspace.now() + LEASE):
        for blocker in blockers:
            check_gone(workspace, blocker)
            _move_away(workspace, blocker, stage)


def is_abandoned(workspace: Workspace, stage: Stage) -> bool:
    """Return whether a stage that is not in quarantine has no live owner."""
    is_given_up = stage.state in (StageState.FENCING, StageState.ABORTING)
    return is_given_up or stage.lease_until < workspace.now() or is_dead(stage.process)


def check_gone(workspace: Workspace, blocker: Stage) -> None:
    """Check that a stage has no live owner that does not yield.

    :raises ConflictError: if it has one; the message names the owner.
    """
    if blocker.owner not in YIELDING and not is_abandoned(workspace, blocker):
        what = "created" if blocker.creates else "refreshed"
        raise ConflictError(
            f"{blocker.table} is being {what} by {blocker.owner} since {blocker.opened_at.isoformat()}; "
            f"try again when that ended, or after {blocker.lease_until.isoformat()} if it died."
        )


def check_droppable(workspace: Workspace, identifier: TableIdentifier) -> None:
    """Check that a table may be dropped or renamed now.

    :raises ConflictError: if it is being refreshed, or a refresh in quarantine requires a decision.
    """
    for stage in workspace.ledger.list_stages(identifier):
        if stage.state is StageState.QUARANTINED:
            todo = f"dynamic-tables publish {stage.token}, or dynamic-tables abort {stage.token}"
            raise ConflictError(f"A refresh of {identifier} is in quarantine; decide over it first: {todo}.")
        check_gone(workspace, stage)


def _move_away(workspace: Workspace, blocker: Stage, stage: Stage) -> None:
    """Settle a conflicting stage whose owner has ended.

    :raises ConflictError: if its commit may still land.
    """
    try:
        with suppress(CommitRejectedError):  # it has just been settled elsewhere
            settle(workspace, blocker, f"superseded by {stage.token}")
    except CommitUnknownError as error:
        raise ConflictError(f"{error}; {stage.table} can be refreshed again as soon as it is fenced off.") from error
    except OSError:
        log.exception("Could not delete stage %s, which is out of the way; the next sweep does it.", blocker.token)


@contextmanager
def lease_kept(workspace: Workspace, token: str, on_lost: Callable[[], None] | None = None) -> Iterator[None]:
    """Renew the lease from a thread while the body runs.

    :param on_lost: called from that thread if the lease was lost, or may be lost because it cannot be renewed.
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
    """Renew the lease, unless the stage has been committed meanwhile.

    :raises ConflictError: if the lease was lost.
    """
    try:
        return workspace.ledger.renew_lease(token, workspace.now() + LEASE)
    except ConflictError:
        stage = workspace.ledger.get_stage(token)
        if stage is None or stage.state is not StageState.COMMITTED:
            raise
        return stage.state


def _lost(workspace: Workspace, token: str, done: threading.Event) -> bool:
    """Renew the lease until the work is done; return True if the lease was lost before."""
    renewed = time.monotonic()
    committing: float | None = None
    while not done.wait(LEASE.total_seconds() / 4):
        now = time.monotonic()
        try:
            state = _renewed(workspace, token)
        except ConflictError:
            return True
        except CatalogUnavailableError:
            continue  # the lease outlives a short outage; after a long one it is lost, which the commit detects
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
