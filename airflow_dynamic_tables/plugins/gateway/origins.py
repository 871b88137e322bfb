"""Origins of requests: whether a page of another site sent them."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf
from fastapi import Request

_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")


def why_foreign(request: Request) -> str | None:
    """Return why a modifying request is rejected because of its origin; ``None`` if it is not.

    Browsers send the UI's cookie with requests of any page, but include the origin of that page.
    """
    if request.method in _CHANGES_NOTHING:
        return None
    origin = request.headers.get("origin")
    if origin is None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return None  # it is the login, and browsers do not add it by themselves, unlike Basic and Negotiate
        return "With a cookie as its login, a request that changes something must have an Origin; or send a bearer token."
    if _normalised(origin) in _own_origins(request):
        return None
    return (
        f"Origin {origin!r} is not that of this Airflow; if it should be, let [api] base_url say so, or name it in "
        "[api] access_control_allow_origins."
    )


def _own_origins(request: Request) -> set[str]:
    base_url = str(conf.get("api", "base_url", fallback=None) or "")
    others = str(conf.get("api", "access_control_allow_origins", fallback=None) or "").split()
    asked = f"{request.url.scheme}://{request.headers.get('host', '')}"
    return {origin for url in (asked, base_url, *others) if (origin := _normalised(url))}


def _normalised(url: str) -> str | None:
    """Normalize scheme, host and port; ``None`` without a host, such as for the ``null`` origin."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname else None
