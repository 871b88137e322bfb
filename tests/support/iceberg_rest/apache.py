"""Iceberg's own REST catalog, in a process of its own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog

from tests.support.downloads import jars
from tests.support.ports import free_port
from tests.support.processes import running_server

_PROGRAM = Path(__file__).with_name("apache_server.py")


@dataclass(frozen=True)
class ApacheRest:
    """A server that runs, and its warehouse, whose folders it names as the tables."""

    uri: str
    warehouse: str

    def empty(self) -> None:
        catalog = RestCatalog("emptied", uri=self.uri)
        for namespace in catalog.list_namespaces():
            for table in catalog.list_tables(namespace):
                catalog.drop_table(table)
            catalog.drop_namespace(namespace)
        catalog.close()


@contextmanager
def running_apache_rest(folder: Path, port: int = 0) -> Iterator[ApacheRest]:
    """Start a server whose state and warehouse lie in a folder, on any port by default."""
    port = port or free_port()
    classpath = [str(jar) for name in ("iceberg-rest", "sqlite-jdbc") for jar in jars(name)]
    command = [sys.executable, str(_PROGRAM), str(folder), str(port), *classpath]
    with running_server("the REST catalog", command, folder / "server.log", lambda: _answers(port)):
        yield ApacheRest(f"http://127.0.0.1:{port}", f"file://{folder}/warehouse")


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
