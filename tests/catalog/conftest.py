"""Catalogs to test: in memory, in SQLite, in PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.memory import MemoryCatalog
from airflow_dynamic_tables.catalog.sql import SqlCatalog
from airflow_dynamic_tables.database.engine import Database

_NUMBERS = count(1)
SQL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """A database at the newest schema, shared by all tests here: each has a catalog name of its own."""
    url = postgres.create_database("catalogs")
    Database(url).upgrade()
    return url


@pytest.fixture(params=SQL)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> str:
    """Where a ``sql`` catalog keeps its state."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[Callable[[], SqlCatalog]]:
    """Makes one more client of the same, at first empty, ``sql`` catalog."""
    opened: list[SqlCatalog] = []
    name = f"lake{next(_NUMBERS)}"

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


@pytest.fixture(params=["memory", *SQL])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[ReadableWritableCatalog]:
    """An empty catalog of every type, opened."""
    name = f"lake{next(_NUMBERS)}"
    made: ReadableWritableCatalog = MemoryCatalog(name)
    if request.param == "sqlite":
        made = SqlCatalog(name, Database(f"sqlite:///{shutil.copy(empty_state, tmp_path)}"), f"file://{tmp_path}/warehouse")
    elif request.param == "postgres":
        made = SqlCatalog(name, Database(request.getfixturevalue("postgres_url")), f"file://{tmp_path}/warehouse")
    made.open()
    yield made
    made.close()
