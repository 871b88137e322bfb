"""How the tables of a catalog are locked: two who change one wait for each other one after the other only, and are named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.clients.postgres.ddl import TableName
from airflow_dynamic_tables.clients.postgres.server import PostgresError, PostgresServer
from airflow_dynamic_tables.clients.postgres.tables import LOCK_NOT_AVAILABLE, lock_commits, named_holders
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import ConflictError
from tests.contracts.catalogs.samples import DYNAMIC

pytestmark = pytest.mark.postgres


@pytest.fixture
def name(tables_url: str) -> TableName:
    """The name of a table in a schema of its own."""
    name = TableName(f"c_{uuid4().hex[:12]}", "daily")
    with psycopg.connect(tables_url) as connection:
        connection.execute(f"CREATE SCHEMA {name.schema}".encode())
    return name


@pytest.mark.parametrize("change", ["drop", "rename"])
def test_who_waits_for_a_commit_has_not_locked_what_that_writes(tables_url: str, name: TableName, change: str) -> None:
    """Otherwise, of two who declare a table again and drop it, the server would break off one."""
    path = ObjectPath("tables", name.listed)
    with closing(JdbcCatalog("pg", tables_url, lock_timeout=30)) as catalog, ThreadPoolExecutor(1) as executor:
        catalog.create_table(path, replace(DYNAMIC, format="jdbc", columns=()))
        with PostgresServer(tables_url, "catalog pg").transaction(path.database, 30) as opened:
            lock_commits(opened, name)
            if change == "drop":
                changing = executor.submit(catalog.drop_table, path)
            else:
                changing = executor.submit(catalog.rename_table, path, f"{name.schema}.weekly")
            while not opened.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
                assert not changing.done()
            opened.run(f"SELECT 1 FROM {name.entries} FOR UPDATE NOWAIT")
        changing.result()
        assert not catalog.table_exists(path)


def test_who_commits_to_a_table_is_named(tables_url: str, name: TableName) -> None:
    path = ObjectPath("tables", name.listed)
    server = PostgresServer(f"{tables_url}?application_name=nightly", "catalog pg")
    with closing(JdbcCatalog("pg", tables_url, lock_timeout=0.1)) as catalog:
        catalog.create_table(path, replace(DYNAMIC, format="jdbc", columns=()))
        with server.transaction(path.database, 30) as opened:
            lock_commits(opened, name)
            with pytest.raises(ConflictError, match=rf"^{name} is locked by pid \d+ \(user postgres, application nightly, "):
                catalog.drop_table(path)


def test_who_may_be_making_a_table_is_named(tables_url: str, name: TableName) -> None:
    server = PostgresServer(tables_url, "catalog pg")
    with psycopg.connect(tables_url, application_name="psql of bob") as maker:
        maker.execute(f"CREATE TABLE {name.quoted} (n int)".encode())
        with (
            pytest.raises(ConflictError, match=rf"^{name} is being made, as it seems, by pid \d+ \(.*application psql of bob, "),
            named_holders(server, "tables", name, "Making it"),
        ):
            raise PostgresError("it is locked", LOCK_NOT_AVAILABLE, "it is locked")
