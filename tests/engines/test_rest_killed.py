"""Iceberg's own REST catalog is killed while a refresh commits: the version is there or not, and the next refresh finds out."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import psutil
import pytest

from airflow_dynamic_tables.exceptions import CommitUnknownError, DynamicTableError
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, versions
from tests.support.faults.victims import Attempt, Site, refresh, sweep, when_leases_are_over
from tests.support.iceberg_rest.apache import running_apache_rest
from tests.support.ports import free_port
from tests.support.processes import command_line, descendants

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("java")]


Send = Callable[[], httpx.Response]
Fault = Callable[["Killed", Send], None]


@dataclass
class Killed:
    """The server, and a proxy before it that kills it when a table is to be changed."""

    folder: Path
    port: int = field(default_factory=free_port)
    fault: Fault | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        self._running.enter_context(running_apache_rest(self.folder, self.port))

    def kill(self) -> None:
        server = next(process for process in descendants(os.getpid()) if str(self.folder) in command_line(process))
        killed = [*descendants(server.pid), server]
        for process in killed:
            process.kill()
        psutil.wait_procs(killed)

    def stop(self) -> None:
        self._running.close()

    def changes(self, request: httpx.Request) -> bool:
        return request.method == "POST" and "/tables" in request.url.path and not request.url.path.endswith("/metrics")


@contextmanager
def proxy(server: Killed) -> Iterator[str]:
    """Pass everything on to the server, but for what its fault says of the next change."""

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            request = httpx.Request(self.command, f"http://127.0.0.1:{server.port}{self.path}", headers=headers, content=body)

            def send() -> httpx.Response:
                with httpx.Client(timeout=60) as client:
                    return client.send(request)

            if server.fault is not None and server.changes(request):
                fault, server.fault = server.fault, None
                fault(server, send)
                return
            with suppress(httpx.TransportError):
                answer = send()
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers.get("content-type", "text/plain"))
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

        do_GET = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - a name of the base class
            """Be quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def before(server: Killed, _: Send) -> None:
    """The server gets no request."""
    server.kill()


def during(seconds: float) -> Fault:
    """The server has worked on the request for a while."""

    def strike(server: Killed, send: Send) -> None:
        def lost() -> None:
            with suppress(httpx.TransportError):
                send()

        request = Thread(target=lost)
        request.start()
        time.sleep(seconds)
        server.kill()
        request.join()

    return strike


def after(server: Killed, send: Send) -> None:
    """The table is changed, and the answer is lost."""
    assert send().status_code == 200
    server.kill()


MOMENTS = {"before": before, **{f"after {ms} ms": during(ms / 1000) for ms in (5, 50, 100, 200, 400)}, "after": after}
BASE = {"1": [1], "2": [2]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killed]:
    (tmp_path / "rest").mkdir()
    killed = Killed(tmp_path / "rest")
    killed.start()
    try:
        yield killed
    finally:
        killed.stop()


@pytest.fixture
def site(server: Killed, tmp_path: Path, empty_state: Path) -> Iterator[Site]:
    url = f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}"
    with proxy(server) as uri:
        entry = {"name": "lake", "is-default": True, "type": "iceberg", "connection-params": {"uri": uri}}
        catalogs = tmp_path / "catalogs.yaml"
        catalogs.write_text(json.dumps({"catalogs": [entry]}))
        yield Site(tmp_path, url, catalogs=catalogs, data=f"file://{server.folder}/warehouse")


@pytest.mark.parametrize("healer", ["next refresh", "sweep"])
def test_a_commit_during_which_the_catalog_is_killed_is_there_or_not(
    server: Killed, site: Site, fault_report: FaultReport, healer: str
) -> None:
    rows = BASE
    refresh(site, Attempt("base", rows))
    for number, (moment, fault) in enumerate(MOMENTS.items()):
        struck = Attempt(f"struck-{number}", {"1": [number], "3": [number, number]}, planned=("1", "3"))
        server.fault = fault
        with pytest.raises(CommitUnknownError, match=r"The outcome of the commit of sales\.revenue is unknown"):
            refresh(site, struck)
        fault_report.injected("kill -9 of a REST catalog")
        server.start()
        if healer == "sweep":
            sweep(site, when_leases_are_over)
        refresh(site, Attempt(f"next-{number}", {"4": [number]}, planned=("1", "4")))
        with site.open() as workspace:
            landed = struck.token in [version.token for version in versions(workspace)]
            assert landed or moment != "after"
            assert not landed or moment != "before"
            rows = {"2": [2], **({"3": [number, number]} if landed else {"3": rows["3"]} if "3" in rows else {}), "4": [number]}
            assert content(workspace) == rows
            check_all_settled(site, workspace)
            fault_report.notes.append(f"killed {moment}: {'landed' if landed else 'nothing landed'}")


@pytest.mark.parametrize("moment", ["before", "after 50 ms", "after"])
def test_a_table_during_whose_creation_the_catalog_is_killed_is_made_by_the_next_refresh(
    server: Killed, site: Site, fault_report: FaultReport, moment: str
) -> None:
    server.fault = MOMENTS[moment]
    with pytest.raises(DynamicTableError):
        refresh(site, Attempt("struck", {"1": [7]}))
    fault_report.injected("kill -9 of a REST catalog")
    server.start()
    refresh(site, Attempt("next", BASE))
    sweep(site, when_leases_are_over)
    with site.open() as workspace:
        assert content(workspace) == BASE
        check_all_settled(site, workspace)
