"""The ASGI application of the REST gateway; all Airflow processes import it, so the gateway is built on first use."""

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
"""Mount path, and prefix of all gateway paths."""

log = logging.getLogger(__name__)


class Gateway:
    """The ASGI application mounted in Airflow. It builds the gateway in a thread at the first request.

    On failure, Airflow is not affected: the response is 503, and the next request tries again.

    :param is_open: otherwise the response to each request is 404.
    """

    def __init__(self, *, is_open: bool = True) -> None:
        self._is_open = is_open
        self._opening = asyncio.Lock()
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        if not self._is_open:
            await _answer(scope, send, 404, "not-found", "Not found", "Option gateway of section [dynamic_tables] closes this.")
            return
        try:
            application = await self._opened(scope["app"])
        except Exception:  # an invalid installation must not affect Airflow
            log.exception("The REST gateway of dynamic tables cannot be opened.")
            detail = "The gateway cannot be opened; the log of the api-server says why."
            await _answer(scope, send, 503, "unavailable", "The service is temporarily unavailable", detail)
            return
        # The gateway has the same paths without Airflow, so it must not see that it is mounted.
        await application({**scope, "root_path": scope.get("app_root_path", ""), "path_params": {}}, receive, send)

    async def _opened(self, airflow: Any) -> Application:
        async with self._opening:
            if self._application is None:
                self._application = await asyncio.to_thread(_open, airflow)
            return self._application


def _open(airflow: Any) -> Application:
    from airflow_dynamic_tables.plugins.gateway.opening import open_gateway

    return open_gateway(airflow)


async def _answer(scope: Scope, send: Send, status: int, kind: str, title: str, detail: str) -> None:
    """Send a problem like the gateway's own, without its code, which may fail to import."""
    problem = {
        "type": f"urn:airflow-dynamic-tables:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": scope["path"],
    }
    headers = [(b"content-type", b"application/problem+json"), *([(b"retry-after", b"60")] if status == 503 else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})
