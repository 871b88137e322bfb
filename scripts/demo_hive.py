"""``make demo CATALOG=hive``: the same tables as Parquet and ORC, in a Hive metastore of the demo's own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from demo_home import DAGS, LOGS

METASTORE = Path(__file__).with_name("metastore.py")
FORMATS = {"customers": "orc", "revenue": "parquet"}
"""Format of the tables by the file that defines them."""
START_SECONDS = 120


@contextmanager
def running_metastore(folder: Path) -> Iterator[str]:
    """Start the metastore on a free port; its URI. What it knows stays in the folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = LOGS / "metastore.log"
    with log.open("wb") as stream:
        command = [sys.executable, str(METASTORE), str(folder), str(port)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The Hive metastore does not start; its log is {log}.")
            time.sleep(0.1)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.terminate()  # its Java ends with it
        process.wait()


def write_hive_dags(uri: str, home: Path) -> Path:
    """The demo's DAGs folder once more, with tables of the metastore."""
    dags = home / "dags"
    shutil.rmtree(dags, ignore_errors=True)
    shutil.copytree(DAGS, dags, ignore=shutil.ignore_patterns("__pycache__"))
    catalog = {"name": "lake", "type": "hive", "is-default": True, "connection-params": {"uri": uri}}
    _write(dags / "catalogs.yaml", {"catalogs": [catalog]})
    for file in (dags / "definitions").glob("*.yaml"):
        content = yaml.safe_load(file.read_text())
        content["defaults"]["format"] = FORMATS.get(file.stem, "parquet")
        for source in content.get("sources", ()):
            source["path"] = str((DAGS / "definitions" / source["path"]).resolve())
        _write(file, content)
    return dags


def _write(file: Path, content: Any) -> None:
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
