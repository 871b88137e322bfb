"""Connections that send no request, or no HTTP, beside others that are answered."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.test_server import Server, server

__all__ = ["server"]

HALF = b"GET /v3/jobs HTTP/1.1\r\nHost: localhost\r\nX-"
MANY = 600
SECONDS = 60


def connected(client: httpx.Client, stack: ExitStack) -> socket.socket:
    address = urlsplit(str(client.base_url))
    return stack.enter_context(socket.create_connection((address.hostname or "", address.port or 0), timeout=SECONDS))


def answers(client: httpx.Client) -> None:
    with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=SECONDS) as another:
        assert another.get("/v3/jobs").status_code == 200


@pytest.mark.large
def test_half_a_request_keeps_no_other_from_being_answered_and_is_closed(server: Server) -> None:
    client = server.start()
    with ExitStack() as stack:
        ended = connected(client, stack)
        ended.sendall(b"GET /v3/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.recv(12) == b"HTTP/1.1 200"
        ended.sendall(HALF)  # a second request on a connection whose first one was answered
        half = [connected(client, stack) for _ in range(MANY)]
        for each in half:
            each.sendall(HALF)
        answers(client)
        for each in (ended, *half):
            try:
                while each.recv(65_536):
                    pass
            except ConnectionResetError:
                pass
        answers(client)


def test_what_is_no_http_is_answered_by_a_problem(server: Server) -> None:
    client = server.start()
    for garbage in (b"\x16\x03\x01 not http\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"GET " + b"x" * 100_000):
        with ExitStack() as stack:
            each = connected(client, stack)
            each.sendall(garbage)
            answer = b""
            while more := each.recv(65_536):
                answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"content-type: application/problem+json" in head.lower()
        assert b'"type":"urn:airflow-dynamic-tables:problem:malformed"' in body
    answers(client)
