"""Clients of a ``sql`` catalog, on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from tests.support.benches.catalogs import new_name


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> str:
    """Where a ``sql`` catalog keeps its state."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    return str(request.getfixturevalue("catalogs_url"))


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[Callable[[], SqlCatalog]]:
    """Makes one more client of the same, at first empty, ``sql`` catalog."""
    opened: list[SqlCatalog] = []
    name = new_name()

    def connect() -> SqlCatalog:
        opened.append(SqlCatalog(name, Database(database_url), f"file://{tmp_path}/warehouse"))
        opened[-1].open()
        return opened[-1]

    yield connect
    for catalog in opened:
        catalog.close()


@pytest.fixture
def sql_catalog(client: Callable[[], SqlCatalog]) -> SqlCatalog:
    """An empty ``sql`` catalog."""
    return client()
