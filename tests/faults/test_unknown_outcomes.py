"""The connection to the catalog's database drops while a commit is under way: the outcome is looked up, never guessed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import psycopg
import pytest

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import CommitUnknownError, ConflictError
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.writes import leases
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.faults.conftest import jdbc_site
from tests.support.faults.cutting_proxy import CuttingProxy, Fault, Wire, cutting_proxy
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files, versions
from tests.support.faults.victims import (
    REVENUE,
    Attempt,
    Site,
    leave_in_quarantine,
    refresh,
    start,
    sweep,
    when_leases_are_over,
)
from tests.support.postgres import PostgresServer, running_postgres

pytestmark = pytest.mark.postgres

BASE = Attempt("base", {"1": [1], "2": [2]})
LOST = Attempt("lost", {"1": [10], "3": [3]}, planned=("1", "3"))
NEXT = Attempt("next", {"3": [30]}, planned=("3",))


@dataclass(frozen=True, slots=True)
class Cable:
    """A site behind a wire that can be cut, to a server that can be stopped."""

    site: Site
    proxy: CuttingProxy
    server: PostgresServer

    def terminated(self, wire: Wire, question: bytes) -> None:
        """Somebody ends the session; the COMMIT finds nobody."""
        url = self.site.tables_url or self.site.database_url.replace("+psycopg", "")
        with psycopg.connect(url, port=self.server.port, autocommit=True) as other:
            port = wire.server.getsockname()[1]
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = %s", (port,))
        wire.server.sendall(question)

    def question_lost(self, wire: Wire, _: bytes) -> None:
        """The COMMIT never arrives."""
        wire.cut()

    def answer_lost(self, wire: Wire, question: bytes) -> None:
        """The COMMIT is done, and nobody hears of it."""
        wire.deliver(question)
        wire.cut()

    def silent(self, wire: Wire, _: bytes) -> None:
        """The COMMIT never arrives, and nobody says that the wire is broken."""
        wire.silent = True

    def down_before(self, wire: Wire, _: bytes) -> None:
        """The server goes down before the COMMIT."""
        self.server.stop()
        wire.cut()

    def down_after(self, wire: Wire, question: bytes) -> None:
        """The server goes down right after the COMMIT."""
        wire.deliver(question)
        self.server.stop()
        wire.cut()


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server of this module's own, that may be stopped."""
    with running_postgres(postgres.binaries) as own:
        yield own


@pytest.fixture(scope="module")
def sales_url(server: PostgresServer) -> str:
    """The URL of the database with tables of format ``jdbc``."""
    return server.create_database(REVENUE.database)


@pytest.fixture
def cable(request: pytest.FixtureRequest, server: PostgresServer, tmp_path: Path) -> Iterator[Cable]:
    """Iceberg tables in a catalog behind the wire; with parameter ``jdbc`` the tables themselves are behind it."""
    if getattr(request, "param", None) == "jdbc":
        shutil.copy(request.getfixturevalue("empty_state"), tmp_path / "state.db")
        url: str = request.getfixturevalue("sales_url")
        with cutting_proxy(server.port) as proxy:
            behind = url.replace(f":{server.port}/", f":{proxy.port}/")
            yield Cable(jdbc_site(tmp_path, f"sqlite:///{tmp_path}/state.db", url, behind), proxy, server)
        return
    database = Database(server.create_database(f"d{tmp_path.name}".replace("-", "_").lower()[:60]))
    database.upgrade()
    with cutting_proxy(server.port) as proxy:
        url = database.url.replace(f":{server.port}/", f":{proxy.port}/")
        yield Cable(Site(tmp_path, url), proxy, server)


def cut(cable: Cable, fault: str, report: FaultReport) -> None:
    """Let the next commit of a table come to this fault."""
    chosen: Fault = getattr(cable, fault)
    cable.proxy.fault = chosen
    report.injected(
        "connection cut"
        if "lost" in fault or fault == "silent"
        else "backend terminated"
        if fault == "terminated"
        else "server stopped"
    )


@pytest.mark.sampled
@pytest.mark.parametrize("cable", ["iceberg", "jdbc"], indirect=True)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_an_answer_that_was_lost_is_looked_up(cable: Cable, fault_report: FaultReport, first: bool) -> None:
    if not first:
        refresh(cable.site, BASE)
    cut(cable, "answer_lost", fault_report)
    assert refresh(cable.site, LOST).number == (1 if first else 2)
    with cable.site.open() as workspace:
        check_all_settled(cable.site, workspace)
        assert [version.token for version in versions(workspace)][-1] == "lost"


