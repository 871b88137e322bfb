"""Forty requests that are wrong, each with its exact answer: the status, and the sentence that says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError, ForbiddenError, TooBusyError
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.project import open_project
from tests.api.conftest import DEFINITIONS
from tests.support.gateway import Served, served

ALL = "/v3/dynamic-tables"
REFRESH = f"{ALL}/refresh"
DAILY = f"{ALL}/lake.sales.daily"
T = ["lake.sales.daily"]
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, empty_state: Path) -> Iterator[Served]:
    """A gateway that suspended ``alone``, and in which ann may not do everything."""
    home = tmp_path_factory.mktemp("gateway")
    (home / "definitions").mkdir()
    (home / "definitions" / "sales.yaml").write_text(DEFINITIONS)
    with served(home, home / "definitions", Path(shutil.copy(empty_state, home / "state.db"))) as server:
        alone = TableIdentifier("lake", "sales", "alone")
        with server.workspace() as workspace:
            ensure(workspace, open_project(str(server.definitions)).load()[0].tables[alone])
            suspend(workspace, alone, "it is being moved")
        server.rights.refused |= {("ann", right, "monthly") for right in Right}
        yield server


NO_TIME = "is not a time; write it as 2024-01-02 00:00:00 or 2024-01-02T00:00:00+00:00"
NO_TIMES = ("2024", "20240101", "0.5", "1704067200", "2024-W01-1", "now")

WRONG: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", ALL, {"headers": {"authorization": ""}}, 401, "Say who you are."),
    ("POST", REFRESH, {"headers": {"authorization": ""}, "content": b"{"}, 401, "Say who you are."),
    ("GET", "/v3/no-such-route", {}, 404, "There is no such path; openapi.json lists all paths."),
    ("GET", "/", {}, 404, "There is no such path; openapi.json lists all paths."),
    ("DELETE", DAILY, {}, 405, "DELETE is not allowed here; use GET."),
    ("PUT", REFRESH, {"json": {}}, 405, "PUT is not allowed here; use POST."),
    ("POST", f"{DAILY}/history", {"json": {}}, 405, "POST is not allowed here; use GET."),
    ("GET", f"{ALL}?limit=0", {}, 422, "query.limit: input should be greater than or equal to 1"),
    ("GET", f"{ALL}?limit=1001", {}, 422, "query.limit: input should be less than or equal to 1000"),
    ("GET", f"{ALL}?limit=many", {}, 422, "query.limit: input should be a valid integer, unable to parse string as an integer"),
    ("GET", f"{ALL}?state=PAUSED", {}, 422, "query.state: input should be 'INITIALIZING', 'RUNNING' or 'SUSPENDED'"),
    ("GET", f"{ALL}?databse=sales", {}, 422, "query.databse: is unknown; remove it, or look up the correct name in openapi.json"),
    ("GET", f"{ALL}?catalog=", {}, 422, "query.catalog: string should have at least 1 character"),
    ("GET", f"{ALL}/daily", {}, 422, "path.table: 'daily' is not a full name; write catalog.database.table"),
    ("GET", f"{ALL}/sales.daily", {}, 422, "path.table: 'sales.daily' is not a full name; write catalog.database.table"),
    (
        "GET",
        f"{ALL}/lake.sales.daily.one",
        {},
        422,
        "path.table: 'lake.sales.daily.one' is not a full name; write catalog.database.table",
    ),
    ("GET", f"{ALL}/lake.sales.", {}, 422, "path.table: 'lake.sales.' is not a dotted name"),
    ("GET", f"{ALL}/lake.sales.weekly", {}, 404, "Neither a definition nor a catalog has lake.sales.weekly."),
    ("GET", f"{ALL}/lake.sales.{'x' * 800}", {}, 422, "path.table: string should have at most 767 characters"),
    ("GET", f"{ALL}/lake.sales.monthly", {}, 403, "You may not read lake.sales.monthly; ask its administrator for access."),
    ("GET", f"{DAILY}/history?limit=-1", {}, 422, "query.limit: input should be greater than or equal to 1"),
    (
        "GET",
        f"{DAILY}/plan?scheduleTime=yesterday",
        {},
        422,
        f"query.scheduleTime: {NO_TIME}",
    ),
    (
        "GET",
        f"{DAILY}/plan?scheduleTime=0001-01-01T00:00:00",
        {},
        422,
        "query.scheduleTime: schedule_time 0001-01-01T00:00:00 cannot be planned for: write a time of the years 200 to 9800.",
    ),
    ("GET", "/v3/jobs/0000", {}, 404, "There is no such job, it has expired, or you may not read all of its tables."),
    ("GET", "/v3/jobs?limit=101", {}, 422, "query.limit: input should be less than or equal to 100"),
    ("POST", REFRESH, {}, 422, "body: is required; add it"),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": [', "headers": JSON},
        400,
        "The body is not JSON: Expecting value at character 12.",
    ),
    ("POST", REFRESH, {"content": b"\xff\xfe", "headers": JSON}, 400, "The body is not JSON: Expecting value at character 0."),
    ("POST", REFRESH, {"content": b"[" * 100_000, "headers": JSON}, 400, "The body cannot be read; send JSON in UTF-8."),
    (
        "POST",
        REFRESH,
        {"content": b"x" * 200_001, "headers": JSON},
        413,
        "A body may have at most 200000 bytes; refresh fewer tables with one request.",
    ),
    (
        "POST",
        REFRESH,
        {"content": json.dumps({"tables": T}).encode(), "headers": {"content-type": "text/plain"}},
        415,
        "Send the body as JSON, with the header Content-Type: application/json.",
    ),
    ("POST", REFRESH, {"json": []}, 422, "body: input should be a valid dictionary or object to extract fields from"),
    ("POST", REFRESH, {"json": {"tables": []}}, 422, "body.tables: list should have at least 1 item after validation, not 0"),
    ("POST", REFRESH, {"json": {"tables": 7}}, 422, "body.tables: input should be a valid list"),
    (
        "POST",
        REFRESH,
        {"json": {"tables": ["daily"]}},
        422,
        "body.tables: 'daily' is not a full name; write catalog.database.table",
    ),
    ("POST", REFRESH, {"json": {"tables": T * 2}}, 422, "body.tables: contains a table twice; name each table once"),
    (
        "POST",
        REFRESH,
        {"json": {"tables": [f"lake.sales.t{n}" for n in range(101)]}},
        422,
        "body.tables: list should have at most 100 items after validation, not 101",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "schedule_time": "2024-01-02"}},
        422,
        "body.schedule_time: is unknown; remove it, or look up the correct name in openapi.json",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "scheduleTime": "noon"}},
        422,
        "body.scheduleTime: is not a time; write it as 2024-01-02 00:00:00 or 2024-01-02T00:00:00+00:00",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "scheduleTime": "9999-01-02 00:00:00"}},
        422,
        "body.scheduleTime: schedule_time 9999-01-02T00:00:00 cannot be planned for: write a time of the years 200 to 9800.",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "isPeriodic": "perhaps"}},
        422,
        "body.isPeriodic: input should be a valid boolean",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "configuration": {"spark.executor.memory": "4g"}}},
        422,
        "body.configuration.spark.executor.memory: is unknown; remove it, or look up the correct name in openapi.json",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "configuration": {"partition": "2024-01-01"}}},
        422,
        (
            "body.configuration.partition: '2024-01-01' is no partition; write for example ds=2024-01-01 or "
            "ds=2024-01-01/hh=03 (/ as %2F, = as %3D), with commas between several"
        ),
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "configuration": {"partition": "day=2024-01-01"}}},
        422,
        "body.partition: lake.sales.daily: partition 'day=2024-01-01' does not fit the partition keys ds",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T, "isPeriodic": True, "configuration": {"full_refresh": True}}},
        422,
        (
            "body.configuration: partition and full_refresh exclude each other, and a periodic refresh has "
            "neither; give one of them"
        ),
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": ["lake.sales.daily", "lake.sales.monthly"]}},
        403,
        "You may not refresh lake.sales.monthly; ask its administrator for access.",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": ["lake.sales.alone"]}},
        409,
        "lake.sales.alone is suspended (it is being moved); resume it, or refresh it with force.",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T}, "headers": {"idempotency-key": ""}},
        422,
        "header.Idempotency-Key: string should have at least 1 character",
    ),
    (
        "POST",
        REFRESH,
        {"json": {"tables": T}, "headers": {"idempotency-key": "k" * 201}},
        422,
        "header.Idempotency-Key: string should have at most 200 characters",
    ),
    (
        "POST",
        f"{DAILY}/refresh",
        {"json": {"partition": "ds=2024-01-01", "fullRefresh": True}},
        422,
        "body.partition: partition and fullRefresh exclude each other; give one of them",
    ),
    (
        "POST",
        f"{ALL}/lake.sales.alone/refresh",
        {"json": {"partition": "ds=1", "force": True}},
        422,
        "body.partition: lake.sales.alone: the table is not partitioned, so no partition can be named",
    ),
    (
        "POST",
        f"{DAILY}/suspend",
        {"json": {"reason": "x" * 2001}},
        422,
        "body.reason: string should have at most 2000 characters",
    ),
    ("POST", f"{DAILY}/suspend", {"json": {"reason": None}}, 422, "body.reason: input should be a valid string"),
    (
        "POST",
        f"{DAILY}/suspend",
        {"json": {}},
        404,
        "lake.sales.daily is declared, but not in its catalog yet: its first refresh makes it.",
    ),
    (
        "POST",
        f"{DAILY}/resume",
        {"json": {"now": True}},
        422,
        "body.now: is unknown; remove it, or look up the correct name in openapi.json",
    ),
    ("POST", f"{DAILY}/drop", {"json": {}}, 404, "Table (or view) sales.daily does not exist in catalog lake."),
    (
        "POST",
        f"{ALL}/lake.sales.monthly/drop",
        {"json": {"ifExists": True}},
        403,
        "You may not drop lake.sales.monthly; ask its administrator for access.",
    ),
    ("GET", f"{ALL}/lake.sales.a%00b", {}, 422, "path.table: contains an invisible character; remove it"),
    ("GET", ALL + "?name=a&name=b", {}, 422, "query.name: is given more than once; give it once"),
    ("GET", DAILY + "?limit=1", {}, 422, "query.limit: is unknown; remove it, or look up the correct name in openapi.json"),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.\\ud800"]}', "headers": JSON},
        422,
        "body.tables.0: input should be a valid string, unable to parse raw data as a unicode string",
    ),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.\\u0000"]}', "headers": JSON},
        422,
        "body.tables.0: contains an invisible character; remove it",
    ),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.daily"], "configuration": {"partition": "ds=\\u0000"}}', "headers": JSON},
        422,
        "body.configuration.partition: contains an invisible character; remove it",
    ),
    ("GET", "/v3/jobs/%00", {}, 422, "path.job_id: string should match pattern '^[0-9a-f]{1,64}$'"),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.daily"], "scheduleTime": 1e400}', "headers": JSON},
        422,
        "body.scheduleTime: input should be a valid string",
    ),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": NaN}', "headers": JSON},
        422,
        "body.tables: input should be a valid list",
    ),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.daily"], "tables": ["lake.sales.alone"]}', "headers": JSON},
        400,
        "The body has the key 'tables' twice; write it once.",
    ),
    (
        "POST",
        f"{DAILY}/drop",
        {"content": b'{"purge": true, "\\u0070urge": false}', "headers": JSON},
        400,
        "The body has the key 'purge' twice; write it once.",
    ),
    (
        "POST",
        REFRESH,
        {"content": b'{"tables": ["lake.sales.daily"], "configuration": {"a": 1, "a": 1}}', "headers": JSON},
        400,
        "The body has the key 'a' twice; write it once.",
    ),
    *(
        ("POST", f"{DAILY}/drop", {"json": {"ifExists": True, "purge": lax}}, 422, "body.purge: input should be a valid boolean")
        for lax in (1, 0, "on", "true", "yes", "1", 1.0)
    ),
    ("POST", f"{DAILY}/drop", {"json": {"ifExists": 1}}, 422, "body.ifExists: input should be a valid boolean"),
    ("POST", f"{DAILY}/refresh", {"json": {"force": "yes"}}, 422, "body.force: input should be a valid boolean"),
    ("POST", f"{DAILY}/refresh", {"json": {"fullRefresh": 1}}, 422, "body.fullRefresh: input should be a valid boolean"),
    ("POST", REFRESH, {"json": {"tables": T, "isPeriodic": 1}}, 422, "body.isPeriodic: input should be a valid boolean"),
    *(("GET", f"{DAILY}/plan?scheduleTime={time}", {}, 422, f"query.scheduleTime: {NO_TIME}") for time in NO_TIMES),
    *(("POST", f"{DAILY}/refresh", {"json": {"scheduleTime": time}}, 422, f"body.scheduleTime: {NO_TIME}") for time in NO_TIMES),
]


def test_there_are_forty() -> None:
    assert len(WRONG) >= 40


@pytest.mark.parametrize(("method", "path", "request_", "status", "detail"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong(
    gateway: Served, method: str, path: str, request_: dict[str, Any], status: int, detail: str
) -> None:
    answer = gateway.client.request(method, path, **request_)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["detail"]) == (status, status, detail)
    assert problem["type"].startswith("urn:airflow-dynamic-tables:problem:")
    assert ("errors" in problem) == (status == 422)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(ForbiddenError("no"), 403), (ConflictError("no"), 409), (TooBusyError("no"), 503), (RuntimeError("secret"), 500)],
)
def test_what_cannot_be_started_is_said(gateway: Served, refusal: Exception, status: int) -> None:
    gateway.refresher.refuses = refusal
    answer = gateway.client.post(REFRESH, json={"tables": T}, headers={"idempotency-key": "once"})
    gateway.refresher.refuses = None
    assert answer.status_code == status
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert "secret" not in answer.text
    if status != 500:  # nothing was started, so the key is free
        with gateway.workspace() as workspace:
            assert workspace.ledger.find_job("ann", "once") is None
