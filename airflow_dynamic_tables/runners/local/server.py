"""A Spark Connect server of this user and installation on this machine: start, stop, look."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from airflow_dynamic_tables.clients.processes import Process, wait_until_gone
from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError
from airflow_dynamic_tables.runners.environment import spark_environment
from airflow_dynamic_tables.runners.finding import find_java, find_spark_submit
from airflow_dynamic_tables.runners.local.command import POOLS, arguments_of, pools_file
from airflow_dynamic_tables.runners.local.folder import Options, Server, ServerFolder, private_file
from airflow_dynamic_tables.runners.local.health import answered_version
from airflow_dynamic_tables.runners.local.watching import LAUNCH, WATCH

START_SECONDS = 180
"""How long a server may take to answer first; half a minute is usual on a machine under load."""

ANSWER_SECONDS = 30
"""After how long without an answer a server is stuck: no pause of Java's memory takes so long."""

_LOOK_SECONDS = 5
"""How long a mere look waits for an answer."""

_STOP_SECONDS = 20
"""How long a server may take to end by itself, before it is killed."""

_KILL_SECONDS = 10
"""How long the kernel may take to end what is killed."""

_LAUNCH_SECONDS = 60
"""How long a busy machine may take to begin a process."""

_POLL_SECONDS = 0.2
_PORTS = 3
"""How often another port is tried, when somebody takes the chosen one first."""

_LAST_WORDS = 5


class State(Enum):
    """What a look at a server tells."""

    STOPPED = "stopped"
    CHANGING = "changing"
    RUNNING = "running"
    HUNG = "hung"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Status:
    """A local server at a glance; what is not known of it is ``None``. Times are in seconds."""

    state: State
    address: str | None = None
    pid: int | None = None
    spark_version: str | None = None
    age_seconds: int | None = None
    idle_seconds: int | None = None
    idle_limit_seconds: int | None = None
    master: str | None = None
    log: str | None = None


def start(folder: ServerFolder, options: Options, answer_seconds: float = ANSWER_SECONDS) -> tuple[Server, bool]:
    """Start the server, or find the one that runs; one that does not answer is ended first.

    :return: the server, and whether it was started now.
    :raises ConfigurationError: when this machine lacks what it takes.
    :raises JobFailedError: when the server does not come up.
    :raises ConflictError: when somebody else starts or stops it all the while.
    """
    with folder.locked(START_SECONDS):
        folder.use()
        server, process = folder.read(), folder.process()
        if server is not None and process is not None and answered_version(folder, server, process, answer_seconds) is not None:
            _watch(folder, server, process)
            return server, False
        _end(folder, seconds=0)
        for _ in range(_PORTS):
            if started := _started(folder, options):
                return started, True
    raise JobFailedError(
        f"Another process took the port of the Spark server before it could listen, {_PORTS} times in a row; it received neither "
        "token nor query. If another user of this machine does that, run refreshes with spark-submit (--master 'local[*]'). The "
        f"server's log is in {folder.log}."
    )


def stop(folder: ServerFolder) -> bool:
    """End the server with all that it started; kill it when it takes long.

    :return: whether there was one.
    :raises ConflictError: when somebody else starts or stops it all the while, or it cannot be killed.
    """
    with folder.locked(START_SECONDS):
        return _end(folder, _STOP_SECONDS)


def running(folder: ServerFolder) -> Server | None:
    """The server if it runs, kept from being ended as idle for now; whether it answers is not known."""
    folder.use()
    return folder.read() if folder.process() is not None else None


def status(folder: ServerFolder) -> Status:
    """Look at the server, for a few seconds at most; that is no use of it."""
    server, process, now = folder.read(), folder.process(), datetime.now(UTC)
    if server is None:
        return Status(State.STOPPED)
    log, age = str(folder.log), int((now - server.since).total_seconds())
    known = (server.options.idle_seconds, server.options.master, log)
    if process is None:
        return Status(State.DIED, server.address, None, None, age, None, *known)
    used = folder.last_used()
    idle = int((now - (used or server.since)).total_seconds())
    version = answered_version(folder, server, process, _LOOK_SECONDS)
    silent = State.CHANGING if folder.is_locked else State.HUNG
    state = silent if version is None else State.RUNNING
    return Status(state, server.address, process.pid, version, age, idle, *known)