@pytest.mark.sampled
@pytest.mark.parametrize("cable", ["iceberg", "jdbc"], indirect=True)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("fault", ["terminated", "question_lost"])
def test_a_commit_that_did_not_arrive_is_made_again(cable: Cable, fault_report: FaultReport, fault: str, first: bool) -> None:
    if not first:
        refresh(cable.site, BASE)
    cut(cable, fault, fault_report)
    assert refresh(cable.site, LOST).number == (1 if first else 2)
    with cable.site.open() as workspace:
        assert content(workspace) == {**({} if first else {"2": [2]}), "1": [10], "3": [3]}
        check_all_settled(cable.site, workspace)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("cable", "fault", "first", "healer"),
    [
        *(("iceberg", *case) for case in product(("down_before", "down_after"), (False, True), ("next refresh", "sweep"))),
        ("jdbc", "down_before", True, "sweep"),
        ("jdbc", "down_before", False, "next refresh"),
        ("jdbc", "down_after", False, "sweep"),
        ("jdbc", "down_after", True, "next refresh"),
    ],
    indirect=["cable"],
)
def test_a_server_that_is_back_knows_the_outcome(
    cable: Cable, fault_report: FaultReport, fault: str, first: bool, healer: str
) -> None:
    if not first:
        refresh(cable.site, BASE)
    cut(cable, fault, fault_report)
    _is_unknown(cable, fault)
    landed = fault == "down_after"
    seen = {**({} if first else {"1": [1], "2": [2]}), **(LOST.days if landed else {})}
    with cable.site.open() as workspace:
        assert content(workspace) == dict(sorted(seen.items()))
        if healer == "sweep":
            report = sweep(cable.site, when_leases_are_over)
            assert (report.completed, report.aborted) == ((("lost",), ()) if landed else ((), ("lost",)))
            check_all_settled(cable.site, workspace)
        refresh(cable.site, NEXT)
        assert content(workspace) == dict(sorted({**seen, "3": [30]}.items()))
        check_all_settled(cable.site, workspace)


@pytest.mark.sampled
@pytest.mark.parametrize("step", [Step.PUBLISHED, Step.COMPLETED])
def test_a_server_that_stops_right_after_the_commit_leaves_it_green(
    cable: Cable, monkeypatch: pytest.MonkeyPatch, fault_report: FaultReport, step: Step
) -> None:
    """Whether the ledger can be told or not: the table has the version."""
    refresh(cable.site, BASE)

    def stop(reached: Step, token: str) -> None:
        trace(reached, token)
        if reached is step:
            cable.server.stop()

    try:
        with monkeypatch.context() as patch:
            patch.setattr("airflow_dynamic_tables.services.writes.protocol.trace", stop)
            assert refresh(cable.site, LOST).number == 2
        fault_report.injected("server stopped")
    finally:
        cable.server.start()
    with cable.site.open() as workspace:
        assert content(workspace) == {"1": [10], "2": [2], "3": [3]}
        refresh(cable.site, NEXT)
        check_all_settled(cable.site, workspace)


@pytest.mark.large
@pytest.mark.parametrize("fault", ["down_before", "down_after", "question_lost", "answer_lost"])
def test_an_outage_while_what_is_in_quarantine_is_published(cable: Cable, fault_report: FaultReport, fault: str) -> None:
    """It is published, or in quarantine as before; its files stay until that is known."""
    refresh(cable.site, BASE)
    leave_in_quarantine(cable.site, LOST)
    cut(cable, fault, fault_report)
    if fault.startswith("down"):
        with cable.site.open() as workspace, pytest.raises(CommitUnknownError):
            publish(workspace, "lost")
        assert cable.proxy.struck.wait(300), "whoever stops the server would wait for the new one to end"
        cable.server.start()
        assert len(data_files(cable.site, "lost")) == 4, "plan, result and two files of data"
        sweep(cable.site, when_leases_are_over)
        with cable.site.open() as workspace:
            stage = workspace.ledger.get_stage("lost")
            assert stage.state is (StageState.COMMITTED if fault == "down_after" else StageState.QUARANTINED)
    with cable.site.open() as workspace:
        assert publish(workspace, "lost").number == 2
        assert content(workspace) == {"1": [10], "2": [2], "3": [3]}
        check_all_settled(cable.site, workspace)


def _is_unknown(cable: Cable, fault: str) -> None:
    """The refresh says that nobody knows, and leaves everything as it is until the server is back."""
    with pytest.raises(CommitUnknownError, match=r"The outcome of the commit of \w+\.revenue is unknown"):
        refresh(cable.site, LOST)
    if fault.startswith("down"):
        assert cable.proxy.struck.wait(300), "whoever stops the server would wait for the new one to end"
        cable.server.start()
    staged = 4 if cable.site.tables_url is None else 2 if fault == "down_after" else 3
    assert len(data_files(cable.site, "lost")) == staged, "plan, result and two files of data, or a table that took its place"
    with cable.site.open() as workspace:
        stage, told = workspace.ledger.get_stage("lost"), workspace.ledger.get_refresh("lost")
        assert (stage.state, told.state) == (StageState.COMMITTING, RefreshState.RUNNING)


def impatient_refresh(site: Site, attempt: Attempt) -> object:
    """Refresh in this process, which gives up a commit after three seconds."""
    leases.LEASE, leases.COMMIT_PATIENCE = timedelta(seconds=2), timedelta(seconds=3)
    return refresh(site, attempt)


def test_a_wire_that_falls_silent_does_not_hold_the_table(cable: Cable, fault_report: FaultReport) -> None:
    """The other side answers for the wire, so the kernel has no reason to break it off."""
    refresh(cable.site, BASE)
    cut(cable, "silent", fault_report)
    hurried = f"{cable.site.database_url}?options=-c%20idle_in_transaction_session_timeout%3D2s"
    stuck = start(impatient_refresh, replace(cable.site, database_url=hurried), LOST)
    assert cable.proxy.struck.wait(60)

    heir = Attempt("heir", LOST.days, "somebody else", LOST.planned)
    until = time.monotonic() + 60
    while True:
        try:
            assert refresh(cable.site, heir).number == 2
            break
        except ConflictError:
            assert time.monotonic() < until, "the lease is renewed for ever"
            time.sleep(0.2)
    stuck.process.kill()
    stuck.process.join(60)
    with cable.site.open() as workspace:
        assert content(workspace) == {"1": [10], "2": [2], "3": [3]}
        check_all_settled(cable.site, workspace)
