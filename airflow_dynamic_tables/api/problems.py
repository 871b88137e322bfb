"""RFC 9457 problem documents: every response with status 400 or higher is one, states what to do, and holds no secret."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogUnavailableError,
    CommitUnknownError,
    ConfigurationError,
    ConflictError,
    DefinitionError,
    DynamicTableError,
    ForbiddenError,
    InvalidFieldError,
    InvalidPartitionError,
    NotEmptyError,
    NotFoundError,
    QuarantinedError,
    SchedulerError,
    SchedulerUnavailableError,
    StageRejectedError,
    TooBusyError,
    UnauthenticatedError,
    UnsupportedError,
)

MEDIA_TYPE = "application/problem+json"

TYPES = {
    400: ("malformed", "The request is malformed"),
    401: ("unauthenticated", "The caller is not authenticated"),
    403: ("forbidden", "The caller lacks the required permission"),
    404: ("not-found", "The resource does not exist"),
    405: ("method-not-allowed", "The method is not allowed"),
    409: ("conflict", "The current state does not allow the request"),
    413: ("too-large", "The body is too large"),
    415: ("unsupported-media-type", "The body is not JSON"),
    421: ("misdirected", "The request was sent to the wrong server"),
    422: ("invalid", "The request is invalid"),
    500: ("unexpected", "An unexpected error occurred"),
    503: ("unavailable", "The service is temporarily unavailable"),
}
"""The ``type`` (after :data:`PREFIX`) and title of each status."""

PREFIX = "urn:airflow-dynamic-tables:problem:"

_STATUS: tuple[tuple[type[DynamicTableError], int], ...] = (
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (NotEmptyError, 409),
    (QuarantinedError, 409),
    (ConflictError, 409),
    (StageRejectedError, 409),
    (DefinitionError, 409),
    (InvalidPartitionError, 422),
    (UnsupportedError, 422),
    (SchedulerUnavailableError, 503),
    (SchedulerError, 409),
    (CatalogUnavailableError, 503),
    (TooBusyError, 503),
    (CommitUnknownError, 503),
    (ConfigurationError, 500),
)
"""Status by error class, subclasses before their base classes. Other errors are unexpected."""

RETRY_SECONDS = 5

_MISTAKES = 20
"""Maximum number of mistakes reported for one request."""

log = logging.getLogger(__name__)


class FieldProblem(BaseModel):
    """A problem with one field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"field": "body.tables", "detail": "write at least one table"}]})

    field: str = Field(description="The location, `body`, `query`, `path` or `header`, and the name of the field.")
    detail: str = Field(description="The problem with the field, and how to fix it.")


class Problem(BaseModel):
    """The error, and how to fix it (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": f"{PREFIX}not-found",
                    "title": "The resource does not exist",
                    "status": 404,
                    "detail": "Neither a definition nor a catalog has lake.sales.no_such_table.",
                    "instance": "/v3/dynamic-tables/lake.sales.no_such_table",
                }
            ]
        }
    )

    type: str = Field(description="The kind of problem; stable across releases.")
    title: str
    status: int
    detail: str
    instance: str = Field(description="The requested path.")
    errors: list[FieldProblem] | None = Field(default=None, description="The invalid fields, if there are any.")


def problem(
    status: int, path: str, detail: str, errors: Sequence[FieldProblem] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a problem response."""
    kind, title = TYPES[status]
    told = Problem(type=PREFIX + kind, title=title, status=status, detail=detail, instance=path, errors=list(errors) or None)
    extra = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    if status == 401:
        extra = {"WWW-Authenticate": 'Bearer realm="dynamic-tables"'}
    content = told.model_dump(exclude_none=True)
    return JSONResponse(content, status, headers={**extra, **(headers or {})}, media_type=MEDIA_TYPE)


def problem_of(error: Exception, path: str) -> JSONResponse:
    """Return the problem response for an error; the details of unexpected errors are only logged."""
    if isinstance(error, InvalidFieldError):
        told = FieldProblem(field=error.field, detail=str(error))
        return problem(422, path, shown(f"{told.field}: {told.detail}"), [told])
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status != 500 or isinstance(error, ConfigurationError):
        return problem(status, path, shown(str(error)))
    number = uuid4().hex[:12]
    log.error("Request for %s failed (%s).", path, number, exc_info=error)
    return problem(
        500, path, f"The request is not the cause. Ask the administrator of the server to look for {number} in its log."
    )


def add_handlers(app: FastAPI) -> None:
    """Make an app answer every error with a problem."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(DynamicTableError, _failed)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return problem_of(error, request.url.path)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Handle requests that the framework rejects: unknown path, wrong method, unreadable body."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 404:
        return problem(404, path, "There is no such path; openapi.json lists all paths.")
    if status == 405:
        allowed = (headers or {}).get("Allow", "another method")
        return problem(405, path, f"{request.method} is not allowed here; use {allowed}.", headers=headers)
    if status in TYPES:
        return problem(status, path, "The body cannot be read; send JSON in UTF-8.", headers=headers)
    return problem(500, path, "The framework rejected the request with an unexpected status.")


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    mistakes = error.errors() if isinstance(error, RequestValidationError) else []
    path = request.url.path
    if any(mistake["type"] == "json_invalid" for mistake in mistakes):
        where = next(mistake["loc"][-1] for mistake in mistakes if mistake["type"] == "json_invalid")
        why = next(mistake.get("ctx", {}).get("error", "") for mistake in mistakes if mistake["type"] == "json_invalid")
        return problem(400, path, f"The body is not JSON: {why} at character {where}.")
    if _is_no_json(request, mistakes):
        return problem(415, path, "Send the body as JSON, with the header Content-Type: application/json.")
    errors = [FieldProblem(field=_place(mistake["loc"]), detail=_advice(mistake)) for mistake in mistakes[:_MISTAKES]]
    told = "; ".join(f"{one.field}: {one.detail}" for one in errors)
    return problem(422, path, shown(told), errors)


def _is_no_json(request: Request, mistakes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the body had another content type, which the framework parses as text."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = declared == "application/json" or declared.endswith("+json")
    return not is_json and any(mistake["loc"] == ("body",) and mistake["type"] != "missing" for mistake in mistakes)


def _place(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location)


def _advice(mistake: Mapping[str, Any]) -> str:
    """Describe what is wrong, in our words where the library gives no advice. The sent value is omitted: it may be a secret."""
    context = mistake.get("ctx") or {}
    kind = mistake["type"]
    told = {
        "missing": "is required; add it",
        "extra_forbidden": "is unknown; remove it, or look up the correct name in openapi.json",
    }.get(kind)
    if told is None and kind == "value_error":
        told = str(context.get("error", ""))
    return told or str(mistake["msg"])[:1].lower() + str(mistake["msg"])[1:]
