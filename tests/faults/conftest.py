"""A site for refreshes that something happens to, on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import MetaData, text

from airflow_dynamic_tables.clients.database.engine import VERSION_TABLE, Database
from tests.support.faults.victims import Site
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_state(postgres: PostgresServer) -> str:
    """The URL of a database at the newest schema."""
    database = Database(postgres.create_database("faults"))
    database.upgrade()
    return database.url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """An empty site."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_state")
        _empty(Database(url))
        return Site(tmp_path, url)
    shutil.copy(request.getfixturevalue("empty_state"), tmp_path / "state.db")
    return Site(tmp_path, f"sqlite:///{tmp_path}/state.db")


def _empty(database: Database) -> None:
    with database.transaction() as connection:
        found = MetaData()
        found.reflect(connection)
        for name in found.tables.keys() - {VERSION_TABLE}:
            connection.execute(text(f'TRUNCATE TABLE "{name}"'))
