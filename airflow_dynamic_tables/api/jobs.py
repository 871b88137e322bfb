"""Jobs: a wish to refresh tables is accepted, started, and looked after until it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from pydantic import Field

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.api.answers import TABLE, TIME, Answer, examples
from airflow_dynamic_tables.api.desk import Desk, KnownTable
from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.circles import needed_first
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.tables.partitions import check_spec
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, ForbiddenError, InvalidFieldError, TooBusyError
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.services.refresh.requests import asked_time, parse_partitions

LEASE = timedelta(minutes=2)
"""How long a job is its server's that has not begun it, without a sign of life."""

_GONE = "The server that had accepted it is gone; ask for it again."


class Accepted(Answer):
    """The job that was made of a wish; `GET /v3/jobs/{jobId}` says how it stands."""

    model_config = examples(
        {"jobId": "0b8fcf1e8c0f4f0c8d52c0d6f6f2f5a4", "clusterInfo": {"clusterType": "process", "clusterId": "worker-1"}}
    )

    job_id: str
    cluster_info: dict[str, str] = Field(description="What works on its first table, and where.")


class JobRefreshAnswer(Answer):
    """One table of a job. `token` finds its refresh in the history."""

    model_config = examples(
        {
            "table": TABLE,
            "state": "RUNNING",
            "token": "3f1d6a5e-1c1b-4b1c-9d5e-0a4c8a1f7f11",
            "clusterInfo": {"clusterType": "process", "clusterId": "worker-1"},
            "error": None,
        }
    )

    table: str
    state: str = Field(description="ACCEPTED, RUNNING, SUCCEEDED, SKIPPED, FAILED, or LOST: whoever worked on it is gone.")
    token: str | None
    cluster_info: dict[str, str]
    error: str | None


class JobAnswer(Answer):
    """Refreshes that were asked for together."""

    model_config = examples(
        {
            "jobId": "0b8fcf1e8c0f4f0c8d52c0d6f6f2f5a4",
            "state": "RUNNING",
            "ended": False,
            "acceptedAt": TIME,
            "caller": "ann",
            "refreshes": [],
        }
    )

    job_id: str
    state: str
    ended: bool = Field(description="Whether nothing more becomes of it: then there is no need to ask again.")
    accepted_at: datetime
    caller: str
    refreshes: list[JobRefreshAnswer]


class JobsAnswer(Answer):
    """The latest jobs, newest first."""

    model_config = examples({"jobs": []})

    jobs: list[JobAnswer]


def accept(desk: Desk, tables: Sequence[TableIdentifier], wish: RefreshWish, key: str | None) -> Job:
    """Make a job and start it; or give the one that the caller made with that key.

    :raises ForbiddenError: when the caller may not refresh one of the tables; none is refreshed then.
    :raises InvalidFieldError: when the wish does not fit a table, or the key was used for something else.
    :raises ConflictError: when a table is suspended, or what refreshes them cannot begin.
    :raises TooBusyError: when too many jobs wait already.
    """
    known = desk.tables(tables, Right.REFRESH)
    digest = _digest(tables, wish)
    now = desk.workspace.now()
    refreshes = tuple(JobRefresh(table) for table in _in_order(known))
    job = Job(uuid4().hex, desk.caller.name, now, now + LEASE, wish, refreshes, key, digest)
    repeated = desk.workspace.ledger.find_job(job.caller, job.key) if job.key else None
    if repeated is None:
        for table in known:
            _check(table, wish, now)
        repeated = desk.workspace.ledger.add_job(job)
    if repeated.digest != digest:
        raise InvalidFieldError("header.Idempotency-Key", "was used for another wish already; choose a new one for each")
    if repeated.id == job.id:
        _start(desk, job)
    return desk.workspace.ledger.get_job(repeated.id) or repeated


def _start(desk: Desk, job: Job) -> None:
    try:
        desk.gateway.refresher.start(desk.workspace, desk.caller, job)
    except (ForbiddenError, ConflictError, TooBusyError):
        desk.workspace.ledger.remove_job(job.id)
        raise


def look(desk: Desk, job: Job) -> Job:
    """A job as it stands now."""
    if job.state.is_end:
        return job
    ledger = desk.workspace.ledger
    desk.gateway.refresher.look(desk.workspace, job)
    now = ledger.get_job(job.id) or job
    if now.lease_until > desk.workspace.now() or not any(one.state is WorkState.ACCEPTED for one in now.refreshes):
        return now
    for refresh in now.refreshes:
        if refresh.state is WorkState.ACCEPTED:
            ledger.change_job(job.id, refresh.table, state=WorkState.LOST, error=_GONE)
    return ledger.get_job(job.id) or now


def accepted(job: Job) -> Accepted:
    """The answer to who asked for a job."""
    clusters = (dict(refresh.cluster) for refresh in job.refreshes if refresh.cluster)
    return Accepted(job_id=job.id, cluster_info=next(clusters, {}))


def answer(job: Job) -> JobAnswer:
    """A job, as it is shown."""
    refreshes = [
        JobRefreshAnswer(
            table=str(refresh.table),
            state=refresh.state,
            token=refresh.token,
            cluster_info=dict(refresh.cluster),
            error=refresh.error,
        )
        for refresh in job.refreshes
    ]
    return JobAnswer(
        job_id=job.id,
        state=job.state,
        ended=job.state.is_end,
        accepted_at=job.accepted_at,
        caller=job.caller,
        refreshes=refreshes,
    )


def _digest(tables: Iterable[TableIdentifier], wish: RefreshWish) -> str:
    asked = json.dumps([sorted(map(str, tables)), to_plain(wish)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def _in_order(tables: Sequence[KnownTable]) -> list[TableIdentifier]:
    """The tables, each after those that it reads."""
    names = {table.identifier for table in tables}
    return needed_first({table.identifier: sorted(names & {*table.upstream}) for table in tables})


def _check(table: KnownTable, wish: RefreshWish, now: datetime) -> None:
    """Refuse what would fail for sure, while the caller still listens."""
    declared = table.declaration
    state = table.entry.refresh_handler.job_state if table.entry is not None else None
    if state is JobState.SUSPENDED and not wish.is_forced and not wish.is_periodic:
        because = table.entry.refresh_handler.suspended_because if table.entry is not None else ""
        told = f" ({because})" if because else ""
        raise ConflictError(f"{table.identifier} is suspended{told}; resume it, or refresh it with force.")
    if wish.schedule_time is not None:
        try:
            asked_time(datetime.fromisoformat(wish.schedule_time), declared, now)
        except ConfigurationError as error:
            raise InvalidFieldError("body.scheduleTime", str(error)) from error
    if wish.partition is not None:
        _check_partitions(table, wish.partition)


def _check_partitions(table: KnownTable, partitions: str) -> None:
    try:
        for spec in parse_partitions(partitions, table.declaration.formatters):
            check_spec(spec, table.declaration.partition_keys)
    except ValueError as error:
        raise InvalidFieldError("body.partition", f"{table.identifier}: {error}") from error
