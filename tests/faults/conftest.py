"""A site for refreshes that something happens to, on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import MetaData, text

from airflow_dynamic_tables.clients.database.engine import VERSION_TABLE, Database
from tests.support.faults.victims import Site


@pytest.fixture(scope="session")
def state_of_faults(postgres_state: Callable[[], str]) -> str:
    """The URL of the database that the sites share, one after the other."""
    return Database(postgres_state()).url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """An empty site."""
    if request.param == "delta":
        shutil.copy(request.getfixturevalue("empty_state"), tmp_path / "state.db")
        return Site(tmp_path, f"sqlite:///{tmp_path}/state.db", format="delta")
    if request.param == "postgres":
        url: str = request.getfixturevalue("state_of_faults")
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
