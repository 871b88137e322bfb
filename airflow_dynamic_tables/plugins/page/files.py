"""Delivery of the static files of the page, and where Airflow shows the page."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PATH = "/v3/page"
"""The folder of the page. It is beside the routes of the REST API, so that the page finds them at any path prefix."""

FOLDER = Path(__file__).parent / "static"

_HEADERS = {
    # Only own files, no inline script: names, comments and SQL of tables come from others.
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    ),
    "cache-control": "private, no-cache",  # revalidated by its ETag, because an upgrade changes files under the same names
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


class PageFiles(StaticFiles):
    """The static files; the app in which they are mounted authenticates the requests."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """See :meth:`StaticFiles.get_response`."""
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response
