"""The standalone server: its token, its address, its host names (protection against DNS rebinding), and idle connections."""

from __future__ import annotations

import asyncio
import gc
import hmac
import ipaddress
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Right
from airflow_dynamic_tables.api.app import make_app
from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.api.problems import problem
from airflow_dynamic_tables.api.processes import Processes
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError, UnauthenticatedError

HEADER_SECONDS = 10.0
"""Maximum time until the headers of the next request have arrived."""

WAITING = 200
"""Maximum number of connections without a request; a further one closes the one that has been idle longest."""

CONNECTIONS = 500
"""Maximum number of connections; each is a file descriptor, and a process may have 1024."""


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 in which an incomplete request of one client cannot block others."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        self.app = _busy if len(self.connections) > CONNECTIONS else cast(ASGIApp, self.config.loaded_app)
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers have arrived; the body may be slow
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_headers()

    def send_400_response(self, msg: str) -> None:
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
            cast(_BoundedProtocol, each).transport.abort()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _deadline_of(protocol: Any) -> float:
    return cast(float, protocol._deadline.when())


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    told = "Too many connections are open; try again in a few seconds."
    await problem(503, scope.get("path", ""), told)(scope, receive, send)


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?")


class KnownHosts:
    """Accepts only requests for a known host, on any port, because a web page can resolve its own name to the loopback address.

    :param names: names besides those of loopback; an IPv6 address in brackets.
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


VARIABLE = "DYNAMIC_TABLES_TOKEN"

_LEAST = 20
"""Minimum length of a token; a shorter one can be guessed."""

_MOST_BYTES = 4096
"""Maximum size of a token file."""

_HOW = "make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"


class TokenAccess(Access):
    """A caller with the token has all rights."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """A bearer token."""
        return {"token": {"type": "http", "scheme": "bearer", "description": "The token that the server was started with."}}

    async def caller(self, request: Request) -> Caller:
        """Authenticate by the token.

        :raises UnauthenticatedError: if the request has no token, or a wrong one.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise UnauthenticatedError("Send the header Authorization: Bearer TOKEN, with the token of the server.")
        if not hmac.compare_digest(given.strip().encode(), self._token):
            raise UnauthenticatedError("That is not the token of this server.")
        return Caller("token")

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:  # noqa: ARG002
        """All of the tables."""
        return {table.identifier for table in tables}


def read_token(file: Path | None, environ: Mapping[str, str]) -> str:
    """Return the token from the file, or else from the environment.

    :raises ConfigurationError: if there is none, if others may read it, or if it can be guessed.
    """
    where = str(file) if file is not None else VARIABLE
    token = (_private_text(file) if file is not None else environ.get(VARIABLE, "")).strip()
    if not token:
        raise ConfigurationError(f"No token in {where}; name its file with --token-file, or set {VARIABLE}; {_HOW}.")
    if len(token) < _LEAST or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ConfigurationError(f"The token in {where} is no word of {_LEAST} ASCII characters or more; {_HOW}.")
    return token


def _private_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid not in (os.getuid(), 0):
                raise ConfigurationError(f"{file} may be read by others; make it yours alone: chmod 600 {file}.")
            return opened.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read ({error.strerror}); name the file of the token.") from error


_END_SECONDS = 10
"""How long requests may take to finish at shutdown."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address to listen on, and the accepted host names besides those of loopback; port 0 is any free port."""

    host: str = "127.0.0.1"
    port: int = 8090
    names: Collection[str] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def serve(gateway: AppComponents, refreshes: Processes, place: ListenAddress, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, and return when no refresh is running any more.

    :param on_ready: called with the address once connections are accepted.
    :raises ConfigurationError: if the address cannot be bound.
    """
    try:
        with _listening(place) as listener, _signals_left_to_the_server():
            address = _address(listener)
            names = (*place.names, address.removeprefix("http://").rpartition(":")[0])
            app = KnownHosts(make_app(gateway), names)
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                http=_BoundedProtocol,
                ws="none",
                timeout_graceful_shutdown=_END_SECONDS,
            )
            _settle_memory(gateway)
            on_ready(address)
            uvicorn.Server(config).run([listener])
    finally:
        refreshes.close()


def _settle_memory(gateway: AppComponents) -> None:
    """Load the definitions now, and exclude them from garbage collection.

    Traversing a thousand definitions takes an eighth of a second, in the middle of a request.
    """
    gateway.declared.all()
    gc.collect()
    gc.freeze()


@contextmanager
def _listening(place: ListenAddress) -> Iterator[socket.socket]:
    try:
        ((family, _, _, _, address), *_) = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        listener = socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"Cannot listen at {place.host}:{place.port} ({error}); choose another --port.") from error
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def _signals_left_to_the_server() -> Iterator[None]:
    """Keep signals from ending this process before its refreshes: uvicorn re-raises the signal that it was stopped with."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
