"""The REST gateway in a running api-server: who may what, on every route; refreshes that are asked for; pages of others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from airflow_dynamic_tables.api.access import Right
from tests.support.airflow import USERS, Stack, until
from tests.support.garbage import throw_garbage

pytestmark = [pytest.mark.system, pytest.mark.postgres]

ROOT = "/v3/dynamic-tables"

TABLES = """
defaults: {catalog: lake, database: DATABASE, retries: 0, spark: {conn_id: spark_stand_in}}
sources:
  - {name: source, format: json, path: FOLDER, schema: x bigint}
dynamic_tables:
  - {name: numbers, freshness: 1 day, schedule: none, on: [source], query: SELECT x FROM source}
"""
"""Refreshed by nobody but who asks."""

OPEN, CLOSED = "lake.open.numbers", "lake.closed.numbers"
"""The stranger has rights to the first one alone."""

MATRIX: dict[tuple[str, str], Right | None] = {
    ("get", "/v3/dynamic-tables"): None,
    ("get", "/v3/dynamic-tables/{table}"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/history"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/versions"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/lineage"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/plan"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/plan/live"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/delay"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/partitions"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/why"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/saved"): Right.READ,
    ("get", "/v3/dynamic-tables/{table}/diff"): Right.READ,
    ("post", "/v3/dynamic-tables/refresh"): Right.REFRESH,
    ("post", "/v3/dynamic-tables/{table}/refresh"): Right.REFRESH,
    ("post", "/v3/dynamic-tables/{table}/suspend"): Right.CHANGE,
    ("post", "/v3/dynamic-tables/{table}/resume"): Right.CHANGE,
    ("post", "/v3/dynamic-tables/{table}/rollback"): Right.CHANGE,
    ("post", "/v3/dynamic-tables/{table}/publish"): Right.CHANGE,
    ("post", "/v3/dynamic-tables/{table}/abort"): Right.CHANGE,
    ("post", "/v3/dynamic-tables/{table}/drop"): Right.DROP,
    ("get", "/v3/jobs"): None,
    ("get", "/v3/jobs/{job_id}"): None,
}
"""What a caller needs for each route; ``None``: nothing but a login. A new route needs a line here."""

BODIES: dict[str, dict[str, Any]] = {"rollback": {"version": 1}, "publish": {"token": "t"}, "abort": {"token": "t"}}
"""What a route needs in its body."""

WITHOUT = ("anonymous", *USERS)


def has_dag(stack: Stack, dag_id: str) -> bool:
    return stack.api.get(f"/dags/{dag_id}").is_success


def dag(table: str) -> str:
    return f"dynamic_table__{table.replace('.', '__')}"


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Iterator[dict[str, httpx.Client]]:
    address = stack.api.base_url.copy_with(path="/")
    logins = {user: {"authorization": f"Bearer {token}"} for user, token in stack.tokens.items()}
    clients = {
        user: httpx.Client(base_url=address, headers=login, timeout=60, trust_env=False)
        for user, login in {"anonymous": {}, **logins}.items()
    }
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture(scope="module", autouse=True)
def tables(stack: Stack) -> None:
    folder = stack.airflow.home.parent / "gateway"
    folder.mkdir()
    (folder / "numbers.json").write_text('{"x": 1}')
    for database in ("open", "closed"):
        stack.airflow.define(f"{database}.yaml", TABLES.replace("DATABASE", database).replace("FOLDER", str(folder)))
    for dag_id in (dag(OPEN), dag(CLOSED)):
        until("DAG", partial(has_dag, stack, dag_id))
        stack.unpause(dag_id)


@pytest.fixture(scope="module")
def schema(clients: dict[str, httpx.Client]) -> dict[str, Any]:
    return dict(clients["viewer"].get("/v3/openapi.json").raise_for_status().json())


ASKED = {"tables": [OPEN, CLOSED]}


@pytest.fixture(scope="module")
def job(clients: dict[str, httpx.Client]) -> str:
    answer = clients["user"].post(f"{ROOT}/refresh", json=ASKED, headers={"idempotency-key": "first"})
    assert answer.status_code == httpx.codes.OK, answer.text
    job_id = str(answer.json()["jobId"])
    until("end of the job", lambda: clients["user"].get(f"/v3/jobs/{job_id}").json()["ended"])
    return job_id


def test_a_refresh_by_rest_ends_in_a_version(stack: Stack, clients: dict[str, httpx.Client], job: str) -> None:
    ended = clients["viewer"].get(f"/v3/jobs/{job}").json()
    assert (ended["state"], ended["caller"]) == ("SUCCEEDED", "user"), ended
    refreshes = {refresh["table"]: refresh for refresh in ended["refreshes"]}
    assert set(refreshes) == {OPEN, CLOSED}
    for table in (OPEN, CLOSED):
        assert refreshes[table]["clusterInfo"] == {"clusterType": "airflow", "dagId": dag(table), "runId": f"rest__{job}"}
        run = stack.run(dag(table), f"rest__{job}")
        assert (run["run_type"], run["triggering_user_name"]) == ("manual", "user")
        (recorded,) = stack.airflow.refreshes(table)
        assert (recorded.token, recorded.version) == (refreshes[table]["token"], 1)
        assert stack.airflow.rows(table) == [{"x": 1}]


def test_a_key_makes_one_run_of_it(stack: Stack, clients: dict[str, httpx.Client], job: str) -> None:
    again = clients["user"].post(f"{ROOT}/refresh", json=ASKED, headers={"idempotency-key": "first"})
    assert again.json()["jobId"] == job
    assert [run["dag_run_id"] for run in stack.runs(dag(OPEN))] == [f"rest__{job}"]


def test_every_route_is_in_the_matrix_with_its_right(schema: dict[str, Any]) -> None:
    declared = {
        (method, path): operation["x-required-right"]
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }
    assert declared == {route: right or Right.READ for route, right in MATRIX.items()}


def expected(user: str, path: str, right: Right | None, table: str) -> str:
    """What becomes of a request for a table, or for the job of which the stranger may not see one."""
    if user == "anonymous":
        return "unauthenticated"
    if user == "viewer" and right not in (None, Right.READ):
        return "forbidden"
    if user == "stranger" and right is not None and table != OPEN:
        return "forbidden"
    return "hidden" if user == "stranger" and "job_id" in path else "answered"


@pytest.mark.parametrize(("method", "path"), MATRIX)
@pytest.mark.parametrize("user", WITHOUT)
def test_rights(clients: dict[str, httpx.Client], job: str, user: str, method: str, path: str) -> None:
    """Whoever may change or drop a table is tried with one that does not exist, and is told so."""
    right = MATRIX[method, path]
    for table in (OPEN, CLOSED):
        asked = table if method == "get" else f"{table}_nowhere"
        body = BODIES.get(path.rpartition("/")[2], {})
        if path.endswith("dynamic-tables/refresh"):
            body = {"tables": [asked]}
        url = path.format(table=asked, job_id=job)
        answer = clients[user].request(method, url, json=body if method == "post" else None)
        wanted = {"unauthenticated": 401, "forbidden": 403, "hidden": 404, "answered": 200 if method == "get" else 404}
        assert answer.status_code == wanted[expected(user, path, right, table)], (table, answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == answer.status_code


def test_of_a_table_that_one_may_not_look_at_nothing_is_told(clients: dict[str, httpx.Client]) -> None:
    hidden = (CLOSED, f"{CLOSED}_nowhere", "lake.nowhere.x", "no.no.no")
    texts = {clients["stranger"].get(f"{ROOT}/{table}").text.replace(table, "TABLE") for table in hidden}
    assert len(texts) == 1, texts
    listed = clients["stranger"].get(ROOT).json()["tables"]
    assert [table["identifier"] for table in listed] == [OPEN]
    assert clients["stranger"].get("/v3/jobs").json() == {"jobs": []}
    assert {table["identifier"] for table in clients["viewer"].get(ROOT).json()["tables"]} >= {OPEN, CLOSED}


@pytest.mark.usefixtures("job")
def test_suspending_pauses_the_dag_and_resuming_unpauses_it(stack: Stack, clients: dict[str, httpx.Client]) -> None:
    """By the rights of whoever asks: nobody has told the gateway of another login."""
    suspended = clients["user"].post(f"{ROOT}/{CLOSED}/suspend", json={"reason": "moving"}).json()
    assert (suspended["after"], suspended["workflow"]) == ("SUSPENDED", f"The DAG {dag(CLOSED)} is paused.")
    assert stack.get(f"/dags/{dag(CLOSED)}")["is_paused"]
    refused = clients["user"].post(f"{ROOT}/{CLOSED}/refresh", json={})
    assert (refused.status_code, "moving" in refused.json()["detail"]) == (409, True), refused.text
    would_wait = clients["user"].post(f"{ROOT}/{CLOSED}/refresh", json={"force": True})
    assert (would_wait.status_code, f"DAG {dag(CLOSED)} is paused" in would_wait.json()["detail"]) == (409, True), would_wait.text
    resumed = clients["user"].post(f"{ROOT}/{CLOSED}/resume", json={}).json()
    assert (resumed["after"], resumed["workflow"]) == ("RUNNING", f"The DAG {dag(CLOSED)} is unpaused.")
    assert not stack.get(f"/dags/{dag(CLOSED)}")["is_paused"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, 403), ("https://evil.example.org", 403), ("null", 403), ("own", 404)],
)
def test_a_cookie_is_taken_from_our_own_pages_alone(stack: Stack, origin: str | None, status: int) -> None:
    own = str(stack.api.base_url.copy_with(path="/")).rstrip("/")
    headers = {"origin": own if origin == "own" else origin} if origin else {}
    with httpx.Client(base_url=own, cookies={"_token": stack.tokens["admin"]}, trust_env=False, timeout=60) as browser:
        assert browser.get(ROOT).status_code == httpx.codes.OK
        answer = browser.post(f"{ROOT}/{OPEN}_nowhere/drop", json={}, headers=headers)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("token", ["x", "a.b.c", "\xe4"])
def test_a_token_that_is_none_is_refused(clients: dict[str, httpx.Client], token: str) -> None:
    header = f"Bearer {token}".encode("latin-1")
    assert clients["anonymous"].get(ROOT, headers={b"authorization": header}).status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.parametrize("examples", [2, pytest.param(100, marks=pytest.mark.long)])
def test_every_answer_is_as_described(stack: Stack, schema: dict[str, Any], examples: int) -> None:
    address = str(stack.api.base_url.copy_with(path="/")).rstrip("/")
    assert throw_garbage(schema, address, {"Authorization": f"Bearer {stack.tokens['admin']}"}, examples) >= 2 * len(MATRIX)
