"""The bench of versions, on both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.clients.database.engine import Database
from tests.support.benches.versions import VersionBench
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def version_bench(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[VersionBench]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database(f"versions_{uuid4().hex}")
        Database(url).upgrade()
    else:
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}"
    bench = VersionBench(tmp_path, url)
    yield bench
    bench.workspace.close()
