"""What Airflow mounts for the REST gateway. Every process of Airflow imports this, so nothing is built before somebody asks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX = "/v3"
"""Where it is mounted; the paths of the gateway begin with it."""

log = logging.getLogger(__name__)


class Gateway:
    """The ASGI application that Airflow mounts. The gateway itself is built in a thread at the first request.

    When that fails, Airflow goes on without it: the request is answered by 503, and the next one tries again.
    """

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        try:
            application = await self._opened(scope["app"])
        except Exception:  # whatever is wrong with this installation, Airflow must go on
            log.exception("The REST gateway of dynamic tables cannot be opened.")
            await _answer_unavailable(scope, send)
            return
        # The gateway has the same paths with Airflow and without: it does not know that it is mounted.
        await application({**scope, "root_path": scope.get("app_root_path", ""), "path_params": {}}, receive, send)

    async def _opened(self, airflow: Any) -> Application:
        async with self._opening:
            if self._application is None:
                self._application = await asyncio.to_thread(_open, airflow)
            return self._application


def _open(airflow: Any) -> Application:
    from airflow_dynamic_tables.plugins.gateway.opening import open_gateway

    return open_gateway(airflow)


async def _answer_unavailable(scope: Scope, send: Send) -> None:
    """What every other problem looks like, without a line of the code that cannot be imported."""
    problem = {
        "type": "urn:airflow-dynamic-tables:problem:unavailable",
        "title": "Not now",
        "status": 503,
        "detail": "The gateway cannot be opened; the log of the api-server says why.",
        "instance": scope["path"],
    }
    headers = [(b"content-type", b"application/problem+json"), (b"retry-after", b"60")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})
