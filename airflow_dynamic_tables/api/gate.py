"""ASGI middleware before the routes: authentication, limits on concurrency, and limits on request bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.api.problems import problem, problem_of
from airflow_dynamic_tables.core.mistakes import shown

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
        """Have the request answered, or answer with the reason why not."""
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
    """Return the complete body.

    :raises TimeoutError: if it does not arrive in time.
    """
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
