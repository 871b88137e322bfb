"""A relay to a local server that no other process can impersonate.

A port number does not identify a process: any user may listen on it before the server does, or after the server has died. gRPC
hides its connections and reconnects by itself, so it connects to a Unix socket in a private folder instead. The relay joins each
connection to one to the server's port, and forwards data only after checking that the other end is a socket of the server's
processes.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from airflow_dynamic_tables.clients.processes import Process
from airflow_dynamic_tables.exceptions import JobFailedError

_ACCEPT_SECONDS = 5.0
"""Seconds for the server to accept a connection. A longer pause of Java closes the connection, and the client retries."""

_POLL_SECONDS = 0.01
_HOST = "127.0.0.1"
_OWN_HOST = (_HOST, f"::ffff:{_HOST}")
"""The kernel's spellings of the address, for IPv4 and dual-stack sockets."""

_CHUNK = 1 << 18


class _Relay:
    """Joins connections of this process to a server, after checking that the port belongs to the server."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self._port = port
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.met_stranger = False

    def refuse_stranger(self) -> None:
        """Raise when a connection was refused because another process answered."""
        if self.met_stranger:
            raise JobFailedError(
                f"Another process listens on port {self._port} of {_HOST} in place of the Spark server; it received neither "
                "the token nor a query. Restart the server (dynamic-tables spark stop, then start). If another user "
                "of this machine takes the port again, run refreshes with spark-submit (--master 'local[*]')."
            )

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            connections = [*self._open]
        for each in connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _join(self, client: socket.socket) -> None:
        with client, socket.socket() as server, self._kept(client, server), suppress(OSError):
            if not self._process.is_alive:
                return
            server.settimeout(_ACCEPT_SECONDS)
            server.connect((_HOST, self._port))
            if not self._is_of_server(server):
                return
            server.settimeout(None)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()

    @contextmanager
    def _kept(self, *connections: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.update(connections)
        try:
            yield
        finally:
            with self._lock:
                self._open.difference_update(connections)

    def _is_of_server(self, connection: socket.socket) -> bool:
        own_port = connection.getsockname()[1]
        deadline = time.monotonic() + _ACCEPT_SECONDS
        while time.monotonic() < deadline:
            sockets = [
                each for member in (self._process, *self._process.session()) for each in _sockets_of(member.pid, self._port)
            ]
            if not self._process.is_alive:
                return False
            if own_port in sockets:
                return True
            if None not in sockets:
                self.met_stranger = True
                return False
            time.sleep(_POLL_SECONDS)
        return False


@contextmanager
def relayed(folder: Path, process: Process, port: int) -> Iterator[tuple[str, _Relay]]:
    """A gRPC target that leads to a server during the body, and never to another process.

    :param folder: accessible by this user only.
    """
    name = f"relay-{secrets.token_hex(8)}"
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # A socket's address is limited to about a hundred characters, and the temporary folder's path may be longer.
    address = f"/proc/self/fd/{held}/{name}"
    relay = _Relay(process, port)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            thread = threading.Thread(target=relay.serve, args=(listener,), daemon=True)
            thread.start()
            try:
                yield f"unix:{address}", relay
            finally:
                (folder / name).unlink(missing_ok=True)
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                thread.join()
                relay.close()
    finally:
        os.close(held)


def _sockets_of(pid: int, port: int) -> list[int | None]:
    """Client ports of connections that a process accepted on a port of this machine; ``None`` for a listening socket."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return []
    own = [each for each in found if each.laddr.port == port and each.laddr.ip in _OWN_HOST]
    return [each.raddr.port if each.raddr else None for each in own if not each.raddr or each.raddr.ip in _OWN_HOST]


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Forward data; when one side ends, both are closed, as in HTTP/2."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
