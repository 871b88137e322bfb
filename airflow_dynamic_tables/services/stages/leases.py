"""Stages are opened, and kept alive while their owner works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, ConflictError
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.stages.processes import is_dead
from airflow_dynamic_tables.services.stages.settling import log, settle
from airflow_dynamic_tables.services.workspace import Workspace

LEASE = timedelta(minutes=2)
"""How long a stage stays its owner's without a sign of life."""


def open_stage(workspace: Workspace, stage: Stage) -> None:
    """Take the lease; stages in the way whose owner is gone are settled first.

    :raises ConflictError: when a living owner holds some of the same partitions.
    """
    while blockers := workspace.ledger.open_stage(stage):
        for blocker in blockers:
            if not _owner_gone(workspace, blocker, stage):
                raise ConflictError(
                    f"{stage.table} is being refreshed by {blocker.owner} since {blocker.opened_at.isoformat()}; "
                    f"try again when that ended, or after {blocker.lease_until.isoformat()} if it died."
                )
            try:
                settle(workspace, blocker, f"superseded by {stage.token}")
            except CommitRejectedError:
                pass  # it came to its end by itself just now
            except OSError:
                log.exception("Could not delete stage %s, which is out of the way; the next sweep does it.", blocker.token)


def _owner_gone(workspace: Workspace, blocker: Stage, stage: Stage) -> bool:
    # A new try of the same work supersedes the old one: whatever still runs of it is a zombie.
    return blocker.owner == stage.owner or blocker.lease_until < workspace.now() or is_dead(blocker.process)


@contextmanager
def lease_kept(workspace: Workspace, token: str, on_lost: Callable[[], None] | None = None) -> Iterator[None]:
    """Renew the lease from a thread while the body runs.

    :param on_lost: called from that thread when somebody took the stage away.
    """
    done = threading.Event()

    def renew() -> None:
        while not done.wait(LEASE.total_seconds() / 4):
            try:
                workspace.ledger.renew_lease(token, workspace.now() + LEASE)
            except ConflictError:
                if on_lost is not None and not done.is_set():
                    on_lost()
                return
            except CatalogUnavailableError:
                continue  # the lease outlives a short outage; a long one costs it, and the commit will notice

    thread = threading.Thread(target=renew, name=f"lease-{token}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
