"""Refreshes in subprocesses: each runs the command ``refresh``, with its own lease, stage and commit."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import IO
from uuid import uuid4

from airflow_dynamic_tables.api.access import Caller, Refresher
from airflow_dynamic_tables.exceptions import DynamicTableError, TooBusyError
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import is_abandoned

MOST_WAITING = 100
"""Maximum number of jobs waiting for a process; further jobs are rejected."""

_LEASE = timedelta(minutes=2)
_RENEWED_EVERY = 30.0
"""Interval of renewals in seconds, four per lease."""

_ABORT_SECONDS = 60.0
"""How long a process may take to abort its stage after it was told to stop."""

_LAST_WORDS = 4000
"""Bytes kept of the end of a process's output; its last line is the error."""

_ENDS = {
    RefreshState.SUCCEEDED: WorkState.SUCCEEDED,
    RefreshState.UNDONE: WorkState.SUCCEEDED,
    RefreshState.SKIPPED: WorkState.SKIPPED,
    RefreshState.FAILED: WorkState.FAILED,
    RefreshState.ABORTED: WorkState.FAILED,
    RefreshState.QUARANTINED: WorkState.FAILED,
    RefreshState.REJECTED: WorkState.FAILED,
}
"""Job state for each final state of a refresh."""

_ENDED = "The server ended before it began; ask for it again."
_DIED = "Its process is gone, and left no version; the next refresh settles what it left. Ask for it again."
_STOPPED = "It was stopped before it made a version; the table stays as it was."
_BEFORE = "A table that was asked for together with it failed before, so it did not begin."

log = logging.getLogger(__name__)


@dataclass
class Processes(Refresher):
    """Runs jobs in subprocesses, a bounded number at a time.

    :param command: command line prefix for ``refresh TABLE`` and its options.
    :param environ: environment of the processes: the locations of state and definitions, so that no secret is on a command line.
    :param opener: opens a workspace for the threads that monitor the processes.
    :param patience: seconds that running refreshes may take when the server ends.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    opener: Callable[[], Workspace]
    at_once: int = 2
    patience: float = 30.0
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)
    _ending: Event = field(default_factory=Event)
    _over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        """Start the worker threads."""
        self._threads = ThreadPoolExecutor(self.at_once, "refresh")
        self._renewal = Thread(target=self._renew, name="jobs", daemon=True)
        self._renewal.start()

    def start(self, workspace: Workspace, caller: Caller, job: Job) -> None:  # noqa: ARG002 - the token grants all rights
        """Queue a job; its tables are refreshed one after another.

        :raises TooBusyError: if too many jobs are waiting already, or the server is shutting down.
        """
        with self._lock:
            if self._ending.is_set():
                raise TooBusyError("The server is about to end; ask it when it is back.")
            if len(self._held) >= MOST_WAITING + self.at_once:
                raise TooBusyError(f"{len(self._held)} jobs wait already; ask again when some of them have ended.")
            self._held.add(job.id)
        cluster = {"clusterType": "process", "clusterId": socket.gethostname()}
        for refresh in job.refreshes:
            workspace.ledger.change_job(job.id, refresh.table, token=str(uuid4()), cluster=cluster)
        self._threads.submit(self._work, job.id)

    def look(self, workspace: Workspace, job: Job) -> None:
        """Read the outcomes of refreshes that this server does not monitor from the history, for example after a restart."""
        with self._lock:
            if job.id in self._held:
                return
        is_held = job.lease_until > workspace.now()  # handled by another server
        for refresh in job.refreshes:
            if not refresh.state.is_end and refresh.token is not None:
                _settle(workspace, job, refresh, is_held=is_held)

    def close(self) -> None:
        """Shut down: give up waiting jobs, let running ones finish, then tell them to stop, which aborts their stages."""
        with self._lock:
            self._ending.set()
        waiter = Thread(target=self._threads.shutdown, name="end", daemon=True)
        waiter.start()
        waiter.join(self.patience)
        self._tell(signal.SIGTERM)
        waiter.join(_ABORT_SECONDS)
        self._tell(signal.SIGKILL)
        waiter.join()
        self._over.set()
        self._renewal.join()

    def _tell(self, number: signal.Signals) -> None:
        with self._lock:
            for process in self._running.values():
                process.send_signal(number)

    def _renew(self) -> None:
        while not self._over.wait(_RENEWED_EVERY):
            with self._lock:
                held = set(self._held)
            try:
                with self.opener() as workspace:
                    workspace.ledger.renew_jobs(held, workspace.now() + _LEASE)
            except DynamicTableError:
                log.exception("Jobs could not be renewed; the next time makes up for it.")

    def _work(self, job_id: str) -> None:
        try:
            with self.opener() as workspace:
                job = workspace.ledger.get_job(job_id)
                if job is None:
                    return
                has_failed = False
                for refresh in job.refreshes:
                    state, error = _given_up(self._ending.is_set(), has_failed) or self._run(workspace, job, refresh)
                    workspace.ledger.change_job(job_id, refresh.table, state=state, error=error)
                    has_failed = has_failed or state in (WorkState.FAILED, WorkState.LOST)
        except Exception:
            log.exception("Job %s is no longer looked after; the history tells what became of it.", job_id)
        finally:
            with self._lock:
                self._held.discard(job_id)

    def _run(self, workspace: Workspace, job: Job, refresh: JobRefresh) -> tuple[WorkState, str | None]:
        with tempfile.TemporaryFile() as words:
            process = self._begin(job.wish, refresh, words)
            with self._lock:
                self._running[job.id] = process
            cluster = {**refresh.cluster_info, "jobId": str(process.pid)}
            workspace.ledger.change_job(job.id, refresh.table, state=WorkState.RUNNING, cluster=cluster)
            code = process.wait()
            with self._lock:
                del self._running[job.id]
            return _ended(workspace, refresh, code, _last_line(words))

    def _begin(self, wish: RefreshWish, refresh: JobRefresh, words: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process in its own session, so that Ctrl-C in the server's terminal reaches only the server.

        Its output goes to an unnamed file instead of a pipe, so that it continues if this server dies.
        """
        arguments = [*self.command, "refresh", *_options(wish, refresh), "--", str(refresh.table)]
        return subprocess.Popen(
            arguments,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            start_new_session=True,
        )


