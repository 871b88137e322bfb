"""The server: it listens, answers until it is told to end, and ends with its refreshes."""

from __future__ import annotations

import gc
import ipaddress
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from airflow_dynamic_tables.api.app import make_app
from airflow_dynamic_tables.api.desk import Gateway
from airflow_dynamic_tables.api.standalone.hosts import KnownHosts
from airflow_dynamic_tables.api.standalone.processes import Processes
from airflow_dynamic_tables.api.standalone.protocol import BoundedProtocol
from airflow_dynamic_tables.exceptions import ConfigurationError

_END_SECONDS = 10
"""How long a request may take to end when the server does."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen, and under which names besides those of loopback; port 0: any that is free."""

    host: str = "127.0.0.1"
    port: int = 8090
    names: Collection[str] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can ask."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def serve(gateway: Gateway, refreshes: Processes, place: ListenAddress, on_ready: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C, and return when no refresh runs any more.

    :param on_ready: called with the address once connections are accepted.
    :raises ConfigurationError: when nobody can listen there.
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
                http=BoundedProtocol,
                ws="none",
                timeout_graceful_shutdown=_END_SECONDS,
            )
            _settle_memory(gateway)
            on_ready(address)
            uvicorn.Server(config).run([listener])
    finally:
        refreshes.close()


def _settle_memory(gateway: Gateway) -> None:
    """Read the definitions now, and keep the garbage collector from looking at them again.

    A look at a thousand of them takes an eighth of a second, in the middle of some request.
    """
    gateway.declared.all()
    gc.collect()
    gc.freeze()


@contextmanager
def _listening(place: ListenAddress) -> Iterator[socket.socket]:
    """A socket that accepts connections.

    :raises ConfigurationError: when it cannot.
    """
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
    """Uvicorn sends itself the signal again by which it was told to end; it must not end this process before its refreshes."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
