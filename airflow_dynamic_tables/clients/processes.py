"""Processes of this machine as /proc tells of them: a process is its id and when it started, because ids are given again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENDED = ("Z", "X")
"""States of a process that runs no more, and of which only the exit code is left."""

_POLL_SECONDS = 0.05


def machine() -> str:
    """The process ids that this process sees: their namespace and the boot of the machine; empty when /proc does not tell."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, empty when it has ended; ``None`` when /proc does not tell."""
    try:
        fields = _fields(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None
    return "" if fields[0] in _ENDED else fields[19]


def _fields(stat: str) -> list[str]:
    """What stands in a stat file behind the name of the program, which may hold anything."""
    return stat.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True)
class Process:
    """One process, and never another one that got its id later."""

    pid: int
    started: str

    @classmethod
    def in_stat(cls, stat: str) -> Process:
        """The process of a line of ``/proc/PID/stat``.

        :raises ValueError: when it is no such line.
        """
        try:
            return cls(int(stat.split(maxsplit=1)[0]), _fields(stat)[19])
        except IndexError:
            raise ValueError(f"{stat!r} is no line of /proc/PID/stat") from None

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, or is stopped and could go on."""
        return started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it is gone."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                # The handle was there before the look: it is of the process that was looked at.
                if self.is_alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def session(self) -> tuple[Process, ...]:
        """Everything that runs in its session: itself and all that it started, but for what made a session of its own."""
        alive = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                stat = file.read_text(errors="replace")
                fields = _fields(stat)
                if fields[0] not in _ENDED:
                    alive[Process(int(file.parent.name), fields[19])] = fields[3]
        return tuple(process for process, session in alive.items() if session == alive.get(self))


def wait_until_gone(processes: Iterable[Process], seconds: float) -> bool:
    """Wait for the end of processes, at most so long.

    :return: whether all are gone.
    """
    deadline = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if process.is_alive]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return not left
