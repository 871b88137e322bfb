"""Ports of loopback, for servers that want to be told theirs before they listen."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

_NOT_GIVEN = range(20_000, 32_768)
"""Linux gives none of these to a connection, nor to a server that lets it choose."""


def free_port() -> int:
    """A port that nobody listens on, nor will: of those that Linux gives, one may be somebody's before the server has it."""
    while True:
        port = secrets.choice(_NOT_GIVEN)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
