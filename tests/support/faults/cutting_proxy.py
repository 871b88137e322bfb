"""A wire to PostgreSQL that is cut when a COMMIT comes along: before the server got it, or before its answer is there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

from tests.support.faults.steps import SWAPS


@dataclass
class Wire:
    """One connection. What it carries is a swap of a table's pointer, or nobody cares; ``silent``, it breaks off for no one."""

    client: socket.socket
    server: socket.socket
    swaps: bool = False
    muted: bool = False
    silent: bool = False
    answered: Event = field(default_factory=Event)

    def cut(self) -> None:
        """Drop it on both sides, with whatever is on the way."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def deliver(self, question: bytes) -> None:
        """Pass a question on, and keep the answer."""
        self.muted = True
        self.server.sendall(question)
        if not self.answered.wait(60):
            raise TimeoutError("the server did not answer")


Fault = Callable[[Wire, bytes], None]


class CuttingProxy:
    """Passes everything on until the next swap of a table's pointer is to be committed; what then happens is ``fault``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: Fault | None = None
        self.struck = Event()
        self._wires: list[Wire] = []
        self._pumps: list[Thread] = []

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    wire = Wire(client, socket.create_connection(("127.0.0.1", self._port)))
                except OSError:
                    client.close()  # the server is down
                    continue
                self._wires.append(wire)
                for pump in (self._ask, self._answer):
                    self._pumps.append(Thread(target=pump, args=(wire,), daemon=True))
                    self._pumps[-1].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for wire in self._wires:
            wire.cut()
        for pump in self._pumps:
            pump.join(60)

    def _ask(self, wire: Wire) -> None:
        with suppress(OSError):
            while data := wire.client.recv(65536):
                wire.swaps |= any(swap.encode() in data for swap in SWAPS)
                if wire.swaps and b"COMMIT\0" in data and self.fault is not None:
                    fault, self.fault = self.fault, None
                    fault(wire, data)
                    self.struck.set()
                else:
                    wire.server.sendall(data)
        wire.cut()
        wire.client.close()

    def _answer(self, wire: Wire) -> None:
        with suppress(OSError):
            while data := wire.server.recv(65536):
                if wire.muted:
                    wire.answered.set()
                else:
                    wire.client.sendall(data)
        if not wire.silent:
            wire.cut()
        wire.server.close()


@contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
