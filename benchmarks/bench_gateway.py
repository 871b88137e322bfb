"""The tables route of the REST gateway with a thousand tables in one page: time from request to answer over HTTP, warm.

Half of them have a version and a hundred refreshes each. Ten tables beside them show what every request costs.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from measure import check, interleave
from sqlalchemy import insert, select

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import refreshes
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

ROUNDS = 15
TABLES, FEW = 1_000, 10
HISTORY = 100
AGES = range(1, HISTORY)
LIMIT_MS = 300


def main() -> None:
    """Make two installations, ask each in turn, print."""
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {}
        for name, count in (("thousand", TABLES), ("ten", FEW)):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _fill(home, count)
            sides[name] = _request(stack.enter_context(_served(home)), count)
            sides[name]()  # opens a workspace
        measured = interleave(ROUNDS, **sides)
    check(f"the tables route with {TABLES} tables in one page", measured["thousand"], "ms", LIMIT_MS)
    check(f"the same with {FEW}", measured["ten"], "ms", LIMIT_MS)


def _fill(home: Path, count: int) -> None:
    """Declare and register tables, and give the history a hundred refreshes of every other one."""
    lines = [
        f"- {{name: t{number:04}, freshness: {1 + number % 3} hours, query: SELECT a FROM raw.orders WHERE b = {number}}}"
        for number in range(count)
    ]
    head = "defaults: {catalog: lake, database: sales}\nsources: [{name: raw.orders, format: parquet, path: /data}]\n"
    (home / "tables.yaml").write_text(f"{head}dynamic_tables:\n" + "\n".join(lines))
    tables = open_project(str(home / "tables.yaml")).load()[0].topological()
    settings = embedded_settings({"AIRFLOW_HOME": str(home)})
    now = datetime.now(UTC)
    with open_workspace(settings) as workspace:
        for table in tables:
            ensure(workspace, table)
        workspace.ledger.record(_refresh(tables[0], now))
    with closing(Database(settings.database_url)) as database, database.transaction() as connection:
        (first,) = connection.execute(select(refreshes)).mappings()
        for table in tables[::2]:
            named = {**first, "table_name": str(table.identifier)}
            ages = [
                {"token": f"{table.identifier}-{age}", "version": age, "started_at": now - timedelta(hours=age)} for age in AGES
            ]
            connection.execute(insert(refreshes), [{**named, **one} for one in ages])


@contextmanager
def _served(home: Path) -> Iterator[httpx.Client]:
    """A server of its own, and who asks it."""
    token = secrets.token_urlsafe(32)
    command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", "serve", "--port", "0"]
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "DYNAMIC_TABLES_DEFINITIONS": str(home / "tables.yaml"),
        "DYNAMIC_TABLES_TOKEN": token,
    }
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as server:
        if server.stderr is None:
            raise RuntimeError("it says nothing")
        address = server.stderr.readline().split()[2].rstrip(";")
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            yield client
        server.terminate()


def _refresh(table: DynamicTable, now: datetime) -> Refresh:
    return Refresh(
        token="first",
        table=table.identifier,
        action=RefreshAction.FULL,
        reason="scheduled",
        state=RefreshState.SUCCEEDED,
        schedule_time=now,
        started_at=now,
        finished_at=now,
        data_timestamp=now,
        version=HISTORY,
    )


def _request(client: httpx.Client, count: int) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        answer = client.get("/v3/dynamic-tables", params={"limit": TABLES})
        milliseconds = (time.perf_counter() - began) * 1000
        if len(answer.json()["tables"]) != count:
            raise RuntimeError(f"{answer.status_code}: {answer.text[:500]}")
        return milliseconds

    return measure


if __name__ == "__main__":
    main()
