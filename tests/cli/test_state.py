"""create, list, show, history, gc and db upgrade: what looks after the state, without Spark."""

import json
import os
import shutil
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import RefreshWithRows, TableDetails
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.cli.conftest import Run
from tests.support.pyarrow_job import write_numbers, write_scattered


def test_a_defined_table_is_listed_before_it_exists(dynamic_tables: Run) -> None:
    listed = json.loads(dynamic_tables("list", "-o", "json").out)
    assert [entry["identifier"] for entry in listed] == ["lake.sales.daily_revenue", "lake.sales.total"]
    assert listed[0]["workflow_id"] == "dynamic_table__lake__sales__daily_revenue"
    assert listed[0]["version"] is None


def test_a_table_is_listed_with_the_dag_that_refreshes_it(dynamic_tables: Run, project: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(
        file.read_text().replace("defaults: {", "defaults: {dag: shared, ").replace("    timezone: Europe/Berlin\n", "")
    )
    dynamic_tables("create")
    ids = [entry["workflow_id"] for entry in json.loads(dynamic_tables("list", "-o", "json").out)]
    assert ids == ["dynamic_table_group__shared"] * 2
    file.write_text(file.read_text().partition("  - name: total")[0].replace("dag: shared, ", ""))
    (own, left) = json.loads(dynamic_tables("list", "-o", "json").out)
    assert own["workflow_id"] == "dynamic_table__lake__sales__daily_revenue"
    assert (left["workflow_id"], left["defined"]) == ("dynamic_table_group__shared", False)


def test_create_registers_alters_and_leaves_alone(dynamic_tables: Run, project: Path) -> None:
    def create(*tables: str) -> dict[str, str]:
        created = json.loads(dynamic_tables("create", *tables, "-o", "json").out)
        return {entry["identifier"]: entry["outcome"] for entry in created}

    assert create("total") == {"lake.sales.total": "created"}
    assert create() == {"lake.sales.daily_revenue": "created", "lake.sales.total": "unchanged"}
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text().replace("freshness: 1 hour", "freshness: 2 hours"))
    assert create() == {"lake.sales.daily_revenue": "unchanged", "lake.sales.total": "altered"}


def test_show_what_was_created(dynamic_tables: Run) -> None:
    missing = dynamic_tables("show", "total")
    assert missing.code == 1
    assert "dynamic-tables create lake.sales.total" in missing.err
    dynamic_tables("create")
    shown = yaml.safe_load(dynamic_tables("show", "sales.total", "-o", "yaml").out)
    assert shown["status"]["freshness"] == "1 hour"
    assert shown["table"]["original_query"] == "SELECT sum(revenue) AS revenue FROM daily_revenue"
    as_table = dynamic_tables("show", "total").out
    assert "lake.sales.total" in as_table
    assert "waits for its first refresh" in as_table, "INITIALIZING, which sounds as if something was under way"


def test_a_table_that_is_no_longer_defined_stays_visible(dynamic_tables: Run, project: Path) -> None:
    dynamic_tables("create")
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables: [{name: lake.sales.other, freshness: 1 day, query: SELECT 1 AS one}]"
    )
    listed = {entry["identifier"]: entry["defined"] for entry in json.loads(dynamic_tables("list", "-o", "json").out)}
    assert listed == {"lake.sales.daily_revenue": False, "lake.sales.other": True, "lake.sales.total": False}
    defined = {line.split()[0]: line.split()[1] for line in dynamic_tables("list").out.splitlines() if line.startswith("lake.")}
    assert defined["lake.sales.other"] == "yes"
    assert defined["lake.sales.total"] == "no"
    shown = dynamic_tables("show", "lake.sales.total")
    assert shown.code == 0
    assert ["defined", "no"] in [line.split() for line in shown.out.splitlines()]
    assert dynamic_tables("show", "total").code == 1


def test_a_table_whose_definition_has_a_mistake_is_not_called_undefined(dynamic_tables: Run, project: Path) -> None:
    dynamic_tables("create")
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text().replace("freshness: 1 hour", "freshness: 1 our"))
    listed = dynamic_tables("list", "-o", "json")
    assert listed.code == 1
    assert [entry["defined"] for entry in json.loads(listed.out)] == [True, None]
    shown = json.loads(dynamic_tables("show", "lake.sales.total", "-o", "json").out)
    assert list(shown) == [field.name for field in fields(TableDetails)]
    assert shown["status"]["defined"] is None
    shutil.rmtree(project / "dags")
    assert json.loads(dynamic_tables("show", "lake.sales.total", "-o", "json").out)["status"]["defined"] is None


