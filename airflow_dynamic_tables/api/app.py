"""The FastAPI app: routes, the OpenAPI document, and the middleware that authenticates and limits requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_dynamic_tables.api import jobs, routes
from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.api.problems import MEDIA_TYPE, TYPES, Problem, add_handlers, problem, problem_of
from airflow_dynamic_tables.api.results import models
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import InvalidFieldError

BODY_BYTES = 200_000
"""Maximum size of a body; a hundred tables with long names take half of it."""

BODY_SECONDS = 30.0
"""Maximum time to receive a body, because a client that sends it byte by byte occupies a slot."""

_OPEN = ("/v3/openapi.json",)
"""Paths without authentication; they reveal nothing about this installation."""


class _TooLargeError(Exception):
    """The body exceeds the maximum size."""


class Gate:
    """Admits authenticated requests, a bounded number at a time.

    Nothing of a request is read or looked up before authentication, so an unauthenticated caller learns nothing else.
    """

    def __init__(self, app: ASGIApp, gateway: AppComponents) -> None:
        self._app = app
        self._gateway = gateway
        self._places = asyncio.Semaphore(gateway.at_once)
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = _Sent(send)
        try:
            refusal = await self._let_in(scope, receive, sent)
        except Exception as error:
            if sent.has_begun:
                raise
            refusal = problem_of(error, scope["path"])
        if refusal is not None:
            await refusal(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        path = scope["path"]
        request = Request(scope)
        if path not in _OPEN:
            request.state.caller = await self._gateway.access.caller(request)
        if self._inside >= self._gateway.at_once + self._gateway.waiting:
            return problem(503, path, "Too many requests are waiting already; try again in a few seconds.")
        self._inside += 1
        try:
            body = await _read(request, receive)
            if (twice := _repeated_key(body)) is not None:
                return problem(400, path, f"The body has the key {shown(repr(twice))} twice; write it once.")
            async with self._places:
                await self._app(scope, _again(body, receive), send)
        except _TooLargeError:
            return problem(413, path, f"A body may have at most {BODY_BYTES} bytes; refresh fewer tables with one request.")
        except TimeoutError:
            return problem(400, path, f"The body did not arrive within {BODY_SECONDS:g} seconds.")
        finally:
            self._inside -= 1
        return None


class _Sent:
    """Forwards a response and records whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)


async def _read(request: Request, receive: Receive) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > BODY_BYTES:
        raise _TooLargeError
    body = b""
    async with asyncio.timeout(BODY_SECONDS):
        while True:
            message = await receive()
            part: bytes = message.get("body", b"")
            body += part
            if len(body) > BODY_BYTES:
                raise _TooLargeError
            if not message.get("more_body", False):
                return body


class _RepeatedKeyError(Exception):
    """A key occurs twice in a JSON object."""


def _repeated_key(body: bytes) -> str | None:
    """Return a key that occurs twice in an object of the body. Invalid JSON is left to the routes."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        read = dict(pairs)
        if len(read) < len(pairs):
            names = [name for name, _ in pairs]
            raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
        return read

    try:
        json.loads(body, object_pairs_hook=once)
    except _RepeatedKeyError as error:
        return str(error)
    except (ValueError, RecursionError):
        return None
    return None


def _again(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Replay a body that was already read, then forward further messages."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


_DESCRIPTION = """Tables that keep themselves fresh: show, refresh, suspend, resume and drop them.

A refresh is a job: the request returns its ID at once, and `GET /v3/jobs/{jobId}` returns its state.
Errors are problem documents of RFC 9457; each says how to fix the problem."""


def make_app(gateway: AppComponents) -> FastAPI:
    """Return the app of an installation. Its paths begin with ``/v3``; it must be mounted so that they are kept.

    The routes are plain functions, which Starlette runs in threads, so the event loop is never blocked.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        gateway.workspaces.close()

    app = FastAPI(
        title="Dynamic tables",
        version=version("airflow-dynamic-tables"),
        description=_DESCRIPTION,
        openapi_url="/v3/openapi.json",
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        lifespan=lifespan,
        responses={status: _problem(status) for status in (400, 401, 403, 500, 503)},
        redirect_slashes=False,
        dependencies=[Depends(_check_parameters)],
    )
    app.state.gateway = gateway
    for router in (jobs.router, routes.router):
        app.include_router(router)
    add_handlers(app)
    app.add_middleware(Gate, gateway=gateway)
    _describe(app, gateway)
    app.openapi()  # generate it now, so that two concurrent requests do not
    return app


def _check_parameters(request: Request) -> None:
    """Reject query parameters that OpenAPI does not define or that occur twice, so that a mistyped filter is not ignored."""
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            raise InvalidFieldError(f"query.{name}", "is unknown; remove it, or look up the correct name in openapi.json")
        if times > 1:
            raise InvalidFieldError(f"query.{name}", "is given more than once; give it once")


def _problem(status: int) -> dict[str, Any]:
    return {"description": TYPES[status][1], "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _describe(app: FastAPI, gateway: AppComponents) -> None:
    made = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            components = schema.setdefault("components", {})
            components["securitySchemes"] = {name: dict(how) for name, how in gateway.access.security_schemes.items()}
            schema["security"] = [{name: []} for name in gateway.access.security_schemes]
            models = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            components.setdefault("schemas", {}).update({**models.pop("$defs", {}), "Problem": models})
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            _name_problems(schema)
            _complete_examples(components["schemas"])
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _complete_examples(schemas: dict[str, Any]) -> None:
    """Restore the null values that FastAPI drops from examples, where they are meaningful."""
    for model in models():
        extra = model.model_config.get("json_schema_extra")
        if model.__name__ in schemas and isinstance(extra, dict):
            schemas[model.__name__]["examples"] = extra["examples"]


def _name_problems(schema: dict[str, Any]) -> None:
    """Declare the problem responses (404, 405 and so on) of every route, including those that the framework answers itself."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            of_a_table = "{table}" in path or method == "post"
            found = [404] if "{" in path or method == "post" else []
            also = [422, *found, *([409] if of_a_table else []), *([413, 415] if method == "post" else [])]
            operation["responses"].update({str(status): _problem(status) for status in also})
