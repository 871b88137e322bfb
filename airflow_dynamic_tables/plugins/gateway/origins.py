"""Where a request comes from, so that no page of somebody else's acts for a person who is logged in."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf
from fastapi import Request

_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")


def why_foreign(request: Request) -> str | None:
    """Why a request that may change something is refused for where it comes from; ``None`` when it is not.

    A browser sends the cookie of the UI along with whatever any page asks for, but then it says whose page that is.
    """
    if request.method in _CHANGES_NOTHING:
        return None
    origin = request.headers.get("origin")
    if origin is None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return None  # it is the login then, and no browser adds it by itself, as it does for Basic and Negotiate
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
    """Scheme, host and port in one spelling; ``None`` when there is no host, as in the ``null`` of a page without origin."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname else None
