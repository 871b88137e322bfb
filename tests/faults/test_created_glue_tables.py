"""CREATE TABLE AS in Glue struck between the calls that name a table: it is there whole or never was, and by one name."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.exceptions import TableAlreadyExistsError
from airflow_dynamic_tables.services.ctas.wanted import Created, Outcome
from airflow_dynamic_tables.services.workspace import Workspace
from tests.faults.test_created_tables import CURES, NEXT, STRUCK, create
from tests.faults.test_kills import kill
from tests.support.benches.iceberg import glue_properties
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import content
from tests.support.faults.victims import PREFIX, REVENUE, STOP, Attempt, Site, start, sweep, victim, when_leases_are_over
from tests.support.object_store import running_object_store

DECIDES, SHOWS, TIDIES = "UpdateTable", "CreateTable", "DeleteTable"
"""Calls to Glue once the rows have landed: the new name is decided, an entry of it is made, the one of the draft goes."""

SHORT = {(DECIDES, "retry"), (SHOWS, "sweep"), (TIDIES, "other owner")}
"""What CI strikes, and how it is cured."""


@pytest.fixture
def site(tmp_path: Path, empty_state: Path) -> Iterator[Site]:
    """Refreshes of tables in an empty Glue."""
    shutil.copy(empty_state, tmp_path / "state.db")
    with running_object_store() as store:
        glue = {"type": "glue", **glue_properties(store), "warehouse": f"file://{tmp_path}/warehouse"}
        catalogs = tmp_path / "catalogs.yaml"
        catalogs.write_text(json.dumps({"catalogs": [{"name": "lake", "type": "iceberg", "connection-params": glue}]}))
        yield Site(tmp_path, f"sqlite:///{tmp_path}/state.db", catalogs=catalogs)


def create_in_steps(site: Site, attempt: Attempt) -> Created:
    """CREATE TABLE AS that says before which call to Glue it is, once the rows have landed."""
    landed: list[bool] = []

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name == f"{PREFIX}naming":
            landed.append(True)
        elif landed and name == "http.client.send":
            for call in (DECIDES, SHOWS, TIDIES):
                if f"AWSGlue.{call}".encode() in arguments[1]:
                    sys.audit(f"{PREFIX}{call}")

    sys.addaudithook(hook)
    return create(site, attempt)


@pytest.mark.parametrize(
    ("point", "cure"),
    [
        pytest.param(*case, marks=() if case in SHORT else pytest.mark.long)
        for case in product(("planned", "publishing", "naming", DECIDES, SHOWS, TIDIES, "published"), CURES)
    ],
)
def test_killed_at(site: Site, fault_report: FaultReport, point: str, cure: str) -> None:
    is_seen = point in (TIDIES, "published")
    lands = is_seen or point == SHOWS  # which the next one does
    kill(fault_report, point, create_in_steps, site, STRUCK)
    with site.open() as workspace:
        assert content(workspace) == (STRUCK.days if is_seen else {})
        if cure == "sweep":
            sweep(site)
            check_nothing_is_left(site, workspace)
            assert content(workspace) == (STRUCK.days if lands else {})
        elif point == SHOWS:
            with pytest.raises(TableAlreadyExistsError, match="was made by somebody else meanwhile"):
                create(site, Attempt("second", NEXT.days, STRUCK.owner))
            assert content(workspace) == STRUCK.days
        owner = "somebody else" if cure == "other owner" else STRUCK.owner
        assert create(site, Attempt("next", NEXT.days, owner)).outcome is (Outcome.REPLACED if lands else Outcome.CREATED)
        assert content(workspace) == NEXT.days
        sweep(site)
        check_nothing_is_left(site, workspace)


@pytest.mark.parametrize("point", [DECIDES, *(pytest.param(point, marks=pytest.mark.long) for point in (SHOWS, TIDIES))])
def test_a_creator_that_wakes_up_too_late_changes_nothing(site: Site, fault_report: FaultReport, point: str) -> None:
    """It is stopped until its lease is over, and somebody else has given up what it did, or finished it."""
    sleeper = victim(point, STOP, create_in_steps, site, STRUCK)
    sleeper.wait_until_stopped()
    fault_report.injected("stopped")
    sweep(site, when_leases_are_over)
    create(site, NEXT)
    sleeper.wake()
    made, error = sleeper.answer()
    assert (made is None) == (point == DECIDES), error
    with site.open() as workspace:
        assert content(workspace) == NEXT.days
        sweep(site)
        check_nothing_is_left(site, workspace)


def test_of_many_creators_at_once_one_wins(site: Site) -> None:
    attempts = [Attempt(f"t{number}", {str(number): [number]}, f"owner {number}") for number in range(3)]
    answers = [child.answer() for child in [start(create_in_steps, site, attempt) for attempt in attempts]]
    winners = [made.token for made, _ in answers if made is not None and made.outcome is Outcome.CREATED]
    assert len(winners) == 1
    with site.open() as workspace:
        assert content(workspace) in [attempt.days for attempt in attempts]
        sweep(site)
        check_nothing_is_left(site, workspace)


def check_nothing_is_left(site: Site, workspace: Workspace) -> None:
    """The table has one name and one folder, or there is none."""
    catalog = workspace.catalog("lake")
    names = catalog.list_tables("sales") if catalog.database_exists("sales") else []
    assert names == (["revenue"] if catalog.table_exists(REVENUE.path) else [])
    folders = [path for path in site.home.glob("warehouse/sales/*") if list(path.rglob("*.*"))]
    assert len(folders) == len(names), folders
