"""Where the token may come from, and which names a server answers to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.api.server import VARIABLE, KnownHosts, read_token
from airflow_dynamic_tables.exceptions import ConfigurationError

TOKEN = "a-token-that-nobody-guesses"


def test_a_private_file_or_the_environment_has_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_token(file, {}) == read_token(None, {VARIABLE: TOKEN}) == TOKEN


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (TOKEN, 0o640, "may be read by others; make it yours alone: chmod 600"),
        ("", 0o600, "No token in"),
        ("short", 0o600, "is no word of 20 ASCII characters or more"),
        ("two words that are a sentence", 0o600, "is no word of 20 ASCII characters or more"),
    ],
)
def test_a_token_that_others_may_know_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=message) as refused:
        read_token(file, {})
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("hosts", "is_known"),
    [
        (["localhost:8090"], True),
        (["127.0.0.1"], True),
        (["[::1]:8090"], True),
        (["Gateway.Example"], True),
        (["evil.example"], False),
        (["localhost.evil.example"], False),
        (["localhost:8090@evil.example"], False),
        (["localhost", "evil.example"], False),
        ([], False),
    ],
)
def test_only_known_hosts_are_answered(hosts: list[str], is_known: bool) -> None:
    answered: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        answered.append(scope["path"])

    async def sent(message: Any) -> None:
        answered.append(message.get("status"))

    async def nothing() -> Any:
        return {"type": "http.disconnect"}

    headers = [(b"host", host.encode()) for host in hosts]
    scope = {"type": "http", "method": "GET", "path": "/v3/jobs", "headers": headers}
    asyncio.run(KnownHosts(app, ["gateway.example"])(scope, nothing, sent))
    assert answered[0] == ("/v3/jobs" if is_known else 421)
