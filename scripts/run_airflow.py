"""``make airflow``: a real Airflow with the demo's DAGs, on this machine only; Ctrl-C stops all of it.

Not ``airflow standalone``: that leaves its children behind when it is terminated.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import psutil
from demo_home import BIN, DATA, HOME, LOGS, SCALE, environment, settings, write_shell_file, yesterday
from demo_postgres import airflow_database
from demo_spark import warm_spark
from rich.console import Console
from tpch import write_tpch

COMPONENTS = (
    ("api-server",),
    ("dag-processor",),
    # Their log servers would listen on every interface; the API server reads the same files.
    ("scheduler", "--skip-serve-logs"),
    ("triggerer", "--skip-serve-logs"),
)
PASSWORDS = HOME / "airflow" / "passwords.json"
SHELL_FILE = HOME / "env"
FIRST_PORT = 8080
START_SECONDS = 180
STOP_SECONDS = 15

console = Console(soft_wrap=True)


class ComponentError(Exception):
    """A component of Airflow ended by itself, or did not come up."""


def main() -> int:
    """Start every component, say where Airflow is, and wait for Ctrl-C or the end of one of them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    LOGS.mkdir(parents=True, exist_ok=True)
    console.print("Starting Airflow; the first time takes a minute ...")
    try:
        write_tpch(DATA, BIN / "tpchgen-cli", SCALE, yesterday())
        with airflow_database(HOME) as database:
            _serve(database)
    except KeyboardInterrupt:
        console.print("\nAirflow is stopped; make airflow starts it again with everything it knows.")
        return 0
    except (ComponentError, subprocess.CalledProcessError) as error:
        console.print(f"[bold red]{error}[/]; the logs are in {LOGS}")
        return 1


def _serve(database: dict[str, str]) -> NoReturn:
    """Run every component on that database, until one of them ends."""
    port = _free_port()
    variables = {**settings(), **database, **_settings(port)}
    environ = environment(variables)
    write_shell_file(SHELL_FILE, variables)
    migrate = [str(BIN / "airflow"), "db", "migrate"]
    with (LOGS / "db-migrate.log").open("wb") as log:
        subprocess.run(migrate, env=environ, stdout=log, stderr=subprocess.STDOUT, check=True)
    with warm_spark(environ), _running(environ) as processes:
        _until_up(port, processes)
        _say_where(port)
        while True:
            _check_alive(processes)
            time.sleep(1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave behind what is not stopped yet
    raise KeyboardInterrupt


def _settings(port: int) -> dict[str, str]:
    """What ``make demo`` does not need: an executor, an address, a login."""
    return {
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(_passwords_file()),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "NO_PROXY": "127.0.0.1,localhost",
        "AIRFLOW_CONN_DYNAMIC_TABLES_AIRFLOW": json.dumps(_own_connection(port)),
    }


def _own_connection(port: int) -> dict[str, str | int]:
    """By it ``dynamic-tables suspend`` pauses the DAG of a table, and ``resume`` unpauses it."""
    login = {"login": "admin", "password": _password()}
    return {"conn_type": "http", "host": "http://127.0.0.1", "port": port, **login}


def _password() -> str:
    password: str = json.loads(_passwords_file().read_text())["admin"]
    return password


def _passwords_file() -> Path:
    if not PASSWORDS.exists():
        PASSWORDS.parent.mkdir(parents=True, exist_ok=True)
        PASSWORDS.touch(mode=0o600)
        PASSWORDS.write_text(json.dumps({"admin": secrets.token_urlsafe(9)}))
    return PASSWORDS


def _free_port() -> int:
    """The first free port from 8080 on."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise ComponentError(f"no port from {FIRST_PORT} to {FIRST_PORT + 99} is free")


@contextmanager
def _running(environ: dict[str, str]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every component, each in a session of its own so that Ctrl-C reaches this process only."""
    processes = {}
    try:
        for name, *options in COMPONENTS:
            with (LOGS / f"{name}.log").open("wb") as log:
                command = [str(BIN / "airflow"), name, *options]
                processes[name] = subprocess.Popen(
                    command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        yield processes
    finally:
        _stop(processes)


def _stop(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Ask every component to end, then kill what is left of it: workers, tasks and their Spark may outlive it."""
    family = []
    for process in processes.values():
        with suppress(psutil.NoSuchProcess):
            family += psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    _, left = psutil.wait_procs(family, STOP_SECONDS)
    for process in processes.values():
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        if process.poll() is None:
            process.kill()
            process.wait()
    for child in left:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _check_alive(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for name, process in processes.items():
        if process.poll() is not None:
            tail = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
            console.print("\n".join(tail), markup=False)
            raise ComponentError(f"airflow {name} ended with code {process.returncode}")


def _until_up(port: int, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until all components report that they are healthy."""
    opener = build_opener(ProxyHandler({}))
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        _check_alive(processes)
        with suppress(URLError, OSError, ValueError), opener.open(f"http://127.0.0.1:{port}/api/v2/monitor/health") as answer:
            health = json.load(answer)
            if all(health[name]["status"] == "healthy" for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")):
                return
        time.sleep(0.5)
    raise ComponentError(f"Airflow is not up after {START_SECONDS} s")


def _say_where(port: int) -> None:
    console.print(f"\nAirflow is at [bold]http://127.0.0.1:{port}[/], user [bold]admin[/], password [bold]{_password()}[/]")
    console.print("Unpause all DAGs, and each runs for its last tick, children after their parents.")
    line = f". {shlex.quote(str(SHELL_FILE))}"
    console.print(f"In another shell, this line first, then airflow commands work (airflow backfill create ...): [bold]{line}[/]")
    console.print(f"Logs are in {LOGS}; Ctrl-C stops Airflow.")


if __name__ == "__main__":
    sys.exit(main())
