"""A site for refreshes that something happens to, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import MetaData, text

from airflow_dynamic_tables.clients.database.engine import VERSION_TABLE, Database
from tests.support.benches.catalogs import empty_hive_catalog
from tests.support.benches.empty_catalogs import empty_catalog
from tests.support.faults.victims import REVENUE, Site
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def state_of_faults(postgres_state: Callable[[], str]) -> str:
    """The URL of the database that the sites share, one after the other."""
    return Database(postgres_state()).url


@pytest.fixture(scope="session")
def sales_url(postgres: PostgresServer) -> str:
    """The URL of the database with the tables of the sites, one after the other."""
    return postgres.create_database(REVENUE.database)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large])])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """An empty site: Iceberg tables in a database of this name, ``delta`` or ``jdbc``, or ``catalog/format``."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("state_of_faults")
        _empty(Database(url))
        yield Site(tmp_path, url)
        return
    state = f"sqlite:///{shutil.copy(request.getfixturevalue('empty_state'), tmp_path / 'state.db')}"
    kind, _, table_format = request.param.partition("/")
    if kind == "jdbc":
        yield jdbc_site(tmp_path, state, request.getfixturevalue("sales_url"))
    elif not table_format:
        yield Site(tmp_path, state, format="delta" if kind == "delta" else "iceberg")
    else:
        if kind == "hive":
            empty_hive_catalog("lake", request.getfixturevalue("hive_metastore")).close()
        with empty_catalog(kind, request, tmp_path) as (entry, data):
            catalogs = tmp_path / "catalogs.yaml"
            catalogs.write_text(json.dumps({"catalogs": [{"name": "lake", "is-default": True, **entry}]}))
            yield Site(tmp_path, state, catalogs=catalogs, format=table_format, data=data.as_uri())


def jdbc_site(folder: Path, state: str, url: str, through: str = "") -> Site:
    """A site whose tables are in an empty database.

    :param through: the URL by which the site sees it, if that is another one.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    catalogs = folder / "catalogs.yaml"
    parameters = f"{{url: '{through or url}', lock-timeout: 5}}"
    catalogs.write_text(f"catalogs: [{{name: lake, type: jdbc, is-default: true, connection-params: {parameters}}}]")
    return Site(folder, state, catalogs=catalogs, format="jdbc", tables_url=url)


def _empty(database: Database) -> None:
    with database.transaction() as connection:
        found = MetaData()
        found.reflect(connection)
        for name in found.tables.keys() - {VERSION_TABLE}:
            connection.execute(text(f'TRUNCATE TABLE "{name}"'))
