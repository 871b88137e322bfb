"""What a route asks of whoever installed the app: who calls, what the caller may do with which table, and to start a refresh."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from starlette.requests import Request

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.jobs import Job
from airflow_dynamic_tables.services.workspace import Workspace


class Right(StrEnum):
    """What somebody may do with a table: look at it, refresh it, suspend and resume it, or drop it."""

    READ = "read"
    REFRESH = "refresh"
    CHANGE = "change"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the name by which history and jobs tell of it, and what only the :class:`Access` that made it looks at."""

    name: str
    user: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GuardedTable:
    """A table that somebody asks for, and the workflow that refreshes it, in Airflow the DAG, whose rights decide.

    Neither need exist: who may not look at that workflow is not told whether the table does.
    """

    identifier: TableIdentifier
    workflow_id: str


class Access(Protocol):
    """Who calls, and what the caller may do."""

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """The ways to log in, as OpenAPI has them below ``components.securitySchemes``; each of them suffices."""
        ...

    async def caller(self, request: Request) -> Caller:
        """Who sent a request; asked once for each, before its body is read. Never blocks the event loop.

        :raises UnauthenticatedError: when it does not say, or lies.
        :raises ForbiddenError: when a browser sent it from a page of somebody else.
        """
        ...

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:
        """Those of the tables with which the caller may do that; called in a thread, once for a whole page of tables."""
        ...


class Refresher(Protocol):
    """What refreshes tables. It writes into the ledger what becomes of a job: ``workspace.ledger.change_job``."""

    def start(self, workspace: Workspace, caller: Caller, job: Job) -> None:
        """Start the refreshes of a job that was just accepted, in their order, and return at once.

        Every refresh that is begun has its ``cluster`` from then on. What holds one back renews the lease of the job.

        :raises ForbiddenError: when the caller may not; nothing was started then.
        :raises ConflictError: when a refresh would not begin; nothing was started then.
        :raises TooBusyError: when too many jobs wait already; nothing was started then.
        """
        ...

    def look(self, workspace: Workspace, job: Job) -> None:
        """Find out what became of the refreshes of a job that have not ended, before somebody is told."""
        ...
