"""The private folder of a local server: its record, processes, lock and sessions."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from uuid import uuid4

from airflow_dynamic_tables.clients.processes import Process, machine
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.runners.spark_submit import private_folder

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """Start options of a server.

    :param idle_seconds: seconds without a connection after which it ends; ``None``: never. The default of two hours keeps it
        running between hourly refreshes, even when a run is late.
    :param jars: files for the class path of all sessions, separated by commas: JDBC drivers, for example.
    """

    master: str = "local[*]"
    driver_memory: str | None = None
    idle_seconds: int | None = 7200
    jars: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A started server: its port on this machine, and its token."""

    port: int
    token: str = field(repr=False)
    options: Options
    since: datetime

    @property
    def address(self) -> str:
        """The server's address for Spark's clients, without the token.

        The host name is literal, because Spark's clients send a token without TLS to ``localhost`` only.
        """
        return f"sc://localhost:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The files of the single server of a user and installation on this machine."""

    path: Path

    @classmethod
    def of(cls, installation: str) -> ServerFolder:
        """The folder of an installation, created if missing.

        :param installation: identifies the installation: the URL of its database.
        :raises ConfigurationError: when processes cannot be identified on this machine, or the folder would not be private.
        """
        where = machine()
        if not where:
            raise ConfigurationError("A local Spark server needs Linux with /proc; elsewhere run refreshes with spark-submit.")
        # After a reboot, or in another container on the same disk, process ids refer to other processes.
        digest = hashlib.sha256(f"{where}\n{installation}".encode()).hexdigest()[:16]
        path = private_folder() / f"spark-{digest}"
        path.mkdir(mode=0o700, exist_ok=True)
        return cls(path)

    @property
    def log(self) -> Path:
        """The server's output."""
        return self.path / "server.log"

    @property
    def work(self) -> Path:
        """The server's working folder: warehouse, blocks and artifacts; obsolete after the server ends."""
        return self.path / "work"

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Hold the exclusive lock for starting or stopping the server; the kernel releases it when this process dies.

        :raises ConflictError: when another process holds it for longer than ``seconds``.
        """
        deadline = time.monotonic() + seconds
        file = self._open_lock()
        try:
            while not _is_locked_now(file):
                if time.monotonic() > deadline:
                    raise ConflictError(
                        f"Another process has been starting or stopping the Spark server for {seconds:.0f} s ({self.path})."
                    )
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(file)

    @property
    def is_locked(self) -> bool:
        """Return whether a process is starting or stopping the server."""
        file = self._open_lock()
        try:
            return not _is_locked_now(file)
        finally:
            os.close(file)

    def _open_lock(self) -> int:
        return os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, server: Server) -> None:
        """Record a server before it is started."""
        half = self.path / "server.writing"
        with private_file(half, "w") as file:
            json.dump(to_plain(server), file)
        half.replace(self.path / "server.json")

    def read(self) -> Server | None:
        """The recorded server, ``None`` after it was stopped or ended as idle; it may have died since."""
        try:
            return from_plain(Server, json.loads((self.path / "server.json").read_text()))
        except (OSError, ValueError):
            return None

    def process(self, of: str = "process") -> Process | None:
        """The running process of the server, or of the ``watcher`` that ends it; ``None`` when it does not run."""
        try:
            process = Process.in_stat((self.path / of).read_text())
        except (OSError, ValueError):
            return None
        return process if process.is_alive else None

    def use(self) -> None:
        """Reset the idle time of the server. Must be called before :meth:`read`."""
        with private_file(self.path / "used", "w") as file:
            file.write("used")

    def last_used(self) -> datetime | None:
        """When the server was last used; a few seconds ago while a client is connected."""
        try:
            return datetime.fromtimestamp((self.path / "used").stat().st_mtime, UTC)
        except OSError:
            return None

    @contextmanager
    def session(self) -> Iterator[str]:
        """The id of a new session on the server, whose record remains if this process dies during the body."""
        session = str(uuid4())
        self._sessions.mkdir(mode=0o700, exist_ok=True)
        record = self._sessions / session
        with private_file(record, "w") as file:
            file.write(Path("/proc/self/stat").read_text())
        try:
            yield session
        finally:
            record.unlink(missing_ok=True)

    def left_sessions(self) -> list[str]:
        """The sessions of dead processes; each is returned once."""
        left = []
        for record in self._sessions.glob("*"):
            with suppress(OSError, ValueError):  # another process removed it, or is writing it
                if not Process.in_stat(record.read_text()).is_alive:
                    record.unlink()
                    left.append(record.name)
        return left

    @property
    def _sessions(self) -> Path:
        return self.path / "sessions"

    def forget(self) -> None:
        """Remove the records of an ended server."""
        shutil.rmtree(self._sessions, ignore_errors=True)
        for name in ("server.json", "ended.json", "process", "watcher", "used"):
            (self.path / name).unlink(missing_ok=True)


def private_file(path: Path, mode: str) -> IO[str]:
    """Open a file for writing; a new file is readable by its owner only."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _is_locked_now(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
