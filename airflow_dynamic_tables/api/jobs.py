"""Refresh jobs: their routes, and how they are accepted, started and monitored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from uuid import uuid4

from fastapi import Path, Query, Response

from airflow_dynamic_tables.api.access import Right, requires
from airflow_dynamic_tables.api.desk import AtDesk, Desk, KnownTable
from airflow_dynamic_tables.api.questions import Key, Name, SchedulerRefresh, TableRefresh, parsed_name
from airflow_dynamic_tables.api.results import ResultRouter
from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.cycles import needed_first
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import check_spec
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    InvalidFieldError,
    NotFoundError,
    TooBusyError,
)
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.services.refresh.requests import asked_time, parse_partitions

LEASE = timedelta(minutes=2)
"""How long a job that has not begun belongs to its server without a renewal."""

_GONE = "The server that accepted the job is gone; request the refresh again."


@dataclass(frozen=True, slots=True)
class AcceptedJob:
    """The job that was accepted; `GET /v3/jobs/{jobId}` returns its state."""

    job_id: str
    cluster_info: Mapping[str, str]
    """The worker of its first table."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of refreshes that were requested together. The token of each identifies it in the history."""

    job_id: str
    state: WorkState
    ended: bool
    """Whether the state is final."""
    accepted_at: datetime
    caller: str
    refreshes: tuple[JobRefresh, ...]


def accept(desk: Desk, tables: Sequence[TableIdentifier], wish: RefreshWish, key: str | None) -> Job:
    """Create a job and start it, or return the one that the caller created earlier with the same key.

    :raises ForbiddenError: if the caller may not refresh one of the tables; none is refreshed.
    :raises InvalidFieldError: if the request does not fit a table, or the key was used for another request.
    :raises ConflictError: if a table is suspended, or the refresher cannot begin.
    :raises TooBusyError: if too many jobs are waiting already.
    """
    known = desk.tables(tables)
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
        raise InvalidFieldError(
            "header.Idempotency-Key", "was already used for another request; choose a new key for each request"
        )
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
    """Return the current state of a job."""
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


def accepted(job: Job) -> AcceptedJob:
    """Return the response for an accepted job."""
    return AcceptedJob(job.id, next((refresh.cluster_info for refresh in job.refreshes if refresh.cluster_info), {}))


def status(job: Job) -> JobStatus:
    """Return the public state of a job."""
    return JobStatus(job.id, job.state, job.state.is_end, job.accepted_at, job.caller, job.refreshes)


def _digest(tables: Iterable[TableIdentifier], wish: RefreshWish) -> str:
    asked = json.dumps([sorted(map(str, tables)), to_plain(wish)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def _in_order(tables: Sequence[KnownTable]) -> list[TableIdentifier]:
    names = {table.identifier for table in tables}
    return needed_first({table.identifier: sorted(names & {*table.upstream}) for table in tables})


def _check(table: KnownTable, wish: RefreshWish, now: datetime) -> None:
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


router = ResultRouter()

_ONE_WAY = "partition and full_refresh exclude each other, and a periodic refresh has neither; give one of them"


@dataclass(frozen=True, slots=True)
class JobPage:
    """The latest jobs, newest first."""

    jobs: tuple[JobStatus, ...]


JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$", description="The `jobId` of the response.")]


@router.post(
    "/v3/dynamic-tables/refresh", summary="Refresh tables for a workflow scheduler", openapi_extra=requires(Right.REFRESH)
)
def refresh_tables(desk: AtDesk, wish: SchedulerRefresh, response: Response, key: Key = None) -> AcceptedJob:
    """Start refreshes of one or more tables, parents first, and return at once."""
    told = wish.configuration
    if bool(told.partition) + told.full_refresh + wish.is_periodic > 1:
        raise InvalidFieldError("body.configuration", _ONE_WAY)
    wanted = RefreshWish(wish.schedule_time, wish.is_periodic, told.partition, told.full_refresh)
    return _answered(accept(desk, [parsed_name(table) for table in wish.tables], wanted, key), response)


@router.post(
    "/v3/dynamic-tables/{table}/refresh", status_code=202, summary="Refresh a table", openapi_extra=requires(Right.REFRESH)
)
def refresh_table(desk: AtDesk, table: Name, wish: TableRefresh, response: Response, key: Key = None) -> AcceptedJob:
    """Start a refresh that a user requests, and return at once."""
    if wish.partition and wish.full_refresh:
        raise InvalidFieldError("body.partition", "partition and fullRefresh exclude each other; give one of them")
    known = desk.table(table)
    wanted = RefreshWish(wish.schedule_time, False, wish.partition, wish.full_refresh, wish.force)
    return _answered(accept(desk, [known.identifier], wanted, key), response)


def _answered(job: Job, response: Response) -> AcceptedJob:
    response.headers["Location"] = f"/v3/jobs/{job.id}"
    return accepted(job)


@router.get("/v3/jobs", summary="List the latest jobs")
def list_jobs(
    desk: AtDesk, limit: Annotated[int, Query(ge=1, le=100, description="The maximum number of jobs.")] = 20
) -> JobPage:
    """The latest jobs, newest first, with their last known state. Jobs with a table that the caller may not read are omitted."""
    return JobPage(tuple(status(job) for job in desk.workspace.ledger.list_jobs(limit) if _may_see(desk, job)))


@router.get("/v3/jobs/{job_id}", summary="Show a job")
def one_job(desk: AtDesk, job_id: JobId) -> JobStatus:
    """The state of a job. Repeat the request until `ended` is true. Requires read access to all tables of the job."""
    job = desk.workspace.ledger.get_job(job_id)
    if job is None or not _may_see(desk, job):
        raise NotFoundError("There is no such job, it has expired, or you may not read all of its tables.")
    return status(look(desk, job))


def _may_see(desk: Desk, job: Job) -> bool:
    return desk.may_read([refresh.table for refresh in job.refreshes])
