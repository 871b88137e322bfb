"""Looking at tables over HTTP."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import DirtyPartitions
from airflow_dynamic_tables.exceptions import QuarantinedError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.gateway import Served
from tests.support.pyarrow_job import write_days, write_numbers

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
DAILY = TableIdentifier("lake", "sales", "daily")
REFRESH = Refresh(
    token="t1",
    table=DAILY,
    action=RefreshAction.PARTITIONS,
    reason="scheduled",
    state=RefreshState.SUCCEEDED,
    schedule_time=NOON,
    started_at=NOON,
    data_timestamp=NOON,
    version=1,
    partitions=PartitionSet.of([{"ds": "2024-01-01"}]),
)


def _register(gateway: Served, *names: str) -> None:
    defined = open_project(str(gateway.definitions)).load()[0]
    with gateway.workspace() as workspace:
        for name in names:
            ensure(workspace, defined.tables[TableIdentifier("lake", "sales", name)])


def _names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [table["identifier"].removeprefix("lake.sales.") for table in answer.json()["tables"]]


def test_tables_are_listed_whether_declared_or_deployed(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily", "alone")
    text = (gateway.definitions / "sales.yaml").read_text()
    (gateway.definitions / "sales.yaml").write_text(text[: text.index("  - name: alone")])
    page = client.get("/v3/dynamic-tables").json()
    assert page["next"] is None
    assert [(table["identifier"], table["defined"], table["jobState"]) for table in page["tables"]] == [
        ("lake.sales.alone", False, "INITIALIZING"),
        ("lake.sales.daily", True, "INITIALIZING"),
        ("lake.sales.monthly", True, None),
    ]


def test_the_list_tells_of_the_last_version_and_the_last_refresh(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily")
    with gateway.workspace() as workspace:
        workspace.ledger.record(REFRESH)
        failed = {"token": "t2", "state": RefreshState.FAILED, "error": "no", "version": None, "data_timestamp": None}
        later = {**{name: getattr(REFRESH, name) for name in REFRESH.__slots__}, **failed, "started_at": NOON + timedelta(1)}
        workspace.ledger.record(Refresh(**later))
    table = client.get("/v3/dynamic-tables", params={"name": "DAILY"}).json()["tables"][0]
    assert (table["version"], table["dataTimestamp"]) == (1, "2024-01-02T12:00:00Z")
    assert (table["lastRefresh"], table["lastError"], table["late"]) == ("FAILED", "no", True)


def test_pages_and_filters(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily")
    first = client.get("/v3/dynamic-tables", params={"limit": 2})
    assert _names(first) == ["alone", "daily"]
    assert _names(client.get("/v3/dynamic-tables", params={"limit": 2, "after": first.json()["next"]})) == ["monthly"]
    assert _names(client.get("/v3/dynamic-tables", params={"jobState": "INITIALIZING"})) == ["daily"]
    assert _names(client.get("/v3/dynamic-tables", params={"database": "other"})) == []
    assert _names(client.get("/v3/dynamic-tables", params={"catalog": "lake", "name": "o"})) == ["alone", "monthly"]


def test_whoever_may_not_look_at_a_table_is_not_told_of_it(gateway: Served, client: httpx.Client) -> None:
    gateway.rights.refused |= {("ann", Right.READ, "monthly"), ("ann", Right.READ, "no_such_table")}
    assert _names(client.get("/v3/dynamic-tables")) == ["alone", "daily"]
    assert client.get("/v3/dynamic-tables/lake.sales.daily/lineage").json()["descendants"] == []
    hidden, missing = (client.get(f"/v3/dynamic-tables/lake.sales.{name}") for name in ("monthly", "no_such_table"))
    assert (hidden.status_code, missing.status_code) == (403, 403)
    assert hidden.text.replace("monthly", "no_such_table") == missing.text


def test_a_table_names_the_parents_that_have_a_newer_version_to_whom_may_see_them(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily", "monthly")
    with gateway.workspace() as workspace:
        for number in (1, 2):
            at = NOON + timedelta(hours=number)
            made = replace(REFRESH, token=f"d{number}", version=number, snapshot=f"s{number}", started_at=at, finished_at=at)
            workspace.ledger.record(made)
        child = replace(made, table=TableIdentifier("lake", "sales", "monthly"), sources={"lake.sales.daily": "s1"}, snapshot="m")
        workspace.ledger.record(replace(child, token="m1", version=1, finished_at=NOON + timedelta(hours=3)))

    def behind() -> list[dict[str, object]]:
        tables = client.get("/v3/dynamic-tables").json()["tables"]
        return [parent for table in tables for parent in table["behind"] if table["identifier"] == "lake.sales.monthly"]

    assert behind() == [{"table": "lake.sales.daily", "version": 2, "read": 1}]
    gateway.rights.refused.add(("ann", Right.READ, "daily"))
    assert behind() == []


def test_one_table_and_what_is_known_of_it(gateway: Served, client: httpx.Client) -> None:
    declared = client.get("/v3/dynamic-tables/lake.sales.daily").json()
    assert (declared["comment"], declared["jobState"], declared["columns"]) == ("Orders of each day", None, [])
    _register(gateway, "daily")
    with gateway.workspace() as workspace:
        workspace.ledger.record(REFRESH)
    assert client.get("/v3/dynamic-tables/lake.sales.daily").json()["jobState"] == "INITIALIZING"
    (line,) = client.get("/v3/dynamic-tables/lake.sales.daily/history").json()["refreshes"]
    assert (line["token"], line["partitions"], line["scheduleTime"]) == ("t1", [{"ds": "2024-01-01"}], "2024-01-02T12:00:00Z")
    assert client.get("/v3/dynamic-tables/lake.sales.daily/versions").json() == {"versions": []}


def test_what_the_refreshes_of_a_table_saved(gateway: Served, client: httpx.Client) -> None:
    made = replace(REFRESH, finished_at=NOON, recipe="r")
    whole = replace(made, action=RefreshAction.FULL, partitions=WHOLE_TABLE, seconds={"spark": 100.0}, bytes=1_000)
    part = replace(made, token="t2", started_at=NOON + timedelta(hours=1), version=2, seconds={"spark": 10.0}, bytes=50)
    with gateway.workspace() as workspace:
        for refresh in (whole, part, replace(whole, token="t3", table=replace(DAILY, table="monthly"))):
            workspace.ledger.record(refresh)
    (month,) = client.get("/v3/dynamic-tables/lake.sales.daily/saved").json()["months"]
    assert (month["table"], month["month"], month["refreshes"]) == ("lake.sales.daily", "2024-01", 2)
    assert (month["seconds"], month["fullSeconds"], month["savedSeconds"]) == (110.0, 200.0, 90.0)
    assert (month["bytes"], month["savedBytes"]) == (1_050, 950)
    gateway.rights.refused.add(("ann", Right.READ, "daily"))
    assert client.get("/v3/dynamic-tables/lake.sales.daily/saved").status_code == 403


def test_lineage_goes_all_the_way(client: httpx.Client) -> None:
    lineage = client.get("/v3/dynamic-tables/lake.sales.monthly/lineage").json()
    near = {one["identifier"]: (one["steps"], one["reads"], one["status"] is None) for one in lineage.pop("tables")}
    assert near == {
        "lake.raw.orders": (-2, [], True),
        "lake.sales.daily": (-1, ["lake.raw.orders"], False),
        "lake.sales.monthly": (0, ["lake.sales.daily"], False),
    }
    assert lineage == {
        "identifier": "lake.sales.monthly",
        "upstream": ["lake.sales.daily"],
        "downstream": [],
        "ancestors": ["lake.raw.orders", "lake.sales.daily"],
        "descendants": [],
        "columns": {},
    }


def test_lineage_has_columns_and_two_steps_of_what_the_caller_may_see(gateway: Served, client: httpx.Client) -> None:
    definitions = [
        "{name: t0, query: SELECT 1 AS x}",
        *(f"{{name: t{number}, query: SELECT x FROM t{number - 1}}}" for number in range(1, 4)),
    ]
    head = "defaults: {catalog: lake, database: sales, freshness: 1 day}\n"
    (gateway.definitions / "chain.yaml").write_text(f"{head}dynamic_tables: [{', '.join(definitions)}]")
    tables = open_project(str(gateway.definitions)).load()[0].tables
    with gateway.workspace() as workspace:
        for name in ("t0", "t1"):
            run(
                workspace, RefreshRequest(tables[TableIdentifier("lake", "sales", name)], {}, NOON, name, "a test"), write_numbers
            )

    def lineage(table: str) -> dict[str, Any]:
        return dict(client.get(f"/v3/dynamic-tables/lake.sales.{table}/lineage").json())

    steps = {one["identifier"]: one["steps"] for one in lineage("t0")["tables"]}
    assert steps == {"lake.sales.t0": 0, "lake.sales.t1": 1, "lake.sales.t2": 2}
    assert lineage("t1")["columns"] == {"x": [{"table": "lake.sales.t0", "column": "x", "isCopy": True}]}
    shown = client.get("/v3/dynamic-tables/lake.sales.t1").json()
    assert [(one["source"], one["number"], one["numberNow"]) for one in shown["sourcesRead"]] == [("lake.sales.t0", 1, 1)]
    gateway.rights.refused.add(("ann", Right.READ, "t0"))
    hidden = lineage("t1")
    assert ([one["identifier"] for one in hidden["tables"]], hidden["columns"]) == (
        ["lake.sales.t1", "lake.sales.t2", "lake.sales.t3"],
        {},
    )
    assert client.get("/v3/dynamic-tables/lake.sales.t1").json()["sourcesRead"] == []


def test_the_list_says_why_and_when_of_the_last_refresh_and_the_next_one(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily")
    with gateway.workspace() as workspace:
        workspace.ledger.record(REFRESH)
    (table,) = client.get("/v3/dynamic-tables", params={"name": "daily"}).json()["tables"]
    told = (table["state"], table["lastAction"], table["lastReason"], table["lastStartedAt"])
    assert told == ("LATE", "PARTITIONS", "scheduled", "2024-01-02T12:00:00Z")
    tomorrow = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(1)
    assert datetime.fromisoformat(table["nextRefresh"]) == tomorrow
    client.post("/v3/dynamic-tables/lake.sales.daily/suspend", json={})
    assert client.get("/v3/dynamic-tables", params={"name": "daily"}).json()["tables"][0]["nextRefresh"] is None


def test_tables_of_a_workflow(client: httpx.Client) -> None:
    assert _names(client.get("/v3/dynamic-tables", params={"workflow": "dynamic_table__lake__sales__alone"})) == ["alone"]
    assert _names(client.get("/v3/dynamic-tables", params={"workflow": "other"})) == []


def test_a_delay_begins_at_the_first_table_that_stopped(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily", "monthly")
    with gateway.workspace() as workspace:
        workspace.ledger.record(REFRESH)
        monthly = TableIdentifier("lake", "sales", "monthly")
        workspace.ledger.record(replace(REFRESH, token="m1", table=monthly, sources={"lake.sales.daily": "1"}))

    def delay(table: str = "monthly") -> dict[str, Any]:
        return dict(client.get(f"/v3/dynamic-tables/lake.sales.{table}/delay").json())

    late = delay()
    assert (late["stopped"], late["cause"], late["since"]) == ("lake.sales.daily", "LATE", "2024-01-02T12:00:00Z")
    assert late["path"] == ["lake.sales.daily", "lake.sales.monthly"]
    client.post("/v3/dynamic-tables/lake.sales.daily/suspend", json={"reason": "moved"})
    suspended = delay()
    assert (suspended["cause"], suspended["why"], suspended["turn"]) == ("SUSPENDED", "moved", "A user resumes lake.sales.daily.")
    gateway.rights.refused.add(("ann", Right.READ, "daily"))
    assert (delay()["stopped"], delay()["path"]) == ("lake.sales.monthly", ["lake.sales.monthly"])
    now = datetime.now(UTC)
    with gateway.workspace() as workspace:
        fresh = replace(REFRESH, token="m2", table=monthly, version=2, started_at=now, schedule_time=now, data_timestamp=now)
        workspace.ledger.record(fresh)
    assert delay() == {
        **dict.fromkeys(("stopped", "cause", "since")),
        "identifier": str(monthly),
        "why": "",
        "turn": "",
        "path": [],
    }


def test_the_partitions_of_a_table(gateway: Served, client: httpx.Client) -> None:
    """A day with rows, one in quarantine, and one that is frozen."""
    (gateway.definitions / "days.yaml").write_text(
        "defaults: {catalog: lake, database: sales, freshness: 1 day}\n"
        "dynamic_tables: [{name: days, partitioned_by: [ds], frozen: ds < '2024-01-02', expectations: [{row_count: {min: 2}}], "
        "options: {partition.fields.ds.date-formatter: yyyy-MM-dd}, query: \"SELECT '2024-03-01' AS ds, 1 AS n\"}]"
    )
    table = open_project(str(gateway.definitions)).load()[0].tables[TableIdentifier("lake", "sales", "days")]
    with gateway.workspace() as workspace:
        for day, numbers in enumerate(((1, 2), (1, 2, 3), (1,)), start=1):
            name = f"2024-01-{day:02}"
            days = PartitionSet.of([{"ds": name}])
            request = RefreshRequest(table, {}, NOON, name, name, partitions=days, replaces_frozen=True)
            with suppress(QuarantinedError):
                run(workspace, request, partial(write_days, days={name: numbers}))
        workspace.ledger.record_dirty(
            table.identifier, DirtyPartitions(PartitionSet.of([{"ds": "2024-01-02"}]), 1), NOON, since=0
        )
    listed = client.get("/v3/dynamic-tables/lake.sales.days/partitions").json()["partitions"]
    shown = [(one["name"], one["exists"], one["version"], one["rows"], one["frozen"], one["quarantined"]) for one in listed]
    assert shown == [
        ("ds=2024-01-01", True, 1, 2, True, False),
        ("ds=2024-01-02", True, 2, 3, False, False),
        ("ds=2024-01-03", False, None, None, False, True),
    ]
    dirty = [(one["dirty"], one["comparedAt"]) for one in listed]
    assert dirty == [(None, None), (True, "2024-01-02T12:00:00Z"), (None, None)]
    assert client.get("/v3/dynamic-tables/lake.sales.alone/partitions").json() == {"partitions": []}


def test_a_live_plan_says_what_a_refresh_would_do_now(gateway: Served, client: httpx.Client) -> None:
    address = "/v3/dynamic-tables/lake.sales.alone/plan/live"
    assert client.get(address).json()["action"] == "INITIALIZE"
    table = open_project(str(gateway.definitions)).load()[0].tables[TableIdentifier("lake", "sales", "alone")]
    with gateway.workspace() as workspace:
        run(workspace, RefreshRequest(table, {}, NOON, "t1", "a test", is_scheduled=True), write_numbers)
    planned = client.get(address).json()
    assert (planned["action"], planned["reasonCode"]) == ("NO_DATA", "UNCHANGED")
    gateway.rights.refused.add(("ann", Right.READ, "alone"))
    assert client.get(address).status_code == 403


def test_a_plan_is_of_a_time(client: httpx.Client) -> None:
    planned = client.get("/v3/dynamic-tables/lake.sales.daily/plan", params={"scheduleTime": "2024-01-02T00:00:00"}).json()
    assert planned["partitions"] == [{"ds": "2024-01-01"}]
    assert "WHERE" in planned["statement"]
    assert planned["catchUp"] == [], "the complete table"
    assert planned["catchUpReason"] == "it starts with all partitions of its sources (initial: all)"


def test_where_rows_come_from(gateway: Served, client: httpx.Client) -> None:
    (gateway.definitions / "numbers.yaml").write_text(
        "defaults: {catalog: lake, database: sales, freshness: 1 day}\n"
        "dynamic_tables: [{name: numbers, query: SELECT 1 AS x}, {name: copied, query: SELECT x FROM numbers}]\n"
    )
    with gateway.workspace() as workspace:
        for name in ("numbers", "copied"):
            table = open_project(str(gateway.definitions)).load()[0].tables[TableIdentifier("lake", "sales", name)]
            run(workspace, RefreshRequest(table, {}, NOON, name, "a test"), write_numbers)

    def found() -> list[tuple[int, str, str, str]]:
        origins = client.get("/v3/dynamic-tables/lake.sales.copied/why").json()["origins"]
        return [(one["depth"], one["table"], one["token"], one["state"]) for one in origins]

    assert found() == [(0, "lake.sales.copied", "copied", "CURRENT"), (1, "lake.sales.numbers", "numbers", "CURRENT")]
    gateway.rights.refused.add(("ann", Right.READ, "numbers"))
    assert found() == [(0, "lake.sales.copied", "copied", "CURRENT")]
    assert client.get("/v3/dynamic-tables/lake.sales.numbers/why").status_code == 403
    wrong = client.get("/v3/dynamic-tables/lake.sales.copied/why", params={"partition": "2024"})
    assert (wrong.status_code, "query.partition" in wrong.text) == (422, True), wrong.text
    assert client.get("/v3/dynamic-tables/lake.sales.daily/why").status_code == 404, "it has no refresh"


def test_a_plan_names_what_the_caller_may_see(gateway: Served, client: httpx.Client) -> None:
    gateway.rights.refused.add(("ann", Right.READ, "daily"))
    (gateway.definitions / "views.yaml").write_text(
        "views: [{name: lake.sales.closed_view, query: SELECT 'text-of-the-view' AS secret_rule}]\n"
        "dynamic_tables: [{name: lake.sales.over, freshness: 1 day, "
        "query: 'SELECT secret_rule, orders FROM lake.sales.closed_view, lake.sales.daily'}]\n"
    )
    planned = client.get("/v3/dynamic-tables/lake.sales.over/plan").json()
    assert planned["upstream"] == []
    assert "text-of-the-view" not in planned["statement"]
    assert "FROM lake.sales.closed_view" in planned["statement"]
    assert client.get("/v3/dynamic-tables/lake.sales.monthly/plan").json()["upstream"] == []
    gateway.rights.refused.clear()
    assert client.get("/v3/dynamic-tables/lake.sales.monthly/plan").json()["upstream"] == ["lake.sales.daily"]


def test_without_definitions_the_catalog_serves(gateway: Served, client: httpx.Client) -> None:
    _register(gateway, "daily", "monthly")
    (gateway.definitions / "sales.yaml").unlink()
    gateway.definitions.rmdir()
    assert [(one["identifier"], one["defined"]) for one in client.get("/v3/dynamic-tables").json()["tables"]] == [
        ("lake.sales.daily", None),
        ("lake.sales.monthly", None),
    ]
    assert client.get("/v3/dynamic-tables/lake.sales.daily/plan").json()["cron"] == "0 0 * * *"
    assert client.get("/v3/dynamic-tables/lake.sales.daily/lineage").json()["downstream"] == ["lake.sales.monthly"]
