"""Every catalog and format in which tables can be drafted joins here; the contract suite then runs over it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.contracts.creating.maker import Maker
from tests.support.benches.empty_catalogs import empty_catalog
from tests.support.clock import Clock

_KEYS_STAY = pytest.mark.lacks("other keys")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(
    params=[
        "sql/iceberg",
        "sql/delta",
        pytest.param("hive/delta", marks=pytest.mark.metastore),
        pytest.param("hive/parquet", marks=[pytest.mark.metastore, pytest.mark.large, _KEYS_STAY]),
        pytest.param("hive/orc", marks=[pytest.mark.metastore, pytest.mark.large, _KEYS_STAY]),
        pytest.param("rest/iceberg", marks=pytest.mark.large),
        pytest.param("glue/iceberg", marks=pytest.mark.large),
    ]
)
def maker(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, empty_state: Path) -> Iterator[Maker]:
    """A table that nobody has made yet, in a catalog of its own."""
    kind, _, table_format = request.param.partition("/")
    with empty_catalog(kind, request, tmp_path) as (entry, data):
        file = tmp_path / "catalogs.yaml"
        file.write_text(json.dumps({"catalogs": [{"name": "lake", **entry}]}))
        state = shutil.copy(empty_state, tmp_path / "state.db")
        with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", file), clock) as workspace:
            table = TableIdentifier("lake", f"db_{uuid4().hex}" if kind == "hive" else "sales", "figures")
            yield Maker(workspace, clock, table, table_format, data)
