"""Under which names a server may be asked: a page in somebody's browser may give its own name the address of loopback."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from airflow_dynamic_tables.api.problems import problem

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?")


class KnownHosts:
    """Answers only requests for a known host, whatever the port.

    :param names: besides those of loopback; an IPv6 address in brackets.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = {name.lower() for name in (*LOOPBACK, *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or self._is_known(Request(scope).headers.getlist("host")):
            await self._app(scope, receive, send)
            return
        told = "This server does not go by the name in Host; ask it by localhost, or start it with --allow-host NAME."
        await problem(421, scope["path"], told)(scope, receive, send)

    def _is_known(self, given: list[str]) -> bool:
        if len(given) != 1:
            return False
        matched = _HOST.fullmatch(given[0].lower())
        return matched is not None and matched["name"] in self._names
