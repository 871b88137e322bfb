"""A Hive metastore of the test run's own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.clients.metastore.client import TYPES_STAY
from tests.support.ports import free_port

_PROGRAM = Path(__file__).parents[2] / "scripts" / "metastore.py"
_PATIENCE = 240
"""Seconds that a busy machine may take to start it."""


@dataclass
class HiveMetastore:
    """A metastore on the loopback interface; stopped and started again it still knows everything.

    That of a database server lets columns have any types, that of Derby has Hive's default.
    """

    folder: Path
    port: int
    jdbc_url: str | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> str:
        return f"file://{self.folder}/warehouse"

    def start(self) -> None:
        command = [sys.executable, str(_PROGRAM), str(self.folder), str(self.port)]
        with (self.folder / "metastore.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *([self.jdbc_url, f"{TYPES_STAY}=false"] if self.jdbc_url else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "metastore.log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the metastore does not answer"
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it; its Java process ends with it."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None
        while self._answers():
            time.sleep(0.1)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False


@contextmanager
def running_metastore(jdbc_url: str | None = None) -> Iterator[HiveMetastore]:
    """Start a metastore on a free port; its data are gone afterwards."""
    metastore = HiveMetastore(Path(tempfile.mkdtemp(prefix="metastore-")), free_port(), jdbc_url)
    try:
        metastore.start()
        yield metastore
    finally:
        metastore.stop()
        shutil.rmtree(metastore.folder, ignore_errors=True)
