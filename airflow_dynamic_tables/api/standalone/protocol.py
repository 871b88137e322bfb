"""HTTP protocol of the standalone server, which closes idle connections so that other clients are served."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from airflow_dynamic_tables.api.problems import problem

HEADER_SECONDS = 10.0
"""Maximum time until the headers of the next request have arrived."""

WAITING = 200
"""Maximum number of connections without a request; a further one closes the one that has been idle longest."""

CONNECTIONS = 500
"""Maximum number of connections; each is a file descriptor, and a process may have 1024."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 in which an incomplete request of one client cannot block others."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin the timeout of the first request."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Process received data. The timeout ends with the headers, even if the body arrives slowly."""
        self.app = _busy if len(self.connections) > CONNECTIONS else cast(ASGIApp, self.config.loaded_app)
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Begin the timeout of the next request, unless it has already arrived."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_headers()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem document and close the connection."""
        answer = problem(400, "", f"{msg.rstrip('.')}; send HTTP/1.1.")
        headers = [*answer.raw_headers, (b"connection", b"close")]
        events: tuple[Any, ...] = (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        )
        with suppress(h11.LocalProtocolError):  # a response has already begun
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_headers(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        waiting = sorted((each for each in self.connections if getattr(each, "_deadline", None)), key=_deadline_of)
        for each in waiting[: max(0, len(waiting) - WAITING)]:
            cast(BoundedProtocol, each).transport.abort()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _deadline_of(protocol: Any) -> float:
    return cast(float, protocol._deadline.when())


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    told = "Too many connections are open; try again in a few seconds."
    await problem(503, scope.get("path", ""), told)(scope, receive, send)
