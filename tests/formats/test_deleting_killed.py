"""The maintenance killed between listing and deleting, and in the middle of deleting: nothing of a version is lost."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.versions import Retention
from tests.support.benches.staging import Bench

KILLED = """
import os, signal, sys
from datetime import UTC, datetime, timedelta
from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable

event, count = sys.argv[3], int(sys.argv[4])
def die(name, arguments):
    global count
    if name == event:
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
catalog = SqlCatalog("lake", Database(sys.argv[1]), sys.argv[2])
catalog.open()
sys.addaudithook(die)
IcebergTable(catalog.stores()[0], ObjectPath("sales", "revenue")).delete_orphans(
    datetime.now(UTC) + timedelta(days=30), lambda: ()
)
"""


@pytest.mark.sampled
@pytest.mark.parametrize(("event", "count"), [("airflow_dynamic_tables.listed", 1), ("os.remove", 3)], ids=["listed", "deleting"])
def test_killed_while_deleting(tmp_path: Path, event: str, count: int) -> None:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    bench = Bench(catalog.stores()[0])
    later = datetime.now(UTC) + timedelta(days=30)
    for number in range(4):
        bench.refresh({"1": [number], "2": [2]})
    assert bench.table.expire(Retention(2, timedelta(days=7)), later, tuple) == 2
    arguments = [f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse", event, str(count)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert bench.rows() == {"1": [3], "2": [2]}
    assert bench.table.delete_orphans(later, lambda: ()).files > 0
    assert bench.table.delete_orphans(later, lambda: ()).files == 0
    kept = [sorted(row["n"] for row in bench.table.sample(10, number)) for number in (3, 4)]
    assert kept == [[2, 2], [2, 3]]
    catalog.close()
