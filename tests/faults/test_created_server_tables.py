"""CREATE TABLE AS in PostgreSQL struck at every step: the table is there whole or never was, and no stage is left."""

from __future__ import annotations

import sys
from itertools import cycle, product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.workspace import Workspace
from tests.faults.test_created_tables import AFTER, BASE, CURES, Way, kill_and_cure, race, wake_too_late
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import versions
from tests.support.faults.victims import PREFIX, REVENUE, Attempt, Site

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("site", ["jdbc"], indirect=True)]

BEFORE = ("begin", "opened", "planned", "writing", "result", "commit", "publishing", "entry", "rename", "record", "ending")

SHORT = {
    True: ("opened", "writing", "publishing", "rename", "ending", "published"),
    False: ("writing", "ending"),
}
"""Where CI strikes a table that is new, and one that is replaced."""

STATEMENTS = {'INSERT INTO "public"."_dynamic_tables"': "entry", 'INSERT INTO "public"."_dynamic_table_commits"': "record"}
"""Statements of the transaction that makes a table, before which something happens."""


def create(site: Site, attempt: Attempt, purpose: Purpose = Purpose.CREATE_OR_REPLACE) -> Created:
    """CREATE TABLE AS that says before which step of its commit it is."""
    renamed: list[bool] = []

    def before(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("ALTER TABLE") and " RENAME TO " in statement:
            renamed.append(True)
            sys.audit(f"{PREFIX}rename")
        for beginning, point in STATEMENTS.items():
            if statement.startswith(beginning):
                sys.audit(f"{PREFIX}{point}")

    def ending(_: Any) -> None:
        if renamed:
            sys.audit(f"{PREFIX}ending")

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", ending)
    query = "SELECT '1' AS ds, 1 AS n"
    wanted = WantedTable(REVENUE, query, ("lake", "sales"), QueryPlace(Path("query"), query), purpose)
    by = (attempt.token, attempt.owner)
    with site.open() as workspace:
        return create_table_as(workspace, Definitions(), wanted, by, lambda plan: fill(plan, attempt))


def fill(plan: RefreshPlan, attempt: Attempt) -> None:
    """The job, which says where it is."""
    assert plan.sink is not None
    rows = [(day, number) for day, numbers in attempt.days.items() for number in numbers]
    with psycopg.connect(plan.sink.url.removeprefix("jdbc:"), user=plan.sink.user or "", autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {plan.sink.table} (ds text, n bigint)".encode())
        sys.audit(f"{PREFIX}writing", plan.token)
        connection.cursor().executemany(f"INSERT INTO {plan.sink.table} VALUES (%s, %s)".encode(), rows)
    result = RefreshResult(plan.token, "by hand", len(rows), (), (Column("ds", "string"), Column("n", "bigint")))
    write_text(plan.result_location, result.to_json())
    sys.audit(f"{PREFIX}result", plan.token)


def _matrix() -> list[object]:
    """Every point with every cure, for a new table and for one that is replaced; CI has one cure for each of some points."""
    points = [
        *product((True,), BEFORE + AFTER),
        *((False, point) for point in BEFORE + AFTER if point != "entry"),
    ]
    short = set(zip([point for point in points if point[1] in SHORT[point[0]]], cycle(CURES), strict=False))
    return [
        pytest.param(
            *(new, point, cure),
            id=f"{'create' if new else 'replace'}-{point}-{cure}",
            marks=() if ((new, point), cure) in short else pytest.mark.long,
        )
        for (new, point), cure in product(points, CURES)
    ]


@pytest.mark.parametrize(("new", "point", "cure"), _matrix())
def test_killed_at(site: Site, sales_url: str, fault_report: FaultReport, new: bool, point: str, cure: str) -> None:
    if not new:
        create(site, BASE)
        with psycopg.connect(sales_url) as connection:
            connection.execute("GRANT SELECT ON revenue TO PUBLIC")
    kill_and_cure(SERVER_TABLES, site, fault_report, new, point, cure)
    if not new:
        with psycopg.connect(sales_url) as connection:
            granted = connection.execute("SELECT has_table_privilege('public', 'revenue', 'SELECT')").fetchone()
        assert granted == (True,)


@pytest.mark.parametrize("point", ["planned", "publishing"])
def test_a_creator_that_wakes_up_too_late_makes_nothing(site: Site, fault_report: FaultReport, point: str) -> None:
    wake_too_late(SERVER_TABLES, site, fault_report, point)


def test_of_many_creators_at_once_one_wins_and_the_others_are_told(site: Site) -> None:
    race(SERVER_TABLES, site)


def check_nothing_is_left(site: Site, workspace: Workspace) -> None:
    """Nobody is at work any more: server, catalog, ledger and disk know of the table, or of nothing."""
    assert site.tables_url is not None
    exists = workspace.catalog("lake").table_exists(REVENUE.path)
    with psycopg.connect(site.tables_url) as connection:
        tables = connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
        assert {name for (name,) in tables} - {"_dynamic_tables", "_dynamic_table_commits"} == ({"revenue"} if exists else set())
        if exists:
            assert connection.execute("SELECT table_name FROM _dynamic_tables").fetchall() == [("revenue",)]
    landed = {version.token for version in versions(workspace)}
    stages = {stage.token: stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))}
    assert {token for token, state in stages.items() if state is StageState.COMMITTED} == landed
    assert set(stages.values()) <= {StageState.COMMITTED, StageState.ABORTED}
    assert [path for path in site.home.glob("warehouse/**/_stages/*") if path.is_dir()] == []


SERVER_TABLES = Way(create, check_nothing_is_left)
