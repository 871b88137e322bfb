"""Which process owns a stage, and whether it is surely dead."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from uuid import uuid4

from airflow_dynamic_tables.clients.processes import machine, started


def current_process() -> str:
    """This process as text, never the same twice: host, process-id namespace, process id, when it started, and a random part.

    Without the last, two containers with one host name, of a kernel that tells nothing of namespaces, would look the same.
    """
    return "|".join((*_identity(), uuid4().hex))


def is_current(process: str) -> bool:
    """Whether that process is this one."""
    return process.split("|")[:-1] == list(_identity())


def _identity() -> tuple[str, ...]:
    pid = os.getpid()
    return (socket.gethostname(), machine(), str(pid), started(pid) or "")


def is_dead(process: str) -> bool:
    """Whether that process is surely gone. A process of another machine or container never is: its lease has to end."""
    try:
        host, namespace, pid, start, *_ = process.split("|")
    except ValueError:
        return False
    if not namespace or not start or (host, namespace) != (socket.gethostname(), machine()):
        return False
    with suppress(PermissionError):  # it is another user's, of whom /proc may tell nothing
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
    return started(int(pid)) not in (None, start)
