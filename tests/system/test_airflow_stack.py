"""What users do with a running Airflow: unpause, trigger by form and command line, backfill, stop; and what they see."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from tests.support.airflow import Stack, jobs_of, until
from tests.support.busy_folders import paths_below

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.postgres]

MAINTENANCE = "dynamic_tables__maintenance"


def dag(table: str) -> str:
    return f"dynamic_table__lake__sales__{table}"


def sales_dags(stack: Stack) -> list[dict[str, Any]]:
    return list(stack.get("/dags", dag_id_pattern=dag("%"))["dags"])


def revenue(stack: Stack, table: str) -> dict[str, float]:
    days: dict[str, float] = {}
    for row in stack.airflow.rows(f"lake.sales.{table}"):
        days[row["ds"]] = days.get(row["ds"], 0) + row["revenue"]
    return days


@pytest.fixture(scope="module", autouse=True)
def month(stack: Stack) -> list[str]:
    """Wait for the DAGs; what takes long goes on beside everything else: who waits in vain for a parent, and a backfill."""
    until("DAGs", lambda: len(sales_dags(stack)) == 9)
    for table in ("late", "orphan", "weekly"):
        stack.unpause(dag(table))
    return begin_backfill(stack, "weekly", date(2024, 1, 7), date(2024, 1, 28))


@pytest.fixture(scope="module")
def refreshed(stack: Stack) -> dict[str, str]:
    """Unpause children before their parents, and let a couple come to its end."""
    stack.unpause(dag("totals"))
    child = stack.first_run(dag("totals"))
    stack.until_state(dag("totals"), child, "deferred")
    assert stack.airflow.refreshes("lake.sales.totals") == []
    stack.until_state(dag("orphan"), stack.first_run(dag("orphan")), "deferred")
    stack.unpause(dag("hopeless"))
    stack.unpause(dag("daily"))
    parent = stack.first_run(dag("daily"))
    stack.until_state(dag("daily"), parent, "success")
    stack.until_state(dag("totals"), child, "success")
    return {"daily": parent, "totals": child}


def test_a_broken_file_is_one_import_error_and_hides_no_dag(stack: Stack) -> None:
    (error,) = until("import error", lambda: stack.get("/importErrors")["import_errors"])
    assert error["filename"] == "definitions/broken.yaml"
    first = error["stack_trace"].splitlines()[0]
    assert first.endswith("/definitions/broken.yaml:3:5: unknown key 'freshnes'; did you mean 'freshness'?")
    tables = ("daily", "endless", "fused", "hopeless", "late", "never", "orphan", "totals", "weekly")
    assert sorted(found["dag_id"] for found in sales_dags(stack)) == [*map(dag, tables)]
    assert not any(found["is_stale"] or found["has_import_errors"] for found in sales_dags(stack))


@pytest.mark.usefixtures("refreshed")
def test_a_child_waits_for_its_parents_commit(stack: Stack) -> None:
    (parent,) = stack.airflow.refreshes("lake.sales.daily")
    (child,) = stack.airflow.refreshes("lake.sales.totals")
    assert child.schedule_time == parent.schedule_time
    assert parent.finished_at is not None
    assert child.started_at >= parent.finished_at
    assert child.sources == {"lake.sales.daily": parent.snapshot}


def test_a_scheduled_refresh_is_for_the_tick_and_its_event_says_what_it_did(stack: Stack, refreshed: dict[str, str]) -> None:
    run = stack.get(f"/dags/{dag('daily')}/dagRuns/{refreshed['daily']}")
    (refresh,) = stack.airflow.refreshes("lake.sales.daily")
    tick = datetime.fromisoformat(run["logical_date"])
    assert refresh.schedule_time == tick
    assert refresh.partitions == PartitionSet.of([{"ds": f"{tick - timedelta(days=1):%Y-%m-%d}"}])
    (event,) = stack.get("/assets/events", source_dag_id=dag("daily"), source_run_id=refreshed["daily"])["asset_events"]
    expected = {
        "version": 1,
        "rows": 0,
        "partitions": [f"ds={tick - timedelta(days=1):%Y-%m-%d}"],
        "schedule_time": tick.isoformat(),
        "refresh": refresh.token,
    }
    assert event["name"] == "dynamic-table://lake/sales/daily"
    assert event["extra"] == expected
    xcom = stack.get(f"/dags/{dag('daily')}/dagRuns/{refreshed['daily']}/taskInstances/refresh/xcomEntries/return_value")
    assert xcom["value"] in (expected, str(expected))


@pytest.mark.large
def test_a_task_links_to_the_versions_of_its_table(stack: Stack, refreshed: dict[str, str]) -> None:
    address = version_link(stack, "daily", refreshed["daily"])
    name = parse_qs(urlsplit(address).query)["name_pattern"][0]
    (asset,) = stack.get("/assets", name_prefix_pattern=name)["assets"]
    assert [task["dag_id"] for task in asset["producing_tasks"]] == [dag("daily")]
    waiting = stack.first_run(dag("late"))
    assert until("link", lambda: version_link(stack, "late", waiting)), "deferred, or failed"


def version_link(stack: Stack, table: str, run_id: str) -> str:
    links = stack.get(f"/dags/{dag(table)}/dagRuns/{run_id}/taskInstances/refresh/links")["extra_links"]
    assert links["Spark"] is None, "its own page is there while it runs, and only if somebody wants it"
    return links["Versions of the table"] or ""


@pytest.mark.usefixtures("refreshed")
def test_the_form_refreshes_a_partition(stack: Stack) -> None:
    params = stack.get(f"/dags/{dag('daily')}/details")["params"]
    form: dict[str, Any] = {name: param["value"] for name, param in params.items()}
    flags = dict.fromkeys(("full_refresh", "even_if_suspended", "do_not_wait"), False)
    assert form == {"schedule_time": None, "partition": None, **flags}
    form["partition"] = "ds=2024-01-05"
    run_id = stack.trigger(dag("daily"), logical_date=datetime.now(UTC).isoformat(), conf=form)
    stack.until_state(dag("daily"), run_id, "success")
    assert revenue(stack, "daily") == {"2024-01-05": 55}


@pytest.mark.large
@pytest.mark.usefixtures("refreshed")
def test_the_command_line_triggers_a_schedule_time(stack: Stack) -> None:
    stack.airflow.check("dags", "trigger", dag("daily"), "-r", "by_hand", "--conf", '{"schedule_time": "2024-01-07 00:00:00"}')
    stack.until_state(dag("daily"), "by_hand", "success")
    assert revenue(stack, "daily")["2024-01-06"] == 66


@pytest.mark.large
@pytest.mark.usefixtures("refreshed")
def test_nonsense_in_the_form_fails_with_a_sentence(stack: Stack) -> None:
    run_id = stack.trigger(dag("totals"), conf={"partition": "ds=2024-01-05"})
    stack.until_state(dag("totals"), run_id, "failed")
    assert "the table is not partitioned, so no partition can be named" in stack.log(dag("totals"), run_id)


@pytest.mark.large
def test_a_month_of_daily_partitions_is_backfilled(stack: Stack, month: list[str]) -> None:
    """Seven of them a run; for one a run see below."""
    for run_id in month:
        stack.until_state(dag("weekly"), run_id, "success", seconds=300)
    assert revenue(stack, "weekly") == expected_revenue(date(2023, 12, 31), date(2024, 1, 28))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("refreshed")
def test_a_month_is_backfilled_day_by_day(stack: Stack) -> None:
    backfill(stack, "daily", date(2024, 1, 2), date(2024, 2, 1), {"success"}, seconds=1500)
    assert revenue(stack, "daily") == expected_revenue(date(2024, 1, 1), date(2024, 2, 1))


@pytest.mark.large
@pytest.mark.usefixtures("refreshed")
def test_a_backfill_of_a_whole_table_skips_instead_of_overwriting(stack: Stack) -> None:
    before = stack.airflow.refreshes("lake.sales.totals")
    run_ids = backfill(stack, "totals", date(2024, 1, 1), date(2024, 1, 2), {"skipped"})
    assert "would overwrite newer data" in stack.log(dag("totals"), run_ids[0])
    (current,) = [refresh for refresh in stack.airflow.refreshes("lake.sales.totals") if refresh.version]
    assert (current.token, current.version) in [(refresh.token, refresh.version) for refresh in before]
    assert not stack.airflow.stages("lake.sales.totals")


@pytest.mark.large
def test_a_late_parent_fails_the_child_by_name(stack: Stack) -> None:
    run_id = stack.first_run(dag("late"))
    stack.until_state(dag("late"), run_id, "failed")
    log = stack.log(dag("late"), run_id)
    assert "UPSTREAM_LATE: lake.sales.never must be fresh up to" in log
    assert stack.airflow.refreshes("lake.sales.late") == []


@pytest.mark.usefixtures("refreshed")
def test_a_parent_whose_last_try_failed_fails_the_child_at_once(stack: Stack) -> None:
    parent, child = stack.first_run(dag("hopeless")), stack.first_run(dag("orphan"))
    tried = stack.until_state(dag("hopeless"), parent, "failed")
    failed = stack.until_state(dag("orphan"), child, "failed")
    assert tried["try_number"] == 2
    assert failed["end_date"] > tried["end_date"]
    log = stack.log(dag("orphan"), child)
    assert "Waiting no longer: lake.sales.hopeless must be fresh up to" in log
    assert "UPSTREAM_FAILED: lake.sales.hopeless must be fresh up to" in log
    assert stack.airflow.refreshes("lake.sales.orphan") == []


def test_marking_a_running_refresh_failed_stops_spark_and_leaves_no_stage(stack: Stack) -> None:
    stack.unpause(dag("endless"))
    run_id = stack.first_run(dag("endless"))
    refresh = until("refresh", lambda: stack.airflow.refreshes("lake.sales.endless"))[0]
    until("Spark", lambda: jobs_of(refresh.token))
    stack.mark(dag("endless"), run_id, "failed")
    until("end of Spark", lambda: not jobs_of(refresh.token))
    ended = until(
        "end of the refresh", lambda: [found for found in stack.airflow.refreshes("lake.sales.endless") if found.finished_at]
    )
    assert ended[0].state in (RefreshState.ABORTED, RefreshState.FAILED)
    until("end of the stage", lambda: not stack.airflow.stages("lake.sales.endless"))
    assert paths_below(stack.airflow.warehouse, refresh.token) == []


@pytest.mark.large
def test_maintenance_runs_beside_refreshes(stack: Stack) -> None:
    stack.unpause(MAINTENANCE)
    run_id = stack.first_run(MAINTENANCE)
    stack.until_state(MAINTENANCE, run_id, "success", task_id="sweep")


@pytest.mark.large
def test_a_run_of_the_maintenance_names_tables_that_nobody_declares_any_more(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "gone.yaml"
    file.write_text("dynamic_tables: [{name: lake.sales.gone, freshness: 1 day, query: SELECT 1 AS x}]")
    (gone,) = load_definitions(file).tables.values()
    file.unlink()
    broken = stack.airflow.definitions / "broken.yaml"
    hidden = broken.rename(broken.with_name(".broken.yaml"))  # it might declare the table
    stack.unpause(MAINTENANCE)
    try:
        with stack.airflow.workspace() as workspace:
            ensure(workspace, gone)
            run_id = stack.trigger(MAINTENANCE)
            until("end of the run", lambda: stack.run(MAINTENANCE, run_id)["state"] == "success", 600)
            drop(workspace, gone.identifier)
    finally:
        hidden.rename(broken)
    assert "lake.sales.gone" in stack.run(MAINTENANCE, run_id)["note"]


def begin_backfill(stack: Stack, table: str, first: date, last: date) -> list[str]:
    """Backfill a table."""
    window = ("--from-date", first.isoformat(), "--to-date", last.isoformat())
    stack.airflow.check("backfill", "create", "--dag-id", dag(table), *window)
    runs = until("backfill runs", lambda: stack.runs(dag(table), run_type="backfill"))
    return [run["dag_run_id"] for run in runs]


def backfill(stack: Stack, table: str, first: date, last: date, states: set[str], seconds: float = 300) -> list[str]:
    """Backfill a table and wait for every run of it."""
    run_ids = begin_backfill(stack, table, first, last)
    for run_id in run_ids:
        stack.until_state(dag(table), run_id, *states, seconds=seconds)
    return run_ids


def expected_revenue(first: date, end: date) -> dict[str, float]:
    """What the orders of the days from the first up to, and without, the end amount to."""
    days = [first + timedelta(days=number) for number in range((end - first).days)]
    return {f"{day}": 11.0 * ((day - date(2024, 1, 1)).days + 1) for day in days if day >= date(2024, 1, 1)}
