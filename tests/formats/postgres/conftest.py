"""A table of its own for every test, in one database that they share, and connections of others to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.benches.jdbc import JdbcBench, jdbc_bench

Others = Callable[[str], psycopg.Connection]


@pytest.fixture
def bench(tables_url: str, tmp_path: Path) -> JdbcBench:
    return jdbc_bench(tables_url, tmp_path)


@pytest.fixture
def hasty(tables_url: str, tmp_path: Path) -> JdbcBench:
    """A table whose commits wait for nobody longer than a moment."""
    return jdbc_bench(tables_url, tmp_path, lock_timeout=0.3)


@pytest.fixture
def others(tables_url: str) -> Iterator[Others]:
    """Makes a connection of somebody else, by the name of an application; all are closed in the end."""
    made: list[psycopg.Connection] = []

    def connect(application: str) -> psycopg.Connection:
        made.append(psycopg.connect(tables_url, application_name=application))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()
