"""Every catalog and format whose tables are refreshed joins here; the contract suite then runs over it."""

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
from tests.contracts.refreshing.place import MARCH, Place
from tests.support.benches.empty_catalogs import empty_catalog
from tests.support.clock import Clock
from tests.support.postgres import PostgresServer

POSTGRES = pytest.param(
    "postgres/jdbc",
    marks=[
        pytest.mark.postgres,
        pytest.mark.lacks("snapshots", "states", "purge", "dropped rows", "a table before its first version"),
    ],
)
"""A table without files and snapshots, which its first commit makes."""


@pytest.fixture(
    params=[
        "sql/iceberg",
        "sql/delta",
        pytest.param("rest/iceberg", marks=pytest.mark.lacks("purge")),  # the server names folders as their tables
        POSTGRES,
        pytest.param("hive/delta", marks=[pytest.mark.metastore, pytest.mark.large]),
        pytest.param("hive/parquet", marks=pytest.mark.metastore),
        pytest.param("hive/orc", marks=[pytest.mark.metastore, pytest.mark.large]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[Place]:
    """A table that was never refreshed, in a catalog of its own."""
    kind, _, table_format = request.param.partition("/")
    clock = Clock()
    clock.time = MARCH
    with empty_catalog(kind, request, tmp_path) as (entry, _):
        file = tmp_path / "catalogs.yaml"
        file.write_text(json.dumps({"catalogs": [{"name": "lake", **entry}]}))
        state = shutil.copy(empty_state, tmp_path / "state.db")
        url = entry["connection-params"].get("url", "")
        databases = {"hive": f"db_{uuid4().hex}", "postgres": url.rpartition("/")[2]}
        table = TableIdentifier("lake", databases.get(kind, "sales"), "figures")
        with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", file), clock) as workspace:
            place = Place(workspace, clock, tmp_path, table, table_format, url)
            if kind == "postgres":
                server: PostgresServer = request.getfixturevalue("postgres")
                place.binaries = server.binaries
            yield place
