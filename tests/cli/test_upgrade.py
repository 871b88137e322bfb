"""The state of the first release: its tables, versions, history and quarantine, taken over by this one.

``state-0.1.0.zip`` is what five refreshes of 0.1.0 left under the Airflow home, with the database as text. Only the path of that
home was replaced, by one that is as long as any, so that a test can write its own into every file.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4
from zipfile import ZipFile

import psycopg
import pytest

from tests.cli.conftest import Run

STATE = Path(__file__).with_name("state-0.1.0.zip")
HOME = "/srv/" + 195 * "h"

DEFINITIONS = """\
defaults: {catalog: lake, database: sales}
sources:
  - name: raw.orders
    format: csv
    path: ../../data/orders.csv
    schema: ds STRING, country STRING, amount INT
    options: {header: true}
dynamic_tables:
  - name: daily_revenue
    comment: Revenue per day and country
    freshness: 1 day
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    query: |
      SELECT ds, country, sum(amount) AS revenue
      FROM raw.orders
      GROUP BY ds, country
  - name: revenue
    comment: Revenue per country, all time
    freshness: 1 day
    versions_to_keep: 5
    expectations:
      - {name: many, row_count: {min: 3}}
    query: SELECT country, sum(revenue) AS revenue FROM daily_revenue GROUP BY country
  - name: large_orders
    freshness: 1 day
    expectations:
      - {name: many, row_count: {min: 5}}
    query: SELECT * FROM raw.orders
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large])])
def upgraded(request: pytest.FixtureRequest, project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the state that 0.1.0 left; a server's database is upgraded by its command, SQLite by any."""
    (project / "dags" / "definitions" / "sales.yaml").write_text(DEFINITIONS)
    (project / "data" / "orders.csv").write_text("ds,country,amount\n2024-01-01,DE,10\n2024-01-01,FR,7\n2024-01-02,DE,4\n")
    home = project / ((len(HOME) - len(str(project)) - 1) * "h")
    assert len(str(home)) == len(HOME)
    with ZipFile(STATE) as state:
        for name in state.namelist():
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(state.read(name).replace(HOME.encode(), str(home).encode()))
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").create_database(f"state_{uuid4().hex}")
        _fill(url, (home / "state.sql").read_text())
        monkeypatch.setenv("DYNAMIC_TABLES_DATABASE_URL", url)
        assert "run: dynamic-tables db upgrade" in dynamic_tables("list").err
        assert dynamic_tables("db", "upgrade").code == 0
    else:
        with closing(sqlite3.connect(home / "dynamic_tables" / "state.db")) as database:
            database.executescript((home / "state.sql").read_text())
    return project


def _fill(url: str, dump: str) -> None:
    """Fill a database of PostgreSQL as 0.1.0 did: it had the same columns there, with times of a zone."""
    statements = dump.replace("DATETIME", "TIMESTAMP WITH TIME ZONE").encode()
    with psycopg.connect(url, autocommit=True, options="-c timezone=UTC") as connection:
        connection.execute(statements)


@pytest.mark.usefixtures("upgraded")
class TestStateOfTheFirstRelease:
    def test_tables_versions_and_history_are_there(self, dynamic_tables: Run) -> None:
        tables = {each["identifier"]: each for each in json.loads(dynamic_tables("list", "-o", "json").out)}
        assert {name: table["version"] for name, table in tables.items()} == {
            "lake.sales.daily_revenue": 2,
            "lake.sales.large_orders": None,
            "lake.sales.revenue": 1,
        }
        history = json.loads(dynamic_tables("history", "-o", "json").out)
        assert [(each["table"], each["state"], each["rows"]) for each in history] == [
            ("lake.sales.revenue", "QUARANTINED", 2),
            ("lake.sales.large_orders", "QUARANTINED", 3),
            ("lake.sales.revenue", "SUCCEEDED", 2),
            ("lake.sales.daily_revenue", "SUCCEEDED", 1),
            ("lake.sales.daily_revenue", "SUCCEEDED", 2),
        ]

    def test_its_rows_are_read_and_an_earlier_version_is_restored(self, dynamic_tables: Run) -> None:
        def rows() -> list[dict[str, object]]:
            found = json.loads(dynamic_tables("show", "daily_revenue", "--rows", "10", "-o", "json").out)["first_rows"]
            return sorted(found, key=lambda row: (row["ds"], row["country"]))

        first_day = [
            {"ds": "2024-01-01", "country": "DE", "revenue": 10},
            {"ds": "2024-01-01", "country": "FR", "revenue": 7},
        ]
        assert rows() == [*first_day, {"ds": "2024-01-02", "country": "DE", "revenue": 4}]
        assert dynamic_tables("rollback", "daily_revenue", "--to", "1").code == 0
        assert rows() == first_day

    def test_what_it_left_in_quarantine_is_published(self, dynamic_tables: Run) -> None:
        token = json.loads(dynamic_tables("history", "revenue", "-o", "json").out)[0]["token"]
        assert dynamic_tables("publish", token).code == 0
        shown = json.loads(dynamic_tables("show", "revenue", "--rows", "10", "-o", "json").out)
        assert (shown["status"]["version"], len(shown["first_rows"])) == (2, 2)

    def test_a_first_refresh_in_quarantine_can_only_be_aborted(self, dynamic_tables: Run) -> None:
        """0.1.0 created a table at its first commit, this release creates it before: there is none to publish into."""
        token = json.loads(dynamic_tables("history", "large_orders", "-o", "json").out)[0]["token"]
        refused = dynamic_tables("publish", token)
        assert refused.code == 1
        assert "There is no table lake.sales.large_orders to publish into" in refused.err
        assert "the refresh is of release 0.1.0, which created a table only at its first commit" in refused.err
        assert f"refresh again: dynamic-tables abort {token}" in refused.err
        assert dynamic_tables("abort", token).code == 0
        assert json.loads(dynamic_tables("history", "large_orders", "-o", "json").out)[0]["state"] == "REJECTED"

    def test_its_definitions_are_registered_without_a_refresh(self, dynamic_tables: Run) -> None:
        """0.1.0 kept no definitions, so ``diff`` cannot know which rows they made."""
        differences = json.loads(dynamic_tables("diff", "-o", "json").out)
        assert {each["identifier"]: each["change"] for each in differences} == {
            "lake.sales.daily_revenue": "DATA",
            "lake.sales.large_orders": "METADATA",
            "lake.sales.revenue": "DATA",
        }
        assert dynamic_tables("apply").code == 0
        described = json.loads(dynamic_tables("describe", "lake.sales.revenue", "-o", "json").out)
        assert described["value"]["definition"]["freshness"] == "1 day"
        assert json.loads(dynamic_tables("show", "revenue", "-o", "json").out)["status"]["version"] == 1

    def test_the_maintenance_leaves_what_tables_have(self, dynamic_tables: Run, upgraded: Path) -> None:
        before = sorted(upgraded.rglob("*.parquet"))
        assert dynamic_tables("gc").code == 0
        assert sorted(upgraded.rglob("*.parquet")) == before
