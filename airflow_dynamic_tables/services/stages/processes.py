"""Which process owns a stage, and whether it is surely dead."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


def current_process() -> str:
    """This process as text, never the same twice: host, process-id namespace, process id, when it started, and a random part.

    Without the last, two containers with one host name, of a kernel that tells nothing of namespaces, would look the same.
    """
    pid = os.getpid()
    return "|".join((socket.gethostname(), _namespace(), str(pid), _started(pid) or "", uuid4().hex))


def is_dead(process: str) -> bool:
    """Whether that process is surely gone. A process of another machine or container never is: its lease has to end."""
    try:
        host, namespace, pid, started, *_ = process.split("|")
    except ValueError:
        return False
    if not namespace or not started or (host, namespace) != (socket.gethostname(), _namespace()):
        return False
    with suppress(PermissionError):  # it is another user's, of whom /proc may tell nothing
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
    return _started(int(pid)) not in (None, started)


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, empty when it has ended; ``None`` when /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in ("Z", "X") else fields[19]
