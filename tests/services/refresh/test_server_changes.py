"""Tables over a source in PostgreSQL with a version column: only days with written rows are refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions
from airflow_dynamic_tables.runners.spark_home import variables_set
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support import jobs
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.usefixtures("postgres_driver")]

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
  - {name: shop.DATABASE.orders, format: jdbc, partitioned_by: [day], version_column: xmin}
dynamic_tables:
  - name: revenue
    refresh_mode: incremental
    partitioned_by: [day]
    query: SELECT day, sum(amount) AS revenue FROM shop.DATABASE.orders WHERE day >= DATE '2024-03-02' GROUP BY day
"""
REVENUE = TableIdentifier("lake", "sales", "revenue")


@dataclass
class Shop:
    """Orders of five days in a server, and their revenue in a lake."""

    workspace: Workspace
    folder: Path
    server: psycopg.Connection
    spark: SparkSession
    plans: list[RefreshPlan] = field(default_factory=list)
    time: datetime = datetime(2024, 4, 1, tzinfo=UTC)

    def refresh(self) -> list[str]:
        """Refresh the table as scheduled; return the refreshed days."""
        conventions = Conventions(names_scope({}, self.workspace.settings.catalogs_file))
        definitions = load_definitions(self.folder / "tables.yaml", conventions=conventions)
        self.time += timedelta(days=1)
        self.plans.clear()
        token = uuid4().hex
        request = RefreshRequest(definitions.tables[REVENUE], definitions.sources, self.time, token, token, is_scheduled=True)
        run(self.workspace, request, self._submit)
        return sorted(spec.get("day") or "all" for plan in self.plans for spec in plan.partitions)

    def _submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        with variables_set(job_environment(self.workspace, plan)):
            jobs.refresh(self.spark, plan)

    def check(self) -> None:
        """Check that the table equals its query."""
        found = self.server.execute("SELECT day, sum(amount)::bigint FROM orders WHERE day >= '2024-03-02' GROUP BY day")
        rows = self.workspace.existing_table(REVENUE).sample(100)
        assert {row["day"]: row["revenue"] for row in rows} == dict(found.fetchall())


@pytest.fixture
def shop(tmp_path: Path, postgres: PostgresServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", url)
    (tmp_path / "catalogs.yaml").write_text(CATALOGS)
    (tmp_path / "tables.yaml").write_text(TABLES.replace("DATABASE", url.rpartition("/")[2]))
    settings = embedded_settings({"AIRFLOW_HOME": str(tmp_path / "airflow")}, tmp_path / "catalogs.yaml")
    with psycopg.connect(url, autocommit=True) as server, open_workspace(settings) as workspace:
        server.execute("CREATE TABLE orders (id bigint, day date, amount bigint)")
        server.execute("INSERT INTO orders SELECT i, DATE '2024-03-01' + i % 5, i FROM generate_series(0, 14) i")
        yield Shop(workspace, tmp_path, server, spark)


def test_days_with_written_rows_are_refreshed(shop: Shop) -> None:
    shop.refresh()
    shop.check()
    assert shop.refresh() == [], "nothing changed"
    shop.server.execute("UPDATE orders SET amount = 100 WHERE id = 3")
    shop.server.execute("INSERT INTO orders VALUES (99, '2024-03-05', 1)")
    assert shop.refresh() == ["2024-03-04", "2024-03-05"]
    shop.check()
    shop.server.execute("DELETE FROM orders WHERE day = '2024-03-03'")
    assert shop.refresh() == ["2024-03-03"]
    shop.check()
    shop.server.execute("UPDATE orders SET amount = 100 WHERE day = '2024-03-01'")
    assert shop.refresh() == [], "the query excludes that day"


@pytest.mark.large
@pytest.mark.parametrize("seed", range(3))
def test_the_table_equals_its_query_after_any_change(shop: Shop, seed: int) -> None:
    chance = Random(seed)
    changes = [
        "UPDATE orders SET amount = amount + 1 WHERE id = {id}",
        "UPDATE orders SET day = DATE '2024-03-01' + {day} WHERE id = {id}",
        "INSERT INTO orders VALUES ({id}, DATE '2024-03-01' + {day}, 7)",
        "DELETE FROM orders WHERE id = {id}",
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint USING amount * 2",
        "VACUUM FULL orders",
        "TRUNCATE orders; INSERT INTO orders VALUES (1, '2024-03-04', 5)",
    ]
    for _ in range(12):
        for change in chance.choices(changes, [6, 4, 6, 4, 1, 1, 1], k=chance.randint(0, 2)):
            shop.server.execute(change.format(id=chance.randrange(15), day=chance.randrange(6)))
        shop.refresh()
        shop.check()
