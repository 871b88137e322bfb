"""A workspace whose clock stands still, one with a metastore, and the bench of versions on both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.benches.versions import VersionBench
from tests.support.clock import Clock
from tests.support.metastore import HiveMetastore


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large])])
def version_bench(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[VersionBench]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_state")()
    else:
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}"
    bench = VersionBench(tmp_path, url)
    yield bench
    bench.workspace.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workspace(tmp_path: Path, clock: Clock, empty_state: Path) -> Iterator[Workspace]:
    (tmp_path / "dynamic_tables").mkdir()
    shutil.copy(empty_state, tmp_path / "dynamic_tables" / "state.db")
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)}), clock) as opened:
        yield opened


@pytest.fixture
def hive_workspace(tmp_path: Path, empty_state: Path, hive_metastore: HiveMetastore) -> Iterator[Workspace]:
    """A ``sql`` catalog ``lake``, and the metastore as catalog ``hms``."""
    file = tmp_path / "catalogs.yaml"
    where = f"{{uri: '{hive_metastore.uri}', warehouse: 'file://{tmp_path}/hive'}}"
    file.write_text(f"catalogs:\n- {{name: lake, type: sql}}\n- {{name: hms, type: hive, connection-params: {where}}}\n")
    state = shutil.copy(empty_state, tmp_path / "state.db")
    with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", file)) as opened:
        yield opened