def _given_up(is_ending: bool, has_failed: bool) -> tuple[WorkState, str] | None:
    """Return the outcome of a refresh that is not started; ``None`` if it is to be started."""
    if has_failed:
        return WorkState.SKIPPED, _BEFORE
    return (WorkState.LOST, _ENDED) if is_ending else None


def _options(wish: RefreshWish, refresh: JobRefresh) -> list[str]:
    """Return the options of the command ``refresh``. Values are joined with ``=``, because a value may begin with a dash."""
    return [
        f"--token={refresh.token}",
        *([f"--schedule-time={wish.schedule_time}"] if wish.schedule_time else []),
        *(f"--partition={part}" for part in (wish.partition or "").split(",") if part),
        *(["--full-refresh"] if wish.full_refresh else []),
        *(["--force"] if wish.is_forced else []),
        *(["--scheduled"] if wish.is_periodic else []),
    ]


def _ended(workspace: Workspace, refresh: JobRefresh, code: int, last_line: str) -> tuple[WorkState, str | None]:
    """Return the outcome of an ended process, from the history; without a record, it was rejected or had nothing to do."""
    recorded = workspace.ledger.get_refresh(refresh.token or "")
    if recorded is not None and recorded.state is RefreshState.ABORTED:
        return WorkState.FAILED, _STOPPED
    if recorded is not None and recorded.state in _ENDS:
        state = _ENDS[recorded.state]
        told = recorded.reason if state is WorkState.SKIPPED else recorded.error
        return state, told or (last_line if state is WorkState.FAILED else None)
    if code == 0:
        return WorkState.SKIPPED, last_line.removeprefix("Skipped: ") or None
    if code < 0:
        return WorkState.LOST, f"Its process was ended by signal {-code}, and left no version; ask for it again."
    return WorkState.FAILED, last_line or f"Its process ended with {code}."


def _settle(workspace: Workspace, job: Job, refresh: JobRefresh, *, is_held: bool) -> None:
    """Record the outcome of a refresh whose server is another one, or gone."""
    recorded = workspace.ledger.get_refresh(refresh.token or "")
    if recorded is not None and recorded.state in _ENDS:
        state, error = _ended(workspace, refresh, 0, "")
        workspace.ledger.change_job(job.id, refresh.table, state=state, error=error)
        return
    stage = workspace.ledger.get_stage(refresh.token or "")
    works = stage is not None and not is_abandoned(workspace, stage)
    if not is_held and not works:
        begun = refresh.state is WorkState.RUNNING
        workspace.ledger.change_job(job.id, refresh.table, state=WorkState.LOST, error=_DIED if begun else _ENDED)


def _last_line(words: IO[bytes]) -> str:
    size = words.seek(0, 2)
    words.seek(max(0, size - _LAST_WORDS))
    lines = [line.strip() for line in words.read().decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")
