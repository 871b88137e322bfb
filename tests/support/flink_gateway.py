"""A SQL gateway of Flink with its embedded scheduler, which refreshes materialized tables in a catalog of Paimon."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from py4j.protocol import Py4JError

from tests.support.flink import configuration, running_cluster
from tests.support.java import Java, running_java
from tests.support.ports import free_port
from tests.support.processes import wait_until

_SETTINGS = {
    "sql-gateway.endpoint.type": "rest",
    "sql-gateway.endpoint.rest.address": "127.0.0.1",
    "table.catalog-store.kind": "file",
    "table.dml-sync": "false",
    "workflow-scheduler.type": "embedded",
}


class FlinkError(Exception):
    """A statement failed; the message is the last cause that Flink names."""


@dataclass(frozen=True)
class FlinkGateway:
    """A session of the gateway; Paimon's catalog is its current one."""

    java: Java
    client: httpx.Client
    cluster: str
    session: str

    def sql(self, statement: str) -> list[list[Any]]:
        """Run a statement, and return its rows. One that writes is done when this returns."""
        operation = self._call("POST", f"{self.session}/statements", {"statement": statement})["operationHandle"]
        rows = self._rows(operation)
        if statement.startswith(("INSERT", "CREATE TABLE")) and rows != [["OK"]]:
            assert self.state_of(rows[0][0]) == "FINISHED", statement
        return rows

    def begin_refresh(self, table: str, partition: str = "") -> str:
        """Refresh a materialized table by hand, and return the job."""
        return str(self.sql(f"ALTER MATERIALIZED TABLE {table} REFRESH {partition}")[0][0])

    def refresh(self, table: str, partition: str = "") -> str:
        """Refresh a materialized table by hand, and return how its job ended."""
        return self.state_of(self.begin_refresh(table, partition))

    def refresh_on_schedule(self, table: str, at: str) -> str:
        """Refresh as the scheduler does at a time, and return how the job ended."""
        identifier = f"`lake`.`{table.replace('.', '`.`')}`"
        asked = {"isPeriodic": True, "scheduleTime": at}
        called = self._call("POST", f"{self.session}/materialized-tables/{identifier}/refresh", asked)
        return self.state_of(self._rows(called["operationHandle"])[0][0])

    def snapshots(self, table: str) -> int:
        """The number of versions that a table has."""
        database, _, name = table.partition(".")
        return int(self.sql(f"SELECT count(*) FROM {database}.`{name}$snapshots`")[0][0])

    def state_of(self, job: str) -> str:
        """How a job ended, after its end."""
        found = ""

        def has_ended() -> bool:
            nonlocal found
            found = httpx.get(f"{self.cluster}/jobs/{job}", timeout=60).json().get("state", "")
            return found in ("FINISHED", "FAILED", "CANCELED")

        wait_until(has_ended, f"the end of job {job}")
        return found

    def _rows(self, operation: str) -> list[list[Any]]:
        path, rows = f"{self.session}/operations/{operation}/result/0?rowFormat=JSON", []
        while path:
            answer = self._call("GET", path)
            if answer["resultType"] == "NOT_READY":
                time.sleep(0.02)
                continue
            rows += [row["fields"] for row in answer["results"]["data"]]
            path = "" if answer["resultType"] == "EOS" else answer.get("nextResultUri", "")
        return rows

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self.client.request(method, path, json=body)
        if answer.is_error:
            said = "\n".join(answer.json()["errors"])
            causes = [line for line in said.splitlines() if line.startswith("Caused by: ")]
            raise FlinkError(causes[-1] if causes else said)
        return answer.json()


@contextmanager
def running_flink_gateway(folder: Path, parallelism: int = 1) -> Iterator[FlinkGateway]:
    """Start a gateway and a cluster in one process; catalogs and tables stay in the folder."""
    (folder / "catalogs").mkdir(exist_ok=True)
    used = ("flink-2.1", "paimon-flink-2.1", "flink-json", "flink-parquet")
    port = free_port()
    own = {
        "parallelism.default": str(parallelism),
        "sql-gateway.endpoint.rest.port": str(port),
        "table.catalog-store.file.path": (folder / "catalogs").as_uri(),
    }
    with running_java(*used) as java, running_cluster(java.jvm) as settings:
        gateway = _gateway(java.jvm, {**settings, **_SETTINGS, **own})
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
                session = client.post("/v3/sessions", json={"properties": {"execution.runtime-mode": "batch"}}).json()
                path = f"/v3/sessions/{session['sessionHandle']}"
                opened = FlinkGateway(java, client, f"http://127.0.0.1:{settings['rest.port']}", path)
                lake = f"'type' = 'paimon', 'warehouse' = '{folder.as_uri()}/lake'"
                opened.sql(f"CREATE CATALOG IF NOT EXISTS lake WITH ({lake})")
                opened.sql("USE CATALOG lake")
                yield opened
        finally:
            with suppress(Py4JError):  # a test may have killed it
                gateway.stop()


def _gateway(jvm: Any, settings: Mapping[str, str]) -> Any:
    flink = jvm.org.apache.flink.table.gateway
    context = flink.service.context.DefaultContext(configuration(jvm, settings), jvm.java.util.ArrayList())
    gateway = flink.SqlGateway(context.getFlinkConfig(), flink.service.session.SessionManager.create(context))
    gateway.start()
    return gateway
