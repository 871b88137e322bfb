"""Jobs: asynchronous refresh requests, stored so that callers can query their state later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, delete, insert, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import job_refreshes, jobs
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.redaction import without_secrets


class WorkState(StrEnum):
    """State of a job: ACCEPTED until a worker starts it, RUNNING, or its result; LOST when its worker disappeared."""

    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def is_end(self) -> bool:
        """Whether the state is final."""
        return self not in (WorkState.ACCEPTED, WorkState.RUNNING)


@dataclass(frozen=True, slots=True)
class RefreshWish:
    """A refresh request. ``schedule_time`` is ISO 8601, in the time zone of each table when it names none.

    ``is_periodic`` is set by schedulers, which send it at every tick; ``is_forced`` also refreshes suspended tables.
    ``partition`` is text such as ``ds=2024-01-01,ds=2024-01-02``.
    """

    schedule_time: str | None = None
    is_periodic: bool = False
    partition: str | None = None
    full_refresh: bool = False
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class JobRefresh:
    """The refresh of one table.

    ``token`` identifies it in the history, once known; ``cluster_info`` names the worker.
    """

    table: TableIdentifier
    token: str | None = None
    state: WorkState = WorkState.ACCEPTED
    cluster_info: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Refreshes that were requested together, in the order of execution.

    ``key`` is an idempotency key chosen by the caller: a repeated request with it returns this job. ``digest`` covers the
    request, so that reuse of a key for another request is detected. A refresh that has not started when ``lease_until`` is
    over never will; the process that queues it renews the lease.
    """

    id: str
    caller: str
    accepted_at: datetime
    lease_until: datetime
    wish: RefreshWish
    refreshes: tuple[JobRefresh, ...]
    key: str | None = None
    digest: str = ""

    @property
    def state(self) -> WorkState:
        """The combined state: final when all refreshes are, and then the worst of them."""
        states = {refresh.state for refresh in self.refreshes}
        if not all(state.is_end for state in states):
            return WorkState.ACCEPTED if states == {WorkState.ACCEPTED} else WorkState.RUNNING
        order = (WorkState.LOST, WorkState.FAILED, WorkState.SUCCEEDED, WorkState.SKIPPED)
        return next(state for state in order if state in states)


class JobRefreshChanges(TypedDict, total=False):
    """Fields of the refresh of a job that may change."""

    token: str
    state: WorkState
    cluster: Mapping[str, str]
    error: str | None


class SqlJobs:
    """The part of the ledger that stores jobs."""

    _database: Database

    def add_job(self, job: Job) -> Job:
        """Insert a job atomically, unless its caller already used its key.

        :return: the job itself, or the existing job with the key; then nothing is inserted.
        """
        values = {
            "id": job.id,
            "caller": job.caller,
            "accepted_at": job.accepted_at,
            "lease_until": job.lease_until,
            "wish": to_plain(job.wish),
            "idempotency_key": job.key,
            "digest": job.digest,
        }
        with self._database.transaction() as connection:
            statement = self._database.insert(jobs).values(values).on_conflict_do_nothing().returning(jobs.c.id)
            if connection.scalar(statement) is None:
                return _found(connection, select(jobs).where(_is_of(job.caller, job.key)))[0]
            numbered = enumerate(job.refreshes)
            connection.execute(insert(job_refreshes), [{"job_id": job.id, **_row(number, one)} for number, one in numbered])
            return job

    def remove_job(self, job_id: str) -> None:
        """Delete a rejected job, so that its key can be used again."""
        with self._database.transaction() as connection:
            connection.execute(delete(job_refreshes).where(job_refreshes.c.job_id == job_id))
            connection.execute(delete(jobs).where(jobs.c.id == job_id))

    def find_job(self, caller: str, key: str) -> Job | None:
        """Return the job that a caller created with a key."""
        with self._database.transaction() as connection:
            return next(iter(_found(connection, select(jobs).where(_is_of(caller, key)))), None)

    def get_job(self, job_id: str) -> Job | None:
        """Return a job."""
        with self._database.transaction() as connection:
            return next(iter(_found(connection, select(jobs).where(jobs.c.id == job_id))), None)

    def list_jobs(self, limit: int = 20) -> list[Job]:
        """Return the latest jobs, newest first."""
        query = select(jobs).order_by(jobs.c.accepted_at.desc(), jobs.c.id.desc()).limit(limit)
        with self._database.transaction() as connection:
            return _found(connection, query)

    def renew_jobs(self, job_ids: Collection[str], until: datetime) -> None:
        """Renew the leases of jobs until a time."""
        with self._database.transaction() as connection:
            connection.execute(update(jobs).where(jobs.c.id.in_(job_ids)).values(lease_until=until))

    def change_job(self, job_id: str, table: TableIdentifier, **changes: Unpack[JobRefreshChanges]) -> None:
        """Change some fields of a refresh of a job, unless it is in a final state."""
        of_table = (job_refreshes.c.job_id == job_id) & (job_refreshes.c.table_name == str(table))
        goes_on = job_refreshes.c.state.in_([state for state in WorkState if not state.is_end])
        with self._database.transaction() as connection:
            connection.execute(update(job_refreshes).where(of_table, goes_on).values(_columns(dict(changes))))


def prune_jobs(connection: Connection, before: datetime) -> None:
    """Delete jobs older than that, with their keys."""
    old = select(jobs.c.id).where(jobs.c.accepted_at < before)
    connection.execute(delete(job_refreshes).where(job_refreshes.c.job_id.in_(old)))
    connection.execute(delete(jobs).where(jobs.c.accepted_at < before))


def _is_of(caller: str, key: str | None) -> ColumnElement[bool]:
    return (jobs.c.caller == caller) & (jobs.c.idempotency_key == key)


def _found(connection: Connection, wanted: Select[Any]) -> list[Job]:
    rows = connection.execute(wanted).mappings().all()
    of_these = job_refreshes.c.job_id.in_([row["id"] for row in rows])
    query = select(job_refreshes).where(of_these).order_by(job_refreshes.c.job_id, job_refreshes.c.ordinal)
    refreshes: dict[str, list[JobRefresh]] = {}
    for row in connection.execute(query).mappings():
        refreshes.setdefault(row["job_id"], []).append(_refresh(row))
    return [
        Job(
            id=row["id"],
            caller=row["caller"],
            accepted_at=row["accepted_at"],
            lease_until=row["lease_until"],
            wish=from_plain(RefreshWish, row["wish"]),
            refreshes=tuple(refreshes.get(row["id"], ())),
            key=row["idempotency_key"],
            digest=row["digest"],
        )
        for row in rows
    ]


def _refresh(row: RowMapping) -> JobRefresh:
    state = WorkState(row["state"])
    return JobRefresh(TableIdentifier.parse(row["table_name"]), row["token"], state, row["cluster"], row["error"])


def _row(number: int, refresh: JobRefresh) -> dict[str, Any]:
    changeable = {"token": refresh.token, "state": refresh.state, "cluster": refresh.cluster_info, "error": refresh.error}
    return {"ordinal": number, "table_name": str(refresh.table), **_columns(changeable)}


def _columns(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields to columns; PostgreSQL rejects NUL characters, which the last output of a process may contain."""
    columns = {name: to_plain(value) for name, value in changes.items()}
    if error := columns.get("error"):
        columns["error"] = without_secrets(error).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return columns
