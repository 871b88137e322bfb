"""In which order the tables of a catalog are locked: two who change one wait for each other one after the other only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.jdbc.catalog import JdbcCatalog
from airflow_dynamic_tables.clients.postgres.locks import lock_commits
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.contracts.catalogs.samples import DYNAMIC

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("change", ["drop", "rename"])
def test_who_waits_for_a_commit_has_not_locked_what_that_writes(tables_url: str, change: str) -> None:
    """Otherwise, of two who declare a table again and drop it, the server would break off one."""
    name = TableName(f"c_{uuid4().hex[:12]}", "daily")
    path = ObjectPath("tables", name.listed)
    with psycopg.connect(tables_url) as connection:
        connection.execute(f"CREATE SCHEMA {name.schema}".encode())
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
