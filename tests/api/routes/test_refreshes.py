"""Wishes over HTTP become jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.jobs import RefreshWish, WorkState
from airflow_dynamic_tables.services.workspace import utc_now
from tests.support.gateway import Served

DAILY, MONTHLY = (TableIdentifier("lake", "sales", name) for name in ("daily", "monthly"))
SEED = {
    "tables": ["lake.sales.monthly", "lake.sales.daily"],
    "scheduleTime": "2024-01-02 00:00:00",
    "isPeriodic": True,
    "configuration": {},
}
REFRESH = "/v3/dynamic-tables/refresh"


def test_the_request_of_the_seed_is_answered_as_the_seed_says(gateway: Served, client: httpx.Client) -> None:
    answer = client.post(REFRESH, json=SEED)
    assert answer.status_code == 200
    (job,) = gateway.refresher.started
    assert answer.json() == {"jobId": job.id, "clusterInfo": {"clusterType": "nobody", "clusterId": "ann"}}
    assert answer.headers["location"] == f"/v3/jobs/{job.id}"
    assert (job.caller, job.wish) == ("ann", RefreshWish("2024-01-02T00:00:00", is_periodic=True))
    assert [refresh.table for refresh in job.refreshes] == [DAILY, MONTHLY]  # what is read, first


def test_a_wish_by_hand(gateway: Served, client: httpx.Client) -> None:
    answer = client.post("/v3/dynamic-tables/lake.sales.daily/refresh", json={"partition": "ds=2024-01-01", "force": True})
    assert answer.status_code == 202
    assert gateway.refresher.started[0].wish == RefreshWish(partition="ds=2024-01-01", is_forced=True)


def test_a_key_makes_one_job_of_its_caller(gateway: Served, client: httpx.Client) -> None:
    key = {"idempotency-key": "k1"}
    first, again = (client.post(REFRESH, json=SEED, headers=key).json() for _ in range(2))
    assert first == again
    other = client.post(REFRESH, json={**SEED, "isPeriodic": False}, headers=key)
    assert (other.status_code, other.json()["errors"][0]["field"]) == (422, "header.Idempotency-Key")
    eve = client.post(REFRESH, json=SEED, headers={**key, "authorization": "Bearer eve"}).json()
    assert eve["jobId"] != first["jobId"]
    assert len(gateway.refresher.started) == 2


def test_of_many_that_send_a_key_at_once_one_starts_the_job(gateway: Served, client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda _: client.post(REFRESH, json=SEED, headers={"idempotency-key": "k1"}), range(16))
        assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert len(gateway.refresher.started) == 1


def test_a_job_is_shown_to_who_may_look_at_all_of_its_tables(gateway: Served, client: httpx.Client) -> None:
    job_id = client.post(REFRESH, json=SEED).json()["jobId"]
    job = client.get(f"/v3/jobs/{job_id}", headers={"authorization": "Bearer eve"}).json()
    assert (job["state"], job["ended"], job["caller"]) == ("ACCEPTED", False, "ann")
    gateway.rights.refused.add(("eve", Right.READ, "daily"))
    assert client.get(f"/v3/jobs/{job_id}", headers={"authorization": "Bearer eve"}).status_code == 404
    assert client.get("/v3/jobs", headers={"authorization": "Bearer eve"}).json() == {"jobs": []}
    assert [one["jobId"] for one in client.get("/v3/jobs").json()["jobs"]] == [job_id]


@pytest.mark.parametrize(("began", "state"), [(False, "LOST"), (True, "RUNNING")])
def test_what_nobody_began_in_time_is_lost(gateway: Served, client: httpx.Client, began: bool, state: str) -> None:
    job_id = client.post(REFRESH, json={"tables": ["lake.sales.daily"]}).json()["jobId"]
    with gateway.workspace() as workspace:
        if began:
            workspace.ledger.change_job(job_id, DAILY, state=WorkState.RUNNING)
        workspace.ledger.renew_jobs([job_id], utc_now() - timedelta(seconds=1))
    job = client.get(f"/v3/jobs/{job_id}").json()
    assert job["state"] == state
    if not began:
        assert job["refreshes"][0]["error"] == "The server that accepted the job is gone; request the refresh again."
