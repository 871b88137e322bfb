"""Changing tables over HTTP."""

from __future__ import annotations

from dataclasses import replace

import httpx

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.entries import deployed_by, mark
from airflow_dynamic_tables.services.workspace import utc_now
from tests.support.gateway import Served
from tests.support.pyarrow_job import write_numbers

DAILY = "/v3/dynamic-tables/lake.sales.daily"


def _register(gateway: Served) -> None:
    tables = open_project(str(gateway.definitions)).load()[0].tables
    with gateway.workspace() as workspace:
        ensure(workspace, tables[TableIdentifier("lake", "sales", "daily")])


def test_a_table_is_suspended_and_resumed(gateway: Served, client: httpx.Client) -> None:
    _register(gateway)
    for before in ("INITIALIZING", "SUSPENDED"):
        change = client.post(f"{DAILY}/suspend", json={"reason": "moved"}).json()
        assert (change["before"], change["after"], change["reason"]) == (before, "SUSPENDED", "moved")
    assert client.get(DAILY).json()["suspendedBecause"] == "moved"
    assert client.post("/v3/dynamic-tables/refresh", json={"tables": ["lake.sales.daily"], "isPeriodic": True}).status_code == 200
    assert client.post(f"{DAILY}/resume", json={}).json()["after"] == "INITIALIZING"


def test_a_table_is_dropped(gateway: Served, client: httpx.Client) -> None:
    _register(gateway)
    assert client.post(f"{DAILY}/drop", json={}).json()["dropped"] is True
    assert client.post(f"{DAILY}/drop", json={"ifExists": True}).json()["dropped"] is False
    assert client.get(DAILY).json()["jobState"] is None


def test_a_difference_names_what_it_touches_of_what_the_caller_may_see(gateway: Served, client: httpx.Client) -> None:
    file = gateway.definitions / "sales.yaml"
    text = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: numbers, freshness: 1 hour, query: SELECT 1 AS x}
- {name: reader, freshness: 1 hour, query: SELECT x FROM numbers}
"""
    file.write_text(text)
    (numbers, _) = open_project(str(gateway.definitions)).load()[0].topological()
    with gateway.workspace() as workspace:
        run(workspace, RefreshRequest(numbers, {}, utc_now(), "t1", "a test"), write_numbers)
    file.write_text(text.replace("1 AS x", "2 AS x"))
    found = client.get("/v3/dynamic-tables/lake.sales.numbers/diff").json()
    assert str(gateway.definitions) not in str(found)
    assert found["place"].startswith(f"definitions/{file.name}:")
    assert (found["change"], [one["table"] for one in found["downstream"]]) == ("DATA", ["lake.sales.reader"])
    gateway.rights.refused.add(("ann", Right.READ, "reader"))
    assert client.get("/v3/dynamic-tables/lake.sales.numbers/diff").json()["downstream"] == []
    (version,) = client.get("/v3/dynamic-tables/lake.sales.numbers/versions").json()["versions"]
    assert (version["number"], version["token"]) == (1, "t1")
    table = client.get("/v3/dynamic-tables/lake.sales.numbers").json()
    assert (table["version"], table["columns"]) == (1, [{"name": "x", "type": "bigint", "nullable": True, "comment": None}])


def test_a_difference_shows_no_view_and_no_table_that_the_caller_may_not_see(gateway: Served, client: httpx.Client) -> None:
    """A view that a table reads may be of others, and may have changed."""
    file = gateway.definitions / "sales.yaml"
    text = """
defaults: {catalog: lake, database: sales}
views:
- {name: closed_view, query: SELECT 'text-of-the-view' AS x}
dynamic_tables:
- {name: hidden, freshness: 1 hour, query: SELECT 'a' AS x}
- {name: numbers, freshness: 1 hour, query: SELECT x FROM closed_view}
"""
    file.write_text(text)
    tables = open_project(str(gateway.definitions)).load()[0].tables
    with gateway.workspace() as workspace:
        ensure(workspace, tables[TableIdentifier("lake", "sales", "numbers")])
    file.write_text(text.replace("'text-of-the-view' AS x", "x || 'text-of-the-view' AS x FROM hidden"))
    gateway.rights.refused.add(("ann", Right.READ, "hidden"))
    found = client.get("/v3/dynamic-tables/lake.sales.numbers/diff").json()
    assert "text-of-the-view" not in str(found)
    assert "hidden" not in str(found)
    assert (found["change"], found["query"]) == ("METADATA", "")
    assert found["fields"] == [
        {"name": "resolved.query", "deployed": None, "declared": None},
        {"name": "resolved.upstream", "deployed": [], "declared": []},
    ]
    gateway.rights.refused.clear()
    found = client.get("/v3/dynamic-tables/lake.sales.numbers/diff").json()
    assert found["fields"][1] == {"name": "resolved.upstream", "deployed": [], "declared": ["lake.sales.hidden"]}


def test_a_table_that_two_declare_names_no_folder_of_the_server(gateway: Served, client: httpx.Client) -> None:
    tables = open_project(str(gateway.definitions)).load()[0].tables
    daily = tables[TableIdentifier("lake", "sales", "daily")]
    with gateway.workspace() as workspace:
        ensure(workspace, daily)
        catalog = workspace.catalog("lake")
        entry = catalog.get_table(daily.identifier.path)
        assert isinstance(entry, CatalogDynamicTable)
        mine = deployed_by(entry.definition)
        assert mine is not None
        other = replace(mine, installation="another", file="/srv/secret-folder/sales.yaml")
        catalog.alter_table(daily.identifier.path, replace(entry, definition={**(entry.definition or {}), **mark(other)}))
    found = client.get(f"{DAILY}/diff").json()
    assert found["claimed"]
    assert "secret-folder" not in str(found)
    assert str(gateway.definitions) not in str(found)
