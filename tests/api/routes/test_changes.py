"""Changing tables over HTTP."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import httpx

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import QuarantinedError
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
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


NUMBERS = "/v3/dynamic-tables/lake.sales.numbers"


def _refresh_numbers(gateway: Served, *results: tuple[int, ...]) -> None:
    """Refresh a table that has at least two rows once for each result."""
    (gateway.definitions / "numbers.yaml").write_text(
        "defaults: {catalog: lake, database: sales, freshness: 1 day}\n"
        "dynamic_tables: [{name: numbers, query: SELECT 1 AS x, expectations: [{row_count: {min: 2}}]}]"
    )
    table = open_project(str(gateway.definitions)).load()[0].tables[TableIdentifier("lake", "sales", "numbers")]
    with gateway.workspace() as workspace:
        for number, rows in enumerate(results, start=1):
            request = RefreshRequest(table, {}, utc_now(), f"t{number}", f"o{number}")
            with suppress(QuarantinedError):
                run(workspace, request, partial(write_numbers, numbers=rows))


def _rows(gateway: Served) -> list[int]:
    with gateway.workspace() as workspace:
        return [row["x"] for row in sample(workspace, TableIdentifier("lake", "sales", "numbers"), 10)]


def test_a_table_is_rolled_back(gateway: Served, client: httpx.Client) -> None:
    _refresh_numbers(gateway, (1, 2), (3, 4))
    restored = client.post(f"{NUMBERS}/rollback", json={"version": 1}).json()
    assert (restored["number"], _rows(gateway)) == (3, [1, 2])
    history = client.get(f"{NUMBERS}/history").json()["refreshes"]
    assert (history[0]["action"], history[0]["restores"]) == ("ROLLBACK", 1)
    for wrong, status in (({"version": 99}, 404), ({"version": 0}, 422), ({"version": "1"}, 422), ({}, 422)):
        assert client.post(f"{NUMBERS}/rollback", json=wrong).status_code == status, wrong
    gateway.rights.refused.add(("ann", Right.CHANGE, "numbers"))
    assert client.post(f"{NUMBERS}/rollback", json={"version": 1}).status_code == 403
    assert _rows(gateway) == [1, 2]


def test_a_refresh_in_quarantine_is_published(gateway: Served, client: httpx.Client) -> None:
    _refresh_numbers(gateway, (1, 2), (3,))
    assert _rows(gateway) == [1, 2]
    for _ in range(2):
        assert client.post(f"{NUMBERS}/publish", json={"token": "t2"}).json()["number"] == 2
    assert _rows(gateway) == [3]
    refused = client.post(f"{NUMBERS}/abort", json={"token": "t2"})
    assert (refused.status_code, "has landed as version 2" in refused.json()["detail"]) == (409, True), refused.text


def test_a_refresh_in_quarantine_is_aborted(gateway: Served, client: httpx.Client) -> None:
    _refresh_numbers(gateway, (1, 2), (3,))
    for _ in range(2):
        aborted = client.post(f"{NUMBERS}/abort", json={"token": "t2"}).json()
        assert (aborted["state"], aborted["error"]) == ("REJECTED", "aborted by ann")
    delay = client.get(f"{NUMBERS}/delay").json()
    assert (delay["cause"], delay["why"]) == ("REJECTED", "aborted by ann")
    assert delay["turn"].startswith("The table stays as it is; the next scheduled refresh of lake.sales.numbers computes")
    assert client.post(f"{NUMBERS}/publish", json={"token": "t2"}).status_code == 409
    assert _rows(gateway) == [1, 2]


def test_a_decision_is_about_a_refresh_of_the_table(gateway: Served, client: httpx.Client) -> None:
    _refresh_numbers(gateway, (1, 2), (3,))
    _register(gateway)
    for table, token in (("daily", "t2"), ("numbers", "t9")):
        for decision in ("publish", "abort"):
            answer = client.post(f"/v3/dynamic-tables/lake.sales.{table}/{decision}", json={"token": token})
            assert answer.status_code == 404, answer.text
    gateway.rights.refused.add(("ann", Right.CHANGE, "numbers"))
    for decision in ("publish", "abort"):
        assert client.post(f"{NUMBERS}/{decision}", json={"token": "t2"}).status_code == 403
    assert client.get(f"{NUMBERS}/history").json()["refreshes"][0]["state"] == "QUARANTINED"
