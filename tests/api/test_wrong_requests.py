"""Ninety requests that are wrong, each with its exact answer: the status, and the sentence that says what to do."""

from __future__ import annotations

import re
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


REQUEST = re.compile(r"(?P<method>\S+) (?P<path>\S+)\n(?P<body>.+\n)?--> (?P<status>\d+) (?P<detail>.+)")
"""Method and path, the body as JSON, and the answer."""

CASES = (Path(__file__).parent / "wrong_requests.txt").read_text(encoding="utf-8").strip().split("\n\n")


def request_of(case: str) -> tuple[str, str, dict[str, Any], str, str]:
    found = REQUEST.fullmatch(case)
    assert found is not None, case
    request: dict[str, Any] = {"content": found["body"].strip(), "headers": JSON} if found["body"] else {}
    return found["method"], found["path"], request, found["status"], found["detail"]


NO_USER = {"authorization": ""}
LATIN = {"content": b"\xff\xfe", "headers": JSON}
DEEP = {"content": b"[" * 100_000, "headers": JSON}
LARGE = {"content": b"x" * 200_001, "headers": JSON}
PLAIN = {"content": b'{"tables": ["lake.sales.daily"]}', "headers": {"content-type": "text/plain"}}
MANY = {"json": {"tables": [f"lake.sales.t{n}" for n in range(101)]}}
EMPTY_KEY, LONG_KEY = ({"json": {"tables": T}, "headers": {"idempotency-key": key}} for key in ("", "k" * 201))
LONG_REASON = {"json": {"reason": "x" * 2001}}

WRONG: list[tuple[str, str, dict[str, Any], str, str]] = [
    *map(request_of, CASES),
    ("GET", ALL, {"headers": NO_USER}, "401", "Say who you are."),
    ("POST", REFRESH, {"headers": NO_USER, "content": b"{"}, "401", "Say who you are."),
    ("GET", f"{ALL}/lake.sales.{'x' * 800}", {}, "422", "path.table: string should have at most 767 characters"),
    ("POST", REFRESH, LATIN, "400", "The body is not JSON: Expecting value at character 0."),
    ("POST", REFRESH, DEEP, "400", "The body cannot be read; send JSON in UTF-8."),
    ("POST", REFRESH, LARGE, "413", "A body may have at most 200000 bytes; refresh fewer tables with one request."),
    ("POST", REFRESH, PLAIN, "415", "Send the body as JSON, with the header Content-Type: application/json."),
    ("POST", REFRESH, MANY, "422", "body.tables: list should have at most 100 items after validation, not 101"),
    ("POST", REFRESH, EMPTY_KEY, "422", "header.Idempotency-Key: string should have at least 1 character"),
    ("POST", REFRESH, LONG_KEY, "422", "header.Idempotency-Key: string should have at most 200 characters"),
    ("POST", f"{DAILY}/suspend", LONG_REASON, "422", "body.reason: string should have at most 2000 characters"),
]


def test_there_are_more_than_ninety() -> None:
    assert len(WRONG) > 90


@pytest.mark.parametrize(("method", "path", "request_", "status", "detail"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong(
    gateway: Served, method: str, path: str, request_: dict[str, Any], status: str, detail: str
) -> None:
    answer = gateway.client.request(method, path, **request_)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["detail"]) == (int(status), int(status), detail)
    assert problem["type"].startswith("urn:airflow-dynamic-tables:problem:")
    assert ("errors" in problem) == (status == "422")


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
