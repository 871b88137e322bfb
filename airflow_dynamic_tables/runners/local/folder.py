"""The private folder of a local server: what is known of it, and who may start or stop it."""

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
from airflow_dynamic_tables.runners.package import private_folder

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """How a server is started.

    :param idle_seconds: after how long without a connection it ends; ``None``: never. By default two hours, so that tables that
        are refreshed once an hour find it, also when a run is late.
    :param jars: files for the class path of all sessions, separated by commas: JDBC drivers, for example.
    """

    master: str = "local[*]"
    driver_memory: str | None = None
    idle_seconds: int | None = 7200
    jars: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started: where it listens on this machine, and the token that it asks for."""

    port: int
    token: str = field(repr=False)
    options: Options
    since: datetime

    @property
    def address(self) -> str:
        """Where Spark's clients find it, without the token.

        The name is literal, because Spark's clients send a token without TLS to ``localhost`` only.
        """
        return f"sc://localhost:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The files of the one server that a user has for an installation on this machine."""

    path: Path

    @classmethod
    def of(cls, installation: str) -> ServerFolder:
        """The folder of an installation; made when it is missing.

        :param installation: what tells one from another: the URL of its database.
        :raises ConfigurationError: when this machine cannot tell its processes apart, or the folder would not be private.
        """
        where = machine()
        if not where:
            raise ConfigurationError("A local Spark server needs Linux with /proc; elsewhere run refreshes with spark-submit.")
        # After a reboot, and in another container on the same disk, process ids mean other processes.
        digest = hashlib.sha256(f"{where}\n{installation}".encode()).hexdigest()[:16]
        path = private_folder() / f"spark-{digest}"
        path.mkdir(mode=0o700, exist_ok=True)
        return cls(path)

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.path / "server.log"

    @property
    def work(self) -> Path:
        """The server's current folder: warehouse, blocks and artifacts; it has no meaning once the server has ended."""
        return self.path / "work"

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Be the only one who starts or stops the server while the body runs; the kernel frees it when this process dies.

        :raises ConflictError: when somebody else is at it for longer than that.
        """
        deadline = time.monotonic() + seconds
        file = self._open_lock()
        try:
            while not _is_locked_now(file):
                if time.monotonic() > deadline:
                    raise ConflictError(f"Somebody else starts or stops the Spark server since {seconds:.0f} s ({self.path}).")
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(file)

    @property
    def is_locked(self) -> bool:
        """Whether somebody starts or stops the server just now."""
        file = self._open_lock()
        try:
            return not _is_locked_now(file)
        finally:
            os.close(file)

    def _open_lock(self) -> int:
        return os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, server: Server) -> None:
        """Record a server that is about to be started."""
        half = self.path / "server.writing"
        with private_file(half, "w") as file:
            json.dump(to_plain(server), file)
        half.replace(self.path / "server.json")

    def read(self) -> Server | None:
        """The server that was started last, unless it was stopped or nobody used it for long; it may have died since."""
        try:
            return from_plain(Server, json.loads((self.path / "server.json").read_text()))
        except (OSError, ValueError):
            return None

    def process(self, of: str = "process") -> Process | None:
        """The process of the server, or of the ``watcher`` that ends it; ``None`` when it does not run."""
        try:
            process = Process.in_stat((self.path / of).read_text())
        except (OSError, ValueError):
            return None
        return process if process.is_alive else None

    def use(self) -> None:
        """Keep the server from being ended as idle: its time begins anew. Do this before :meth:`read`."""
        with private_file(self.path / "used", "w") as file:
            file.write("used")

    def last_used(self) -> datetime | None:
        """When somebody was last seen to use it; while somebody is connected, a few seconds ago."""
        try:
            return datetime.fromtimestamp((self.path / "used").stat().st_mtime, UTC)
        except OSError:
            return None

    @contextmanager
    def session(self) -> Iterator[str]:
        """The id of a session on the server, which stays on record if this process dies while the body runs."""
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
        """The sessions of processes that died, each once."""
        left = []
        for record in self._sessions.glob("*"):
            with suppress(OSError, ValueError):  # somebody else was faster, or writes it just now
                if not Process.in_stat(record.read_text()).is_alive:
                    record.unlink()
                    left.append(record.name)
        return left

    @property
    def _sessions(self) -> Path:
        return self.path / "sessions"

    def forget(self) -> None:
        """Remove what is known of a server that has ended."""
        shutil.rmtree(self._sessions, ignore_errors=True)
        for name in ("server.json", "ended.json", "process", "watcher", "used"):
            (self.path / name).unlink(missing_ok=True)


def private_file(path: Path, mode: str) -> IO[str]:
    """Open a file for writing that, when it is made now, only its owner may read."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _is_locked_now(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
