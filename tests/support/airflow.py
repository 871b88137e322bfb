"""A real Airflow of the tests' own: a home, DAGs, a command line; and for several runs at once the whole stack on PostgreSQL."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import psycopg
from psycopg import sql

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.ports import free_port

LOADER = '''"""Airflow DAGs of all dynamic tables."""
from pathlib import Path

from airflow_dynamic_tables.dag_factory import load_dynamic_tables

load_dynamic_tables(globals(), Path(__file__).parent / "definitions")
'''

FAST_SPARK = "{spark.ui.enabled: false, spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
"""Spark settings for data that fit on a page."""

USERS = {"viewer": "viewer", "user": "user", "op": "op", "admin": "admin", "stranger": "user"}
"""Users and their roles. What the tests do, they do as admin, where they do not say otherwise."""

AUTH_MANAGER = '''"""Airflow's simple auth manager; the user ``stranger`` has rights to the tables of database ``open`` alone."""
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class AuthManager(SimpleAuthManager):
    def is_authorized_dag(self, *, method, user, access_entity=None, details=None):
        if user.get_id() == "stranger" and "__open__" not in ((details and details.id) or ""):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
'''
"""Rights by DAG, which Airflow's own simple one does not have."""

COMPONENTS = ("api-server", "dag-processor", "scheduler", "triggerer")
PARSING = 3
"""Seconds that the DAG processor takes for the DAG file, about."""


_T = TypeVar("_T")


def until(what: str, look: Callable[[], _T | None], seconds: float = 300) -> _T:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.3)
    return found


def jobs_of(token: str) -> list[psutil.Process]:
    commands = ((found, " ".join(found.info["cmdline"] or ())) for found in psutil.process_iter(["cmdline", "create_time"]))
    jobs = [found for found, command in commands if token in command and "--plan" in command]
    return sorted(jobs, key=lambda found: float(found.info["create_time"]))


@dataclass(slots=True)
class Airflow:
    home: Path
    state_url: str
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.definitions.mkdir(parents=True)
        self.dag_file.write_text(LOADER)
        self.plugins.mkdir()  # Python asks only once, when a component starts, whether it is there
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES"))}
        self.environ = {
            **inherited,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "DYNAMIC_TABLES_CACHE": str(self.home / "cache"),
            "DYNAMIC_TABLES_VARIABLES": "AIRFLOW_HOME,NO_SUCH_VARIABLE",
            "NO_PROXY": "127.0.0.1,localhost",
            **self.environ,
        }

    @property
    def definitions(self) -> Path:
        return self.home / "dags" / "definitions"

    @property
    def dag_file(self) -> Path:
        return self.home / "dags" / "dynamic_tables.py"

    @property
    def lineage_events(self) -> Path:
        return self.home / "lineage"

    @property
    def plugins(self) -> Path:
        return self.home / "plugins"

    def define(self, file: str, text: str) -> None:
        """Write a definitions file; ``SPARK`` in it stands for settings that start Spark quickly."""
        path = self.definitions / file
        half = path.with_name(f".{path.name}")  # nobody reads what is hidden, nor half a file
        half.write_text(text.replace("SPARK", f"{{conf: {FAST_SPARK}}}"))
        half.replace(path)
        self.parse()

    def append(self, text: str) -> None:
        with self.dag_file.open("a") as file:
            file.write(text)
        self.parse()

    def parse(self) -> None:
        """Let the DAG processor parse the DAG file at once: it does when that is newer than the last look at it."""
        moment = time.time() + PARSING  # a look that has begun may have missed what changed
        os.utime(self.dag_file, (moment, moment))

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run ``airflow ...`` to its end, whatever that is."""
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(
            command, env={**self.environ, **environ}, capture_output=True, text=True, check=False, timeout=300, cwd=self.home
        )

    def check(self, *arguments: str) -> str:
        """Run ``airflow ...``, which must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    @property
    def warehouse(self) -> Path:
        return self.home / "dynamic_tables" / "warehouse"

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        with open_workspace(WorkspaceSettings(self.state_url, self.warehouse.as_uri())) as workspace:
            yield workspace

    def rows(self, table: str, limit: int = 1000) -> list[dict[str, Any]]:
        with self.workspace() as workspace:
            return sample(workspace, TableIdentifier.parse(table), limit)

    def refreshes(self, table: str) -> list[Refresh]:
        with self.workspace() as workspace:
            return workspace.ledger.list_refreshes(TableIdentifier.parse(table), limit=1000)

    def stages(self, table: str | None = None) -> list[str]:
        with self.workspace() as workspace:
            return [stage.token for stage in workspace.ledger.list_stages(TableIdentifier.parse(table) if table else None)]


def embedded(home: Path) -> Airflow:
    airflow = Airflow(home, f"sqlite:///{home}/dynamic_tables/state.db")
    airflow.check("db", "migrate")
    return airflow


@dataclass(slots=True)
class Components:
    airflow: Airflow
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, component: str) -> None:
        """Start a component; its log goes on where the last one's ended."""
        with (self.airflow.home / f"{component}.log").open("ab") as log:
            command = [sys.executable, "-m", "airflow", component]
            process = subprocess.Popen(
                command,
                env=self.airflow.environ,
                cwd=self.airflow.home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        self.running[component] = process

    def kill(self, component: str) -> None:
        """``kill -9`` a component, but not its children: nobody would kill those, either."""
        process = self.running.pop(component)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Kill everything that was started, with all children: workers and tasks may outlive their component."""
        for process in self.started:
            process.kill()
            process.wait()
        sessions = {process.pid for process in self.started}
        for _ in range(2):  # what was killed may have started something a moment before
            for left in psutil.process_iter():
                with suppress(psutil.Error, ProcessLookupError):
                    if os.getsid(left.pid) in sessions:
                        left.kill()


@dataclass(slots=True)
class Stack:
    """A running Airflow: its REST API, its components, the tokens of its users, and what the tests ask of them."""

    airflow: Airflow
    api: httpx.Client
    components: Components
    tokens: dict[str, str]

    def get(self, path: str, **params: Any) -> Any:
        """GET below ``/api/v2``."""
        answer = self.api.get(path, params=params)
        answer.raise_for_status()
        return answer.json()

    def unpause(self, dag_id: str) -> None:
        self.api.patch(f"/dags/{dag_id}", json={"is_paused": False}).raise_for_status()

    def pause(self, dag_id: str) -> None:
        self.api.patch(f"/dags/{dag_id}", json={"is_paused": True}).raise_for_status()

    def trigger(self, dag_id: str, **body: Any) -> str:
        """Trigger a DAG as the form of the UI does."""
        answer = self.api.post(f"/dags/{dag_id}/dagRuns", json={"logical_date": None, **body})
        assert answer.status_code == httpx.codes.OK, answer.text
        return str(answer.json()["dag_run_id"])

    def runs(self, dag_id: str, **params: Any) -> list[dict[str, Any]]:
        return list(self.get(f"/dags/{dag_id}/dagRuns", order_by="run_after", **params)["dag_runs"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return dict(self.get(f"/dags/{dag_id}/dagRuns/{run_id}"))

    def task(self, dag_id: str, run_id: str, task_id: str = "refresh") -> dict[str, Any]:
        return dict(self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"))

    def mark(self, dag_id: str, run_id: str, state: str) -> None:
        url = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/refresh"
        self.api.patch(url, json={"new_state": state}).raise_for_status()

    def clear(self, dag_id: str, run_id: str) -> None:
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": ["refresh"]}
        self.api.post(f"/dags/{dag_id}/clearTaskInstances", json=body).raise_for_status()

    def log(self, dag_id: str, run_id: str, try_number: int = 1) -> str:
        return json.dumps(self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/refresh/logs/{try_number}"))

    def first_run(self, dag_id: str) -> str:
        return str(until(f"run of {dag_id}", lambda: self.runs(dag_id, run_type="scheduled"))[0]["dag_run_id"])

    def until_state(
        self, dag_id: str, run_id: str, *states: str, task_id: str = "refresh", seconds: float = 500
    ) -> dict[str, Any]:
        """Wait until a task is in one of the states; a final state that is none of them is an error at once."""

        def look() -> dict[str, Any] | None:
            task = self.task(dag_id, run_id, task_id)
            final = task["state"] in ("success", "failed", "skipped", "upstream_failed")
            if final and task["state"] not in states:
                raise AssertionError(f"{dag_id} {run_id} is {task['state']}:\n{self.log(dag_id, run_id)[-4000:]}")
            return task if task["state"] in states else None

        return until(f"{'/'.join(states)} of {dag_id} {run_id}", look, seconds)


def _let_go_of_the_dead(database_url: str) -> None:
    """A scheduler that is killed within a transaction leaves its connection, and so its locks, to the workers it has forked."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        limit = sql.SQL("ALTER DATABASE {} SET idle_in_transaction_session_timeout = '45s'")
        connection.execute(limit.format(sql.Identifier(connection.info.dbname)))


@contextmanager
def running(airflow: Airflow, database_url: str) -> Iterator[Stack]:
    """Start every component of Airflow on that PostgreSQL database, and stop them with all their children."""
    port, worker_log_port, trigger_log_port = free_port(), free_port(), free_port()
    airflow.environ |= {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url.replace("postgresql://", "postgresql+psycopg2://"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "12",
        "AIRFLOW__CORE__AUTH_MANAGER": "tested_auth_manager.AuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(airflow.home / "passwords.json"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
        # What changed is parsed at once all the same, see ``Airflow.parse``, and known at once.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "20",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "1",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
        # The dead are noticed within seconds instead of minutes.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "5",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "40",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
        "AIRFLOW__DYNAMIC_TABLES__UPSTREAM_POLL_INTERVAL": "2",
    }
    (airflow.home / "config").mkdir()  # from where every component imports, too
    (airflow.home / "config" / "tested_auth_manager.py").write_text(AUTH_MANAGER)
    passwords = {user: secrets.token_hex(16) for user in USERS}
    (airflow.home / "passwords.json").write_text(json.dumps(passwords))
    _let_go_of_the_dead(database_url)
    airflow.check("db", "migrate")
    airflow.check("dynamic-tables", "db", "upgrade", "--database-url", airflow.state_url)
    components = Components(airflow)
    try:
        for component in COMPONENTS:
            components.start(component)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
            until("API", lambda: _answers(client))
            tokens = {user: _token(client, user, password) for user, password in passwords.items()}
            client.headers["Authorization"] = f"Bearer {tokens['admin']}"
            client.base_url = httpx.URL(f"http://127.0.0.1:{port}/api/v2")
            yield Stack(airflow, client, components, tokens)
    finally:
        components.stop()


def _token(client: httpx.Client, user: str, password: str) -> str:
    answer = client.post("/auth/token", json={"username": user, "password": password})
    return str(answer.raise_for_status().json()["access_token"])


def _answers(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/api/v2/version").is_success
    return False
