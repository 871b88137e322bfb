"""The local Spark Connect server: start, stop, status, and health check."""

from __future__ import annotations

import os
import re
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
from uuid import uuid4

from airflow_dynamic_tables.clients.processes import Process, wait_until_gone
from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError, MissingExtraError
from airflow_dynamic_tables.runners.local.folder import Options, Server, ServerFolder, private_file
from airflow_dynamic_tables.runners.local.relay import relayed
from airflow_dynamic_tables.runners.local.watching import LAUNCH, POOLS, WATCH, arguments_of, pools_file
from airflow_dynamic_tables.runners.spark_home import find_java, find_spark_submit, spark_environment

_SERVICE = "/spark.connect.SparkConnectService"
_USER = "dynamic-tables"
_VERSION = re.compile(rb"\n(?P<length>.)(?P<text>\d+\.\d+\.[\w.-]+)", re.DOTALL)
"""The field of the response with the version: its length, and the text, followed by the next field."""


def answered_version(folder: ServerFolder, server: Server, process: Process | None, seconds: float) -> str | None:
    """Spark's version as reported by a server; ``None`` when its process does not answer in time.

    The call creates a session, which proves that the server still can. It does not require Spark's libraries or their import
    time.

    :param process: of the server; another process gets no token, and its response counts as none.
    :raises MissingExtraError: without gRPC, which PySpark's client requires.
    """
    try:
        import grpc
    except ImportError:
        raise MissingExtraError("pyspark") from None

    session, user = _field(1, str(uuid4()).encode()), _field(2, _field(1, _USER.encode()))
    if process is None:
        return None
    metadata = (("authorization", f"Bearer {server.token}"),)
    with relayed(folder.path, process, server.port) as (target, _), grpc.insecure_channel(target) as channel:
        try:
            answer: bytes = channel.unary_unary(f"{_SERVICE}/AnalyzePlan")(
                session + user + _field(10, b""), timeout=seconds, metadata=metadata
            )
            channel.unary_unary(f"{_SERVICE}/ReleaseSession")(session + user, timeout=seconds, metadata=metadata)
        except grpc.RpcError:
            return None
    version = _VERSION.search(answer)
    return version["text"][: version["length"][0]].decode() if version else ""


def _field(number: int, content: bytes) -> bytes:
    """Encode a short text or message as a protocol buffers field."""
    return bytes((number << 3 | 2, len(content))) + content


START_SECONDS = 180
"""Seconds until a new server must answer; half a minute is common on a machine under load."""

ANSWER_SECONDS = 30
"""Seconds without a response after which a server hangs; garbage collection pauses are shorter."""

_LOOK_SECONDS = 5

_STOP_SECONDS = 20
"""Seconds for a server to end by itself before it is killed."""

_KILL_SECONDS = 10

_LAUNCH_SECONDS = 60
"""Seconds for a busy machine to start a process."""

_POLL_SECONDS = 0.2
_PORTS = 3
"""Attempts with another port, when another process takes the chosen one."""

_LAST_WORDS = 5


class State(Enum):
    """The state of a server."""

    STOPPED = "stopped"
    CHANGING = "changing"
    RUNNING = "running"
    HUNG = "hung"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a local server; unknown values are ``None``. Times are in seconds."""

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
    """Start the server, or return the running one; a server that does not answer is ended first.

    :return: the server, and whether it was started by this call.
    :raises ConfigurationError: when this machine lacks a prerequisite.
    :raises JobFailedError: when the server does not start.
    :raises ConflictError: when another process is starting or stopping it all the time.
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
    """End the server and all its child processes; kills them after a timeout.

    :return: whether a server was running.
    :raises ConflictError: when another process is starting or stopping it all the time, or it cannot be killed.
    """
    with folder.locked(START_SECONDS):
        return _end(folder, _STOP_SECONDS)


def running(folder: ServerFolder) -> Server | None:
    """The server if it runs, with its idle time reset; whether it answers is not checked."""
    folder.use()
    return folder.read() if folder.process() is not None else None


def status(folder: ServerFolder) -> Status:
    """Check the server within a few seconds, without resetting its idle time."""
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
    """Start a server and wait until it answers; ``None`` when another process took its port."""
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
    limit = server.options.idle_seconds
    return f"{server.port:04X}", "never" if limit is None else str(limit)


def _in_background(folder: ServerFolder, command: list[str], environ: dict[str, str], files: tuple[int, ...] = ()) -> None:
    """Run a command in its own session, with its output appended to the server's log."""
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
    """Restart the watcher that ends an idle server, if it was killed."""
    if folder.process("watcher") is None and process.is_alive:
        _in_background(folder, ["sh", "-c", WATCH, "watch", *_watched(server)], {**os.environ})


def _end(folder: ServerFolder, seconds: float) -> bool:
    """End the server, if it runs, and remove its records."""
    process, watcher = folder.process(), folder.process("watcher")
    if watcher is not None:  # first, because it could restore the old server's files beside a new server
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
    """A free port of 127.0.0.1, with a guard that reserves it on the other loopback address.

    This package connects through :mod:`.relay`; other clients try ``localhost`` on both addresses, and would send the token to a
    process that listens on the other one.
    """
    with socket.socket() as chosen, socket.socket(socket.AF_INET6) as guard:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        chosen.close()
        with suppress(OSError):  # without IPv6 no process can listen there
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
