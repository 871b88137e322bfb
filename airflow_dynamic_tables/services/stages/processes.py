"""Which process owns a stage, and whether it is surely dead."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def current_process() -> str:
    """This process as text: host, process-id namespace, process id and when it started."""
    return "|".join((socket.gethostname(), _namespace(), str(os.getpid()), _started(os.getpid())))


def is_dead(process: str) -> bool:
    """Whether that process is surely gone. A process of another machine or container never is: its lease has to end."""
    try:
        host, namespace, pid, started = process.split("|")
    except ValueError:
        return False
    if (host, namespace) != (socket.gethostname(), _namespace()) or not started:
        return False
    return _started(int(pid)) != started


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, empty when it is not there (or this is not Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
