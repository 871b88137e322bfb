"""Addresses, and servers that are down, slow, endless or talk of something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError, SchedulerUnavailableError
from airflow_dynamic_tables.schedulers.http import Address, HttpServer, address_of
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (Connection(host="localhost", port=8080), "http://localhost:8080"),
        (Connection(host="127.0.0.1"), "http://127.0.0.1"),
        (Connection(host="::1", port=8080), "http://[::1]:8080"),
        (Connection(host="airflow.example.org", schema="https"), "https://airflow.example.org"),
        (Connection(host="airflow.example.org", schema="http", port=8080), "http://airflow.example.org:8080"),
        (Connection(host="https://airflow.example.org/team/"), "https://airflow.example.org/team"),
        (Connection(host="https://me:secret@airflow.example.org:444"), "https://airflow.example.org:444"),
    ],
)
def test_addresses(connection: Connection, url: str) -> None:
    assert address_of("Airflow", "c", connection).url == url


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (Connection(), "has no host; write for example"),
        (Connection(host="airflow.example.org", password="secret"), "does not say whether to encrypt"),
        (Connection(host="ftp://airflow.example.org"), "does not say whether to encrypt"),
        (Connection(host="http://"), "does not say whether to encrypt"),
        (Connection(host="http://[::1"), "has a host that is none"),
        (Connection(host="http://x:99999"), "has a host that is none"),
        (Connection(host="localhost", extra={"timeout": "soon"}), "needs a 'timeout' of 1 to 300 seconds"),
        (Connection(host="localhost", extra={"timeout": "nan"}), "needs a 'timeout' of 1 to 300 seconds"),
        (Connection(host="localhost", extra={"timeout": "10000"}), "needs a 'timeout' of 1 to 300 seconds"),
    ],
)
def test_wrong_addresses(connection: Connection, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        address_of("Airflow", "c", connection)


@contextmanager
def _listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        serve(connection)
                    except OSError:
                        continue

        threading.Thread(target=loop, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _ask(url: str, timeout: float = 60) -> object:
    server = HttpServer(Address("Airflow", "c", url, timeout))
    try:
        return server.expect(server.send("GET", "/x"), "show x")
    finally:
        server.close()


def _drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        connection.sendall(b" ")


def _flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        connection.sendall(b" " * 65536)


@pytest.mark.parametrize(
    ("serve", "seconds", "said"),
    [
        (lambda connection: connection.recv(1), 1, "does not answer within 1 seconds"),
        (_drip, 1, "sends an answer without end"),
        (_flood, 60, "sends an answer without end"),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH\r\n"), 60, "cannot be reached"),
        (lambda connection: connection.close(), 60, "cannot be reached"),
        (lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), 60, "cannot be reached"),
        (
            lambda connection: connection.sendall(b'HTTP/1.1 503 Down\r\nContent-Length: 19\r\n\r\n{"detail": "a\\nb"}  '),
            60,
            "answers with status 503: a b; check that it runs",
        ),
    ],
    ids=["silent", "drip", "flood", "other protocol", "hangs up", "half an answer", "trouble"],
)
def test_a_server_in_trouble_is_told_in_bounded_time(serve: Callable[[socket.socket], None], seconds: float, said: str) -> None:
    with _listener(serve) as url, pytest.raises(SchedulerUnavailableError, match=said):
        _ask(url, seconds)


def test_a_server_that_is_down() -> None:
    with pytest.raises(
        SchedulerUnavailableError, match=r"cannot be reached: .*refused; check that it runs, and the address in conn"
    ):
        _ask(f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("status", [b"302 Found\r\nLocation: http://127.0.0.1:1/", b"404 Not Found", b"418 Teapot"])
def test_no_redirect_is_followed_and_no_other_status_is_a_success(status: bytes) -> None:
    reply = b"HTTP/1.1 " + status + b"\r\nContent-Length: 6\r\n\r\n<html>"
    with (
        _listener(lambda connection: connection.sendall(reply)) as url,
        pytest.raises(SchedulerError, match="did not show x: status"),
    ):
        _ask(url)
