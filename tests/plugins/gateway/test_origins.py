"""A page of somebody else's changes nothing for a person who is logged in."""

from __future__ import annotations

import pytest
from fastapi import Request

from airflow_dynamic_tables.plugins.gateway.origins import why_foreign

CONFIGURED = {
    "AIRFLOW__API__BASE_URL": "https://airflow.example.org/prod",
    "AIRFLOW__API__ACCESS_CONTROL_ALLOW_ORIGINS": "https://portal.example.org https://other.example.org:8443",
}


def request(method: str = "POST", **headers: str) -> Request:
    given = {"host": "127.0.0.1:8080", "cookie": "_token=t", **headers}
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "scheme": "http", "path": "/", "query_string": b"", "headers": raw}
    return Request({**scope, "server": ("127.0.0.1", 8080)})


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CONFIGURED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:8080",
        "https://airflow.example.org",
        "https://AIRFLOW.example.org:443",
        "https://portal.example.org",
        "https://other.example.org:8443",
    ],
)
def test_own_pages_may(origin: str) -> None:
    assert why_foreign(request(origin=origin)) is None


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "*",
        "http://evil.example.org",
        "http://airflow.example.org",
        "https://airflow.example.org:8443",
        "https://airflow.example.org.evil.example.org",
        "https://airflow.example.org@evil.example.org",
        "https://evilairflow.example.org",
        "http://127.0.0.1",
        "http://127.0.0.1:99999",
        "http://[::1",
        "https:///airflow.example.org",
    ],
)
@pytest.mark.parametrize("login", [{}, {"authorization": "Bearer t"}])
def test_others_may_not(origin: str, login: dict[str, str]) -> None:
    """Even with a bearer token: Airflow may add one by itself, as it does where everybody is admin."""
    assert "not that of this Airflow" in str(why_foreign(request(origin=origin, **login)))


def test_a_cookie_needs_an_origin_and_a_token_does_not() -> None:
    assert "must have an Origin" in str(why_foreign(request()))
    assert why_foreign(request(authorization="Bearer t")) is None
    for other in ("Basic eDp5", "Negotiate abc", "", "Bearer", "Bearer ", "t"):
        assert "must have an Origin" in str(why_foreign(request(authorization=other)))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "FOO"])
def test_whatever_may_change_something_is_looked_at(method: str) -> None:
    assert why_foreign(request(method, origin="http://evil.example.org"))


def test_reading_changes_nothing() -> None:
    assert why_foreign(request("GET", origin="http://evil.example.org")) is None


def test_a_host_header_that_is_no_host_is_nobody_s_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__API__BASE_URL")
    assert why_foreign(request(host="", origin="http://"))
    assert why_foreign(request(host="a:b", origin="http://a:b"))
