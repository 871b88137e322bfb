"""Every format that stages joins here with a factory; the contract suite then runs over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from postgres_server import PostgresServer
from staging_bench import Bench

from airflow_dynamic_tables.catalog.sql import SqlCatalog
from airflow_dynamic_tables.database.engine import Database
from airflow_dynamic_tables.staging.iceberg import IcebergStaging


@pytest.fixture(params=["iceberg/sqlite", pytest.param("iceberg/postgres", marks=pytest.mark.postgres)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "iceberg/postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = Database(server.create_database(f"staging_{uuid4().hex}"))
        database.upgrade()
    else:
        database = Database(f"sqlite:///{tmp_path}/state.db")
    catalog = SqlCatalog("lake", database, f"file://{tmp_path}/warehouse")
    catalog.open()
    yield Bench(IcebergStaging(catalog.iceberg))
    catalog.close()