def _started(folder: ServerFolder, options: Options) -> Server | None:
    """A new server that answers; ``None`` when somebody took its port first."""
    with _reserved_port() as (port, guards):
        server = Server(port, secrets.token_urlsafe(32), options, datetime.now(UTC))
        _launch(folder, server, guards)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            folder.use()
            if answered_version(folder, server, folder.process(), _LOOK_SECONDS) is not None:
                return server
            if folder.process() is None:
                break
            time.sleep(_POLL_SECONDS)
        if folder.process() is None and not _is_free(port):
            return None
        tail = "\n".join(folder.log.read_text(errors="replace").splitlines()[-_LAST_WORDS:])
        words = " | ".join(tail.splitlines())
        raise JobFailedError(f"The Spark server did not start; its log is in {folder.log}. It ends with: {words}", log_tail=tail)
    except BaseException:
        _end(folder, seconds=0)
        raise


def _launch(folder: ServerFolder, server: Server, guards: tuple[int, ...]) -> None:
    """Begin the process of a server, as nobody's child: it stays when this process ends, whichever way."""
    environ = spark_environment(os.environ)
    find_java(environ)
    command = [find_spark_submit(environ), *arguments_of(folder, server)]
    environ |= {
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": server.token,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    shutil.rmtree(folder.work, ignore_errors=True)
    folder.work.mkdir(mode=0o700)
    with private_file(pools_file(folder), "w") as pools:
        pools.write(POOLS)
    folder.write(server)
    with suppress(FileNotFoundError):
        folder.log.replace(folder.log.with_suffix(".log.1"))
    _in_background(folder, ["sh", "-c", LAUNCH, "launch", WATCH, *_watched(server), *command], environ, guards)
    deadline = time.monotonic() + _LAUNCH_SECONDS
    while not (folder.path / "process").exists() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _watched(server: Server) -> tuple[str, str]:
    """Arguments of the scripts: the port as the kernel writes it, and the time without use."""
    limit = server.options.idle_seconds
    return f"{server.port:04X}", "never" if limit is None else str(limit)


def _in_background(folder: ServerFolder, command: list[str], environ: dict[str, str], files: tuple[int, ...] = ()) -> None:
    """Run a command in a session of its own, and its output in the log of the server."""
    with private_file(folder.log, "a") as log:
        subprocess.run(
            ["sh", "-c", '"$@" &', "background", *command],
            cwd=folder.path,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=files,
            check=True,
        )


def _watch(folder: ServerFolder, server: Server, process: Process) -> None:
    """Have somebody end the server when nobody uses it, where that was killed meanwhile."""
    if folder.process("watcher") is None and process.is_alive:
        _in_background(folder, ["sh", "-c", WATCH, "watch", *_watched(server)], {**os.environ})


def _end(folder: ServerFolder, seconds: float) -> bool:
    """End the server, if it runs, and forget it.

    :param seconds: how long it may take by itself; 0 kills it at once.
    :raises ConflictError: when it does not even end then.
    """
    process, watcher = folder.process(), folder.process("watcher")
    if watcher is not None:  # before all else: it could put back the files of the old server beside a new one
        watcher.signal(signal.SIGKILL)
        wait_until_gone([watcher], _KILL_SECONDS)
    if process is not None:
        family = {process, *process.session()}
        if seconds:
            process.signal(signal.SIGTERM)
            wait_until_gone([process], seconds)
        for member in family:
            member.signal(signal.SIGKILL)
        if not wait_until_gone(family, _KILL_SECONDS):
            raise ConflictError(f"The Spark server (process {process.pid}) does not end, although it was killed.")
    folder.forget()
    shutil.rmtree(folder.work, ignore_errors=True)
    return process is not None


@contextmanager
def _reserved_port() -> Iterator[tuple[int, tuple[int, ...]]]:
    """A free port of 127.0.0.1, and what keeps it free on the other loopback address.

    This package connects through :mod:`.relay`; other clients try ``localhost`` on both, and would give the token to another
    process that listens on the other one.
    """
    with socket.socket() as chosen, socket.socket(socket.AF_INET6) as guard:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        chosen.close()
        with suppress(OSError):  # without IPv6 nobody can listen there
            guard.bind(("::1", port))
        yield port, (guard.fileno(),)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
