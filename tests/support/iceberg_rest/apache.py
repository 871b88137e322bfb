"""Iceberg's own REST catalog, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog

from tests.support.downloads import jars
from tests.support.ports import free_port

_PROGRAM = Path(__file__).with_name("apache_server.py")
_PATIENCE = 120
"""Seconds that a busy machine may take to start it."""


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
def running_apache_rest(folder: Path) -> Iterator[ApacheRest]:
    """Start a server whose state and warehouse lie in a folder."""
    port = free_port()
    classpath = [str(jar) for name in ("iceberg-rest", "sqlite-jdbc") for jar in jars(name)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(folder), str(port), *classpath],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _answers(port):
            assert process.poll() is None, (folder / "server.log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the REST catalog does not start"
            time.sleep(0.1)
        yield ApacheRest(f"http://127.0.0.1:{port}", f"file://{folder}/warehouse")
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
