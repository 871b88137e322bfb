"""Processes of this machine by /proc, identified by id and start time, because ids are reused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENDED = ("Z", "X")
"""States of an ended process of which only the exit code is left."""

_POLL_SECONDS = 0.05


def machine() -> str:
    """Identity of the process id namespace and the boot of the machine; empty when /proc is not available."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, empty when it has ended; ``None`` when /proc has no entry."""
    try:
        fields = _fields(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None
    return "" if fields[0] in _ENDED else fields[19]


def _fields(stat: str) -> list[str]:
    """The fields of a stat file after the program name, which may contain any characters."""
    return stat.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True)
class Process:
    """One process, never confused with a later one of the same id."""

    pid: int
    started: str

    @classmethod
    def in_stat(cls, stat: str) -> Process:
        """Parse the process of a line of ``/proc/PID/stat``.

        :raises ValueError: when the line is malformed.
        """
        try:
            return cls(int(stat.split(maxsplit=1)[0]), _fields(stat)[19])
        except IndexError:
            raise ValueError(f"{stat!r} is no line of /proc/PID/stat") from None

    @property
    def is_alive(self) -> bool:
        """Return whether it still exists, running or suspended."""
        return started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; ignored when the process has ended."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                # The handle was opened before the check, so it refers to the checked process.
                if self.is_alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def session(self) -> tuple[Process, ...]:
        """All running processes of its session: itself and its descendants, except those with a session of their own."""
        alive = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                stat = file.read_text(errors="replace")
                fields = _fields(stat)
                if fields[0] not in _ENDED:
                    alive[Process(int(file.parent.name), fields[19])] = fields[3]
        return tuple(process for process, session in alive.items() if session == alive.get(self))


def wait_until_gone(processes: Iterable[Process], seconds: float) -> bool:
    """Wait for the end of processes for some seconds; return whether all have ended."""
    deadline = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if process.is_alive]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return not left
