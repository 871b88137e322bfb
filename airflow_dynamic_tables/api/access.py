"""Interfaces that the installer of the app provides: authentication, authorization, and the start of refreshes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fastapi.routing import APIRoute
from starlette.requests import Request

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.jobs import Job
from airflow_dynamic_tables.services.workspace import Workspace


class Right(StrEnum):
    """Rights on a table: read it, refresh it, suspend and resume it, or drop it."""

    READ = "read"
    REFRESH = "refresh"
    CHANGE = "change"
    DROP = "drop"


_RIGHT = "x-required-right"
"""The key of OpenAPI operations with the right that a route requires."""


def requires(right: Right) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route that requires a right to the tables that a request names."""
    return {_RIGHT: right.value}


def required_right(route: APIRoute) -> Right:
    """Return the right that a route requires.

    :raises LookupError: if the route declares none.
    """
    return Right((route.openapi_extra or {})[_RIGHT])


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: the name recorded in history and jobs, and data private to the :class:`Access` that made it."""

    name: str
    user: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GuardedTable:
    """A requested table and the workflow that refreshes it; the rights to the workflow (in Airflow, the DAG) decide.

    Neither has to exist. A caller without read access to the workflow does not learn whether the table exists.
    """

    identifier: TableIdentifier
    workflow_id: str


class Access(Protocol):
    """Authentication and authorization of callers."""

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI ``components.securitySchemes``; any one of them is sufficient."""
        ...

    async def caller(self, request: Request) -> Caller:
        """Return the caller of a request. Called once per request, before the body is read. Must not block the event loop.

        :raises UnauthenticatedError: if the credentials are missing or invalid.
        :raises ForbiddenError: if a browser sent the request from a page of another origin.
        """
        ...

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:
        """Return the tables for which the caller has the right; called in a thread, once for a complete page of tables."""
        ...


class Refresher(Protocol):
    """Runs the refreshes of jobs. It records the outcome of a job in the ledger with ``workspace.ledger.change_job``."""

    def start(self, workspace: Workspace, caller: Caller, job: Job) -> None:
        """Start the refreshes of a job that was just accepted, in order, and return immediately.

        Every refresh that begins has its ``cluster`` from then on. A refresher that delays a refresh renews the lease of the job.

        :raises ForbiddenError: if the caller has no right to start them; nothing was started.
        :raises ConflictError: if a refresh could not begin; nothing was started.
        :raises TooBusyError: if too many jobs are waiting already; nothing was started.
        """
        ...

    def look(self, workspace: Workspace, job: Job) -> None:
        """Update the state of the job's refreshes that have not ended, before the job is returned."""
        ...
