"""The server itself: a thread of the test, on the loopback interface, which fails when it is told to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import anyio
import uvicorn
from fastapi import FastAPI, Request, Response
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.iceberg_rest.routes import Routes, failed
from tests.support.ports import free_port

CREDENTIAL = "tester:s3cr3t-of-the-client"
_PATIENCE = 60
"""Seconds that a busy machine may take to start it."""


@dataclass
class IcebergRest:
    """A server that runs; ``requests`` are all it was asked, as ``METHOD path``."""

    uri: str
    routes: Routes
    requests: list[str] = field(default_factory=list)
    token: str = ""
    """What a request needs to carry; empty: nothing."""
    _faults: list[tuple[str, int | str]] = field(default_factory=list)

    def fail(self, request: str, how: int | str, times: int = 1) -> None:
        """Fail what is asked next.

        :param request: the beginning of ``METHOD path``, e.g. ``POST /v1/namespaces/sales/tables/``.
        :param how: a status, without doing anything; ``429 after 1``: the same, with a ``Retry-After``; ``lost 503``: it is done,
            and answered so; ``twice``: it is done two times, and the second answer is given; ``html``: a page.
        """
        self._faults += [(request, how)] * times

    def empty(self) -> None:
        catalog = self.routes.catalog
        for namespace in catalog.list_namespaces():
            for table in catalog.list_tables(namespace):
                catalog.drop_table(table)
            catalog.drop_namespace(namespace)
        shutil.rmtree(catalog.properties["warehouse"].removeprefix("file://"), ignore_errors=True)
        self.forgive()
        self.requests.clear()
        self.token = ""

    def forgive(self) -> None:
        self._faults.clear()

    async def answer(self, request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        asked = f"{request.method} {request.url.path}"
        self.requests.append(asked)
        if request.url.path == "/v1/oauth/tokens":
            return await self._granted(request)
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return failed(401, "NotAuthorizedException", "Not authorized")
        how = self._fault(asked)
        if isinstance(how, int):
            return failed(how, "Fault", "by order of a test")
        status, after, seconds = how.partition(" after ")
        if after:
            busy = failed(int(status), "Fault", "by order of a test")
            busy.headers["Retry-After"] = seconds
            return busy
        if how == "html":
            return Response("<html><body>Welcome to nginx!</body></html>", media_type="text/html")
        if how == "silence":
            await anyio.sleep(30)
        request.state.times = 2 if how == "twice" else 1
        answered = await proceed(request)
        return failed(int(how[5:]), "Fault", "by order of a test") if how.startswith("lost ") else answered

    def _fault(self, asked: str) -> int | str:
        for number, (request, how) in enumerate(self._faults):
            if asked.startswith(request):
                del self._faults[number]
                return how
        return ""

    async def _granted(self, request: Request) -> Response:
        form = (await request.body()).decode()
        identity, _, secret = CREDENTIAL.partition(":")
        if f"client_id={identity}" in form and f"client_secret={secret}" in form:
            return Response(f'{{"access_token": "{self.token}", "token_type": "bearer"}}', media_type="application/json")
        return Response('{"error": "invalid_client", "error_description": "who is that?"}', 401, media_type="application/json")


@contextmanager
def running_rest_catalog(folder: Path, **overrides: str) -> Iterator[IcebergRest]:
    """Start a server whose state and warehouse lie in a folder; it chooses where tables lie that do not say.

    :param overrides: properties that it tells its clients to have.
    """
    catalog = SqlCatalog("served", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    port = free_port()
    server = IcebergRest(f"http://127.0.0.1:{port}", Routes(catalog, overrides))
    app = FastAPI()
    app.middleware("http")(server.answer)
    server.routes.add_to(app)
    running = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = Thread(target=running.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _PATIENCE
        while not running.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline, "the REST catalog does not start"
            time.sleep(0.01)
        yield server
    finally:
        running.should_exit = True
        thread.join()
        catalog.close()
