"""Tables of a PostgreSQL source that loses its rows for all snapshots while a job reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions
from airflow_dynamic_tables.exceptions import CommitRejectedError
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.postgres import PostgresServer
from tests.support.pyarrow_job import write_numbers

pytestmark = pytest.mark.postgres

CATALOGS = """
catalogs:
  - name: lake
    type: sql
    is-default: true
    connection-params: {url: 'sqlite:///lake.db', warehouse: lake}
  - {name: shop, type: jdbc, conn-id: shop_db}
"""
TABLES = """
defaults: {catalog: lake, database: sales, freshness: 1 day}
sources:
  - {name: shop.DATABASE.orders, format: jdbc}
  - {name: shop.DATABASE.events, format: jdbc}
  - {name: shop.DATABASE.recent, format: jdbc}
  - {name: shop.DATABASE.totals, format: jdbc}
dynamic_tables:
  - name: numbers
    query: SELECT o.x FROM shop.DATABASE.orders o, shop.DATABASE.events, shop.DATABASE.recent, shop.DATABASE.totals
"""
NUMBERS = TableIdentifier("lake", "sales", "numbers")
SCHEMA = """
CREATE TABLE orders (x bigint);
CREATE TABLE events (x bigint) PARTITION BY LIST (x);
CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2);
CREATE TABLE other (x bigint);
CREATE VIEW recent AS SELECT * FROM other;
CREATE MATERIALIZED VIEW totals AS SELECT * FROM other;
"""


@dataclass
class Shop:
    """Tables in a server, and one over them in a lake."""

    workspace: Workspace
    folder: Path
    server: psycopg.Connection

    def refresh(self, meanwhile: str) -> Version | Skipped:
        """Refresh the table, while the server runs statements."""

        def submit(plan: RefreshPlan) -> None:
            self.server.execute(meanwhile.encode())
            write_numbers(plan)

        conventions = Conventions(names_scope({}, self.workspace.settings.catalogs_file))
        definitions = load_definitions(self.folder / "tables.yaml", conventions=conventions)
        token = uuid4().hex
        request = RefreshRequest(definitions.tables[NUMBERS], definitions.sources, datetime(2024, 4, 1, tzinfo=UTC), token, token)
        return run(self.workspace, request, submit)


@pytest.fixture
def shop(tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", url)
    (tmp_path / "catalogs.yaml").write_text(CATALOGS)
    (tmp_path / "tables.yaml").write_text(TABLES.replace("DATABASE", url.rpartition("/")[2]))
    settings = embedded_settings({"AIRFLOW_HOME": str(tmp_path / "airflow")}, tmp_path / "catalogs.yaml")
    with psycopg.connect(url, autocommit=True) as server, open_workspace(settings) as workspace:
        server.execute(SCHEMA.encode())
        yield Shop(workspace, tmp_path, server)


def test_a_table_that_loses_rows_of_the_snapshot(shop: Shop) -> None:
    for statement in (
        "TRUNCATE orders",
        "TRUNCATE orders; INSERT INTO orders VALUES (1)",
        "ALTER TABLE orders ALTER x TYPE numeric",
        "ALTER TABLE orders RENAME TO old; CREATE TABLE orders AS SELECT 1 AS x",
    ):
        with pytest.raises(
            CommitRejectedError, match=r"shop\..*\.orders was truncated, rewritten or made again after the snapshot"
        ):
            shop.refresh(statement)
    for statement in ("TRUNCATE events_1", "TRUNCATE events", "DROP TABLE events_2"):
        with pytest.raises(CommitRejectedError, match=r"shop\..*\.events was truncated"):
            shop.refresh(statement)
    assert isinstance(shop.refresh("SELECT 1"), Version)


def test_changes_that_a_snapshot_hides(shop: Shop) -> None:
    for statement in (
        "INSERT INTO orders VALUES (1), (2); DELETE FROM orders WHERE x = 1; UPDATE orders SET x = 3",
        "CREATE TABLE events_3 PARTITION OF events FOR VALUES IN (3); ALTER TABLE orders ADD y bigint",
        "REFRESH MATERIALIZED VIEW totals",
    ):
        assert isinstance(shop.refresh(statement), Version)
