"""Routes that accept refresh jobs and report on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path, Query, Response

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.api.desk import AtDesk, Desk
from airflow_dynamic_tables.api.jobs import AcceptedJob, JobStatus, accept, accepted, look, status
from airflow_dynamic_tables.api.questions import Key, Name, SchedulerRefresh, TableRefresh, parsed_name
from airflow_dynamic_tables.api.results import ResultRouter
from airflow_dynamic_tables.exceptions import InvalidFieldError, NotFoundError
from airflow_dynamic_tables.ledger.jobs import Job, RefreshWish

router = ResultRouter()

_ONE_WAY = "partition and full_refresh exclude each other, and a periodic refresh has neither; give one of them"


@dataclass(frozen=True, slots=True)
class JobPage:
    """The latest jobs, newest first."""

    jobs: tuple[JobStatus, ...]


JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$", description="The `jobId` of the response.")]


@router.post("/v3/dynamic-tables/refresh", summary="Refresh tables for a workflow scheduler")
def refresh_tables(desk: AtDesk, wish: SchedulerRefresh, response: Response, key: Key = None) -> AcceptedJob:
    """Start refreshes of one or more tables, parents first, and return at once."""
    told = wish.configuration
    if bool(told.partition) + told.full_refresh + wish.is_periodic > 1:
        raise InvalidFieldError("body.configuration", _ONE_WAY)
    wanted = RefreshWish(wish.schedule_time, wish.is_periodic, told.partition, told.full_refresh)
    return _answered(accept(desk, [parsed_name(table) for table in wish.tables], wanted, key), response)


@router.post("/v3/dynamic-tables/{table}/refresh", status_code=202, summary="Refresh a table")
def refresh_table(desk: AtDesk, table: Name, wish: TableRefresh, response: Response, key: Key = None) -> AcceptedJob:
    """Start a refresh that a user requests, and return at once."""
    if wish.partition and wish.full_refresh:
        raise InvalidFieldError("body.partition", "partition and fullRefresh exclude each other; give one of them")
    known = desk.table(table, Right.REFRESH)
    wanted = RefreshWish(wish.schedule_time, False, wish.partition, wish.full_refresh, wish.force)
    return _answered(accept(desk, [known.identifier], wanted, key), response)


def _answered(job: Job, response: Response) -> AcceptedJob:
    response.headers["Location"] = f"/v3/jobs/{job.id}"
    return accepted(job)


@router.get("/v3/jobs", summary="List the latest jobs")
def list_jobs(desk: AtDesk, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> JobPage:
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