@pytest.mark.usefixtures("numbers")
def test_a_refresh_shows_the_first_rows_when_asked(dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan, (41, 42)))
    made = dynamic_tables("refresh", "numbers", "--schedule-time", "2024-01-01 00:00:00", "--show")
    assert (made.code, made.err) == (0, "")
    assert made.out.partition("\n\n")[2].split() == ["x", "─" * 2, "41", "42"]
    skipped = dynamic_tables("refresh", "numbers", "--schedule-time", "2023-01-01 00:00:00", "--show", "-o", "json")
    told = json.loads(skipped.out)
    assert list(told) == [field.name for field in fields(RefreshWithRows)]
    assert (told["state"], told["first_rows"]) == ("SKIPPED", [{"x": 41}, {"x": 42}])
    assert dynamic_tables("suspend", "numbers").code == 0
    assert dynamic_tables("drop", "numbers", "--yes", "--purge").code == 0
    assert "first_rows" not in json.loads(dynamic_tables("refresh", "numbers", "-o", "json").out)


def test_an_empty_list_says_so(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text("dynamic_tables: []\n")
    listed = dynamic_tables("list")
    assert (listed.code, listed.out) == (0, "")
    assert listed.err == "There are no dynamic tables: none is defined, and the catalogs have none.\n"


def test_a_full_name_that_is_mistyped_is_answered_with_what_was_meant(dynamic_tables: Run) -> None:
    for command in ("show", "suspend", "compact"):
        mistyped = dynamic_tables(command, "lake.sales.daily_reveneu")
        assert (mistyped.code, mistyped.out) == (1, "")
        assert mistyped.err.endswith(" Did you mean 'lake.sales.daily_revenue'?\n")
        assert "is defined" not in mistyped.err
    missing = dynamic_tables("show", "lake.sales.daily_revenue")
    assert "It is defined: its first refresh creates it, and so does: dynamic-tables create lake.sales" in missing.err
    assert "mean" not in missing.err


def test_an_empty_history_says_so(dynamic_tables: Run) -> None:
    ran = dynamic_tables("history", "total")
    assert (ran.code, ran.out, ran.err) == (0, "", "No refresh of lake.sales.total is recorded.\n")
    assert json.loads(dynamic_tables("history", "-o", "json").out) == []


def test_gc_with_nothing_to_do(dynamic_tables: Run) -> None:
    swept = json.loads(dynamic_tables("gc", "-o", "json").out)
    nothing = {"compacted_files": 0, "expired": 0, "deleted_files": 0, "deleted_bytes": 0, "pruned": 0}
    assert swept == {"aborted": [], "completed": [], "kept": [], "failed": [], **nothing}
    assert dynamic_tables("gc").code == 0


def test_small_files_are_compacted_and_counted(dynamic_tables: Run, project: Path) -> None:
    dynamic_tables("create")
    definitions = load_definitions(project / "dags" / "definitions" / "sales.yaml", conventions=Conventions(("lake", "sales")))
    table = definitions.tables[TableIdentifier("lake", "sales", "daily_revenue")]
    table = replace(table, partition_keys=(), formatters={}, query="SELECT 1 AS x", expanded_query="SELECT 1 AS x")
    with open_workspace(embedded_settings(os.environ)) as workspace:
        request = RefreshRequest(table, definitions.sources, datetime(2024, 1, 3, tzinfo=UTC), "t1", "test")
        run(workspace, request, lambda plan: write_scattered(plan, range(21)))
    (due,) = json.loads(dynamic_tables("compact", "daily_revenue", "--dry-run", "-o", "json").out)
    size = due.pop("bytes")
    assert due == {"partition": {}, "files": 21, "small": 21, "is_due": True, "why_not": None}
    ran = dynamic_tables("compact", "daily_revenue", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    (done,) = json.loads(ran.out)
    assert 0 < done.pop("bytes_after") < size
    assert done == {"partition": {}, "files_before": 21, "files_after": 1, "bytes_before": size, "why_not": None}
    assert "files after" in dynamic_tables("compact", "daily_revenue").out
    for name, why in (("lake.sales.total", "does not exist or has no version yet"), ("lake.sales.nothing", "does not exist")):
        refused = dynamic_tables("compact", name)
        assert (refused.code, refused.out, why in refused.err) == (1, "", True), refused.err


def test_db_upgrade_makes_the_database_and_may_be_repeated(dynamic_tables: Run, project: Path) -> None:
    for _ in range(2):
        ran = dynamic_tables("db", "upgrade", "--database-url", f"sqlite:///{project}/other.db")
        assert (ran.code, ran.out) == (0, "")
    assert (project / "other.db").stat().st_size > 0
    assert not (project / "airflow").exists()


def test_db_upgrade_makes_the_databases_of_catalogs_too(dynamic_tables: Run, project: Path) -> None:
    catalogs = "catalogs: [{name: lake, connection-params: {url: 'sqlite:///lake.db'}}, {name: scratch, type: memory}]"
    (project / "mine.yaml").write_text(catalogs)
    ran = dynamic_tables("db", "upgrade", "--database-url", f"sqlite:///{project}/other.db", "--catalogs", "mine.yaml")
    assert (ran.code, ran.err) == (0, "Ledger and catalogs are up to date.\n")
    assert (project / "lake.db").is_file()


def test_the_option_wins_over_the_environment(dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_TABLES_DATABASE_URL", f"sqlite:///{project}/environment.db")
    dynamic_tables("create", "total")
    assert (project / "environment.db").exists()
    dynamic_tables("create", "total", "--database-url", f"sqlite:///{project}/option.db")
    assert (project / "option.db").exists()


def test_catalogs_file_beside_the_definitions(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "catalogs.yaml").write_text("catalogs: [{name: elsewhere, type: sql}]")
    ran = dynamic_tables("create", "total")
    assert ran.code == 1
    assert "no catalog lake" in ran.err
    (project / "mine.yaml").write_text("catalogs: [{name: lake, type: sql}]")
    assert dynamic_tables("create", "total", "--catalogs", "mine.yaml").code == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "database URL"),
        ("mysql://host/db", "mysql is not supported"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", "Cannot reach postgresql+psycopg://nobody:***@127.0.0.1:1/none"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line(dynamic_tables: Run, url: str, message: str) -> None:
    ran = dynamic_tables("history", "--database-url", url)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert "secret" not in ran.err


def test_how_far_a_table_lies_behind(dynamic_tables: Run, project: Path) -> None:
    definitions = load_definitions(project / "dags" / "definitions" / "sales.yaml", conventions=Conventions(("lake", "sales")))
    table = definitions.tables[TableIdentifier("lake", "sales", "daily_revenue")]
    table = replace(table, partition_keys=(), formatters={}, query="SELECT 1 AS x", expanded_query="SELECT 1 AS x")
    with open_workspace(embedded_settings(os.environ)) as workspace:
        run(workspace, RefreshRequest(table, definitions.sources, datetime(2024, 1, 3, tzinfo=UTC), "t1", "test"), write_numbers)
    (status, never) = json.loads(dynamic_tables("list", "-o", "json").out)
    assert (status["late"], never["late"]) == (True, None)
    assert status["lag_seconds"] > status["allowed_lag_seconds"] >= status["freshness_seconds"] == 86_400
    lines = dynamic_tables("list").out.splitlines()
    assert {"lag", "late", "missing"} <= set(lines[0].split())
    assert "   yes    " in lines[2]
    assert "moved" in dynamic_tables("show", "daily_revenue").out
    for option, moved in (((), None), (("--check-sources",), False)):
        shown = json.loads(dynamic_tables("show", "daily_revenue", *option, "-o", "json").out)
        ((source,), (pace,)) = shown["sources"], shown["pace"]
        assert (source["source"], source["partitions"], source["last_partition"]) == ("lake.raw.orders", 2, "ds=2024-01-02")
        assert (source["moved"], pace["version"], pace["rows"]) == (moved, 1, 3)
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text("dynamic_tables: []")
    refused = dynamic_tables("show", "lake.sales.daily_revenue", "--check-sources")
    assert (refused.code, "daily_revenue" in refused.err) == (1, True)


def test_the_saved_cost_is_shown_by_refresh_and_month(dynamic_tables: Run) -> None:
    table, time = TableIdentifier("lake", "sales", "total"), datetime(2024, 3, 1, tzinfo=UTC)
    of_full = Refresh("full", table, RefreshAction.FULL, "", RefreshState.SUCCEEDED, time, time, time, recipe="a", bytes=1_000)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        workspace.ledger.record(replace(of_full, seconds={"spark": 60.0}))
        later = time + timedelta(days=1)
        of_day = replace(of_full, token="part", action=RefreshAction.PARTITIONS, partitions=PartitionSet.of([{"ds": "1"}]))
        workspace.ledger.record(replace(of_day, bytes=10, seconds={"spark": 5.0}, started_at=later, finished_at=later))
        other = replace(of_full, token="merge", table=TableIdentifier("lake", "sales", "other"), action=RefreshAction.MERGE)
        workspace.ledger.record(other)
    header, *lines = dynamic_tables("history", "--saved", "month").out.splitlines()
    assert header.split()[:2] == ["table", "month"]
    assert [line.count("not measured") for line in lines if "lake.sales" in line] == [6, 0]
    (month,) = json.loads(dynamic_tables("history", "total", "--saved", "month", "-o", "json").out)
    assert (month["month"], month["refreshes"], month["seconds"], month["full_bytes"]) == ("2024-03", 2, 65.0, 2_000)
    each = json.loads(dynamic_tables("history", "total", "--saved", "refresh", "--limit", "1", "-o", "json").out)
    assert [(one["token"], one["bytes"]) for one in each] == [("part", 10)]
