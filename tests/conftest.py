"""Fixtures that several folders share, and an Airflow home of the test run's own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from postgres_server import PostgresServer, postgres_binaries, running_postgres

from airflow_dynamic_tables.database.engine import Database

# Airflow reads its environment when it is imported: before that of any test module.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


# The same examples on every run: a red build can be repeated, and a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_unconfigure(config: pytest.Config) -> None:  # noqa: ARG001 - pytest's signature
    """Remove the Airflow home."""
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    binaries = postgres_binaries()
    if binaries is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("needs PostgreSQL: apt-get install -y postgresql")
    with running_postgres(binaries) as server:
        yield server


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite state at the newest schema, to copy: migrating one for every test takes longer than the test."""
    path = tmp_path_factory.mktemp("state") / "state.db"
    Database(f"sqlite:///{path}").upgrade()
    return path
