"""The PostgreSQL server of the demo's Airflow, in the demo's folder: on SQLite, two ``airflow`` commands lock each other out.

Sessions (``make demo``, ``make airflow``) that run at once share it: the first one starts it, the last one stops it. A session
that was killed leaves it running, and the next one finds it. It listens on the loopback interface only, and wants a password.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

_SERVER_USER = "postgres"
"""Whom the server runs as when the demo is run by root, whom PostgreSQL refuses."""
_LOCAL = "127.0.0.1"


@contextmanager
def airflow_database(home: Path) -> Iterator[dict[str, str]]:
    """Keep the server of a demo's home running.

    :return: the variables that tell Airflow its database; none where Airflow is on SQLite, and then a line says why.
    :raises SystemExit: the server does not start; says what to do.
    """
    folder = home / "postgres"
    binaries = postgres_binaries()
    is_begun = (folder / "data").exists()
    if binaries is None or not (is_begun or _can_begin(home, folder)):
        if is_begun:
            sys.exit(f"Airflow's database is in {folder}, but PostgreSQL is gone; install it, or remove {home}")
        print(_way_to_postgres(home, binaries), flush=True)
        yield {}
        return
    with (folder / "switch").open("w") as switch, (folder / "sessions").open("w") as sessions:
        with _locked(switch):
            port = _running_port(folder) or _start(binaries, folder)
            fcntl.flock(sessions, fcntl.LOCK_SH)
        try:
            password = (folder / "password").read_text()
            url = f"postgresql+psycopg2://airflow:{password}@{_LOCAL}:{port}/postgres"
            yield {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url}
        finally:
            with _locked(switch), suppress(BlockingIOError):  # raised while another session goes on
                fcntl.flock(sessions, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _run(str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-m", "fast", "-w", "stop")


def postgres_binaries() -> Path | None:
    """Where initdb is: on the path, or where Debian puts it, the newest of several."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    of_debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((initdb.parent for initdb in of_debian), key=lambda folder: float(folder.parent.name), default=None)


def _can_begin(home: Path, folder: Path) -> bool:
    """Whether a server can be made: nothing is on SQLite yet, and whom it will run as can write into its folder."""
    if (home / "airflow" / "airflow.db").exists():
        return False
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return True
    try:
        shutil.chown(folder, pwd.getpwnam(_SERVER_USER).pw_uid)
    except KeyError:
        return False
    return subprocess.run(["test", "-w", str(folder)], user=_SERVER_USER, cwd="/", check=False).returncode == 0


def _way_to_postgres(home: Path, binaries: Path | None) -> str:
    """What somebody can do who wants PostgreSQL."""
    if binaries is None:
        way = f"apt-get install -y postgresql, and remove {home}"
    elif (home / "airflow" / "airflow.db").exists():
        way = f"remove {home}, and begin again"
    else:
        way = f"do not be root, or let the user {_SERVER_USER} reach {home}"
    return f"Airflow is on SQLite, which two airflow commands at once can lock up. For PostgreSQL: {way}."


def _start(binaries: Path, folder: Path) -> int:
    """Start the server, made if need be; its port."""
    data = folder / "data"
    if not data.exists():
        _make(binaries, folder)
    with socket.socket() as free:
        free.bind((_LOCAL, 0))
        port = int(free.getsockname()[1])
    # What a crash of this machine may lose of a demo is its last half second.
    options = f"-p {port} -c listen_addresses={_LOCAL} -c unix_socket_directories= -c synchronous_commit=off"
    _run(str(binaries / "pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start")
    return port


def _make(binaries: Path, folder: Path) -> None:
    """Make the server's files beside, so that what was begun and not finished is no server."""
    half, password = folder / "data.half", folder / "password"
    shutil.rmtree(half, ignore_errors=True)
    password.unlink(missing_ok=True)
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(16))
    if os.geteuid() == 0:
        shutil.chown(password, _SERVER_USER)
    access = ("-U", "airflow", "-A", "scram-sha-256", f"--pwfile={password}")
    _run(str(binaries / "initdb"), "-D", str(half), *access, "-E", "UTF8", "--locale=C", "--no-sync")
    half.rename(folder / "data")


def _running_port(folder: Path) -> int | None:
    """The port of the server if it runs.

    PostgreSQL sees itself that a server was killed, unless its process id is still one, of another program or of a process that
    nobody has waited for; that is mended here.
    """
    data, file = folder / "data", folder / "data" / "postmaster.pid"
    with suppress(FileNotFoundError, IndexError, ValueError):
        lines = file.read_text().splitlines()
        try:
            command = psutil.Process(int(lines[0])).cmdline()
        except psutil.ZombieProcess:
            command = []
        except psutil.NoSuchProcess:
            return None
        if str(data) in command:
            return int(lines[3])
        file.unlink()
    return None


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    """Hold a lock, which the system takes back from whoever dies."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _run(*command: str) -> None:
    """Run a program of PostgreSQL.

    :raises SystemExit: it failed; what it said.
    """
    user = _SERVER_USER if os.geteuid() == 0 else None
    done = subprocess.run(command, user=user, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
