"""Work in processes that are struck once or several times: at a named step, at any statement, any file, any call."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event
from thrift.transport.TTransport import TBufferedTransport

from airflow_dynamic_tables.services.writes import leases
from tests.support.disks import limit_files
from tests.support.faults.model.work import Outcome, Place, Work, perform
from tests.support.faults.steps import PREFIX, tell_of_swaps
from tests.support.faults.victims import Child, Site, start

ENDING = ("settling", "deleted")
NAMED = {
    "refresh": (
        *("begin", "opened", "planned", "writing", "written", "result"),
        *("commit", "publishing", "published", "completed"),
    ),
    "rollback": ("restoring", "restoring"),
    "sweep": ("listed",),
}
"""Steps of each kind of work, at which a process holds no transaction open; ``ENDING`` are those of ending what others began."""

WITHIN = ("swap", "swapped", "landed", "statement", "sent")
"""Steps within a transaction: around the swap of a pointer, before any statement, before any COMMIT."""

FILE = "file"
CALL = "call"
"""Before any file is opened, moved or deleted in the warehouse; before and after any call to the metastore."""

_OF_FILES = ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree")

END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

_PATIENCE = 300


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens to a process when it comes to a point for the ``nth`` time: ``kill``, ``stop``, ``full`` (no file
    grows) or ``cut`` (the server of the tables ends its connections).
    """

    point: str
    kind: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.kind} at {self.point} {self.nth}" if self.nth > 1 else f"{self.kind} at {self.point}"


@dataclass(slots=True)
class Running:
    work: Work
    child: Child
    is_stuck: bool = False
    """It waits for an answer that never comes; it can only be killed."""

    def wait(self) -> Outcome | None:
        """Wait until it is stopped or over.

        :return: how it ended; ``None`` when it is stopped.
        """
        state = Path(f"/proc/{self.child.process.pid}/stat")
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if self.child.is_over():
                return self._ended()
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
                if state.read_text().rpartition(")")[2].split()[0] == "T":
                    return None
            time.sleep(0.005)
        raise TimeoutError(f"{self.work} neither ended nor stopped")

    def kill(self) -> None:
        self.child.process.kill()
        self.child.process.join(60)

    def _ended(self) -> Outcome:
        process = self.child.process
        try:
            outcome, error = self.child.answer()
        except EOFError:
            process.join(60)
            return Outcome("killed" if process.exitcode == -signal.SIGKILL else f"exit code {process.exitcode}")
        return outcome if isinstance(outcome, Outcome) else Outcome("broken", str(error))


def begin_struck(place: Place, work: Work, strikes: Sequence[Strike]) -> Running:
    """Do a piece of work in a process that is struck."""
    return Running(work, start(_struck, place, work, tuple(strikes)))


def begin_impatient(place: Place, work: Work) -> Running:
    """Do a piece of work in a process that gives a commit up after a moment."""
    return Running(work, start(_impatient, place, work), is_stuck=True)


def _impatient(place: Place, work: Work) -> Outcome:
    leases.LEASE, leases.COMMIT_PATIENCE = timedelta(seconds=1), timedelta(seconds=1)
    return perform(place, work)


def _struck(place: Place, work: Work, strikes: tuple[Strike, ...]) -> Outcome:
    left = list(strikes)
    seen: Counter[str] = Counter()

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        point = name.removeprefix(PREFIX) if name.startswith(PREFIX) else _file_point(name, arguments)
        if not left or point != left[0].point:
            return
        seen[point] += 1
        if seen[point] == left[0].nth:
            seen.clear()
            _strike(left.pop(0), place.site)

    sys.addaudithook(hook)
    tell_of_swaps()
    _tell_of_statements()
    _tell_of_calls()
    return perform(place, work)


def _strike(strike: Strike, site: Site) -> None:
    if strike.kind == "cut":
        assert site.tables_url is not None
        with psycopg.connect(site.tables_url, autocommit=True) as connection:
            connection.execute(END_CONNECTIONS)
    elif strike.kind == "full":
        limit_files(100)
    else:
        os.kill(os.getpid(), signal.SIGKILL if strike.kind == "kill" else signal.SIGSTOP)


def _file_point(name: str, arguments: tuple[Any, ...]) -> str:
    is_ours = name in _OF_FILES and bool(arguments) and "/warehouse/" in str(arguments[0])
    return FILE if is_ours else ""


def _tell_of_statements() -> None:
    event.listen(Engine, "before_cursor_execute", lambda *_: sys.audit(f"{PREFIX}statement"))
    event.listen(Engine, "commit", lambda _: sys.audit(f"{PREFIX}sent"))


def _tell_of_calls() -> None:
    flush = TBufferedTransport.flush

    def told(transport: TBufferedTransport) -> None:
        sys.audit(f"{PREFIX}{CALL}")
        flush(transport)
        sys.audit(f"{PREFIX}{CALL}")

    TBufferedTransport.flush = told
