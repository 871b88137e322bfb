"""The operator before and around Spark: what it refuses, whom it waits for, what it leaves to another try."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from airflow.sdk import DAG, Asset, task_group
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetResult
from airflow.sdk.execution_time.context import OutletEventAccessors, set_current_context

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionWatermark
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, DefinitionError, DynamicTableError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.reconcilers import abort_refresh, complete_refresh, count_failure
from airflow_dynamic_tables.operators.reporting import OTHER_EVENTS
from airflow_dynamic_tables.operators.run_arguments import of_group
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.maintenance.sweeping import upgrade
from airflow_dynamic_tables.services.refresh import catching_up
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.airflow_runs import AirflowRuns
from tests.support.postgres import PostgresServer
from tests.support.pyarrow_job import write_days, write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)

TABLES = """
defaults: {spark: {conn_id: CONNECTION}}
dynamic_tables:
- {name: parent, freshness: 1 day, query: SELECT 1 AS x}
- {name: child, freshness: 2 hours, query: SELECT x FROM parent}
- {name: grandchild, freshness: 1 hour, query: SELECT x FROM child}
- name: hours
  freshness: 1 hour
  partitioned_by: [ds]
  initial: latest
  skip_unchanged: false
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd-HH}
  query: SELECT '1' AS ds, 1 AS n
- {name: awaiting, freshness: 2 hours, wait_for: [{path: "ready/{yyyy-MM-dd}/{HH}"}], query: SELECT 1 AS x}
"""


def operator_of(home: Path, name: str = "child", connection: str = "local", **options: Any) -> DynamicTableRefreshOperator:
    path = home / "tables.yaml"
    path.write_text(TABLES.replace("CONNECTION", connection))
    definitions = load_definitions(path)
    table = definitions.table(name)
    assert table is not None
    return DynamicTableRefreshOperator(task_id="refresh", table=table, definitions=definitions, **options)


def context() -> dict[str, Any]:
    xcoms: dict[str, object] = {}
    ti = SimpleNamespace(
        id="token",
        dag_id="dag",
        run_id="run",
        task_id="refresh",
        xcoms=xcoms,
        xcom_push=lambda key, value: xcoms.update({key: value}),
    )
    return {
        "ti": ti,
        "dag_run": SimpleNamespace(conf={}),
        "params": {},
        "logical_date": TICK,
        "outlet_events": OutletEventAccessors(),
    }


def failure_of(operator: DynamicTableRefreshOperator) -> AirflowException:
    with pytest.raises(AirflowException) as error:
        operator.execute(context())
    assert "\n" not in str(error.value)
    return error.value


def test_callbacks_of_a_dag_of_ones_own_come_beside_ours(home: Path) -> None:
    def notify(context: object) -> None: ...

    def other(context: object) -> None: ...

    defaults = {"on_failure_callback": notify, "on_success_callback": [notify, other]}
    with DAG("own", default_args=defaults):
        operator = operator_of(home, on_retry_callback=other)
    again = operator_of(home, default_args=defaults)
    assert (
        callbacks(operator, "on_failure_callback")
        == callbacks(again, "on_failure_callback")
        == [notify, abort_refresh, count_failure]
    )
    assert callbacks(operator, "on_success_callback") == [notify, other, complete_refresh]
    assert callbacks(operator, "on_retry_callback") == [other, abort_refresh]


def callbacks(operator: DynamicTableRefreshOperator, event: str) -> list[Any]:
    return list(getattr(operator, event))


NAMED = """
defaults: {catalog: lake, database: sales, spark: {conn_id: local}}
sources: [{name: orders, format: parquet, path: /orders, schema: "x INT"}]
dynamic_tables:
- {name: daily, freshness: 1 day, query: SELECT x FROM orders, pool: spark, queue: big, on_failure_callback: "os:getcwd"}
- {name: hourly, freshness: 1 hour, query: SELECT x FROM daily}
"""


@pytest.fixture
def folder(home: Path) -> Path:
    folder = home / "definitions"
    folder.mkdir()
    (folder / "sales.yaml").write_text(NAMED)
    return folder


def named(table: Any, folder: Path, **options: Any) -> DynamicTableRefreshOperator:
    return DynamicTableRefreshOperator(**{"task_id": "refresh", "table": table, "definitions": folder, **options})


@pytest.mark.parametrize("name", ["lake.sales.daily", "sales.daily", "daily"])
def test_a_name_and_a_folder_are_enough(folder: Path, name: str) -> None:
    with DAG("own", default_args={"queue": "small", "owner": "jane"}):
        operator = named(name, folder)
        given = named(name, folder, task_id="given", pool="other", retries=7, outlets=[Asset("mine")], conf={"spark.a": "b"})
    daily = dynamic_table_asset("lake.sales.daily")
    assert str(operator.table.identifier) == "lake.sales.daily"
    assert [str(source) for source in operator.sources] == ["lake.sales.orders"]
    assert (operator.pool, operator.queue, operator.owner, operator._conn_id) == ("spark", "big", "jane", "local")
    assert (operator.retries, operator.retry_delay, operator.max_active_tis_per_dag) == (2, timedelta(minutes=5), 1)
    assert callbacks(operator, "on_failure_callback") == [os.getcwd, abort_refresh, count_failure]
    assert (operator.outlets, operator.inlets) == ([daily], [])
    assert (given.pool, given.retries, given.outlets, given.conf) == ("other", 7, [daily, Asset("mine")], {"spark.a": "b"})


def test_a_named_child_waits_for_its_parents(folder: Path) -> None:
    operator = named("lake.sales.hourly", folder)
    assert [str(parent.identifier) for parent in operator.parents] == ["lake.sales.daily"]
    assert operator.inlets == [dynamic_table_asset("lake.sales.daily")]
    assert deferral_of(operator).trigger.schedule_time == TICK.isoformat()


def test_a_run_of_another_dag_is_for_the_tables_newest_tick(folder: Path) -> None:
    operator = named("lake.sales.hourly", folder)
    own = SimpleNamespace(conf={"of_others": 1}, run_after=TICK + timedelta(hours=3, minutes=17))
    asked = {**context(), "logical_date": None, "dag_run": own}
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(asked)
    assert deferred.value.trigger.schedule_time == (TICK + timedelta(hours=3)).isoformat()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lake.sales.dayly", "did you mean lake.sales.daily?"),
        ("nothing.at.all", "No dynamic table nothing.at.all is defined"),
        ("a.b.c.d", "No dynamic table a.b.c.d is defined"),
        ("{{ params.table }}", "is not known before a run"),
        (["lake.sales.daily"], "is not known before a run"),
        ("", "table=''"),
    ],
)
def test_a_name_that_is_none_is_refused_where_the_dag_is_made(folder: Path, name: object, message: str) -> None:
    with pytest.raises(DynamicTableError) as refused:
        named(name, folder)
    assert message in str(refused.value)


def test_a_mistake_in_the_definition_is_told_with_its_place(folder: Path) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables:\n- {name: lake.sales.broken, freshnes: 1 day, query: SELECT 1 AS x}\n")
    assert str(named("lake.sales.daily", folder).table.identifier) == "lake.sales.daily", "it has no mistake itself"
    for name in ("lake.sales.broken", "broken"):
        with pytest.raises(DefinitionError) as refused:
            named(name, folder)
        assert f"{folder}/broken.yaml:2:29: unknown key 'freshnes'" in str(refused.value)
    (folder / "sales.yaml").write_text(NAMED.replace("os:getcwd", "os:nowhere"))
    with pytest.raises(DefinitionError, match=r"sales\.yaml:5:1: lake\.sales\.daily: on_failure_callback: 'os:nowhere' cannot"):
        named("lake.sales.daily", folder)


def test_a_refresh_is_not_mapped(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be mapped"):
        DynamicTableRefreshOperator.partial(task_id="refresh", definitions=folder).expand(table=["lake.sales.daily"])

    @task_group
    def each(day: str) -> None:
        named("lake.sales.daily", folder, task_id=f"refresh_{len(str(day)) > 0}")

    with DAG("own"), pytest.raises(ConfigurationError, match="cannot be mapped"):
        each.expand(day=["2024-01-01", "2024-01-02"])


def test_the_same_table_is_refreshed_by_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a DAG of one's own while its own DAG, or the command line, is at it: the ledger has one lease."""
    first, second = named("lake.sales.daily", folder), named("daily", folder, task_id="again")
    (folder.parent / "orders").mkdir()
    sources = {name: replace(source, path=str(folder.parent / "orders")) for name, source in first.sources.items()}
    first.sources = second.sources = sources
    refused: list[str] = []

    def meanwhile(_context: object, _workspace: object, plan: RefreshPlan) -> None:
        with pytest.raises(AirflowException) as error:
            second.execute(other)
        refused.append(str(error.value))
        assert not isinstance(error.value, AirflowFailException), "another try may find the lease free"
        write_numbers(plan)

    other: Any = {**context(), "ti": SimpleNamespace(id="other", dag_id="own", run_id="run", task_id="again")}
    monkeypatch.setattr(first, "_submit", meanwhile)
    monkeypatch.setattr(second, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
    assert first.execute(context())["version"] == 1
    assert "is being refreshed" in refused[0]
    assert second.execute(other)["version"] == 2


def test_a_run_of_a_group_leaves_out_what_is_not_due(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = load_definitions(folder)
    tables = list(definitions.tables.values())
    (folder.parent / "orders").mkdir()

    def refreshed_at(hours: int, kind: str = "scheduled") -> str:
        table = definitions.table("daily")
        assert table is not None
        table = replace(table, skip_unchanged=False)
        operator = DynamicTableRefreshOperator(task_id="daily", table=table, definitions=definitions, runs=of_group(tables))
        operator.sources = {
            name: replace(source, path=str(folder.parent / "orders")) for name, source in operator.sources.items()
        }
        monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
        date = TICK + timedelta(hours=hours)
        dag_run = SimpleNamespace(conf={}, run_type=kind)
        asked: Any = {**context(), "dag_run": dag_run, "logical_date": date}
        asked["ti"].id, asked["ti"].run_id = f"{kind} {hours}", f"{hours}"
        return str(operator.execute(asked)["schedule_time"])

    assert refreshed_at(5) == TICK.isoformat(), "it is behind its tick, which was lost or failed"
    with pytest.raises(AirflowSkipException, match=r"07:00:00\+00:00 is no tick of lake\.sales\.daily \(0 0 "):
        refreshed_at(7)
    assert refreshed_at(7, "manual") == TICK.isoformat(), "somebody asked for it"
    assert refreshed_at(24) == (TICK + timedelta(days=1)).isoformat()
    assert refreshed_at(24, "backfill") == (TICK + timedelta(days=1)).isoformat()


def test_a_table_of_a_group_waits_no_longer_than_the_next_run(folder: Path) -> None:
    definitions = load_definitions(folder)
    hourly = definitions.table("hourly")
    assert hourly is not None
    slow = replace(hourly, freshness=Freshness.parse("1 day"))
    operator = DynamicTableRefreshOperator(task_id="t", table=slow, definitions=definitions, runs=of_group([slow, hourly]))
    before = datetime.now(UTC)
    deadline = datetime.fromisoformat(deferral_of(operator).trigger.deadline)
    assert deadline - before < timedelta(hours=1, minutes=1)


def test_an_unknown_spark_connection_does_not_become_yarn(home: Path) -> None:
    error = failure_of(operator_of(home, connection="nowhere"))
    assert isinstance(error, AirflowFailException)
    assert str(error).startswith(
        "Spark connection 'nowhere' does not exist; create it, for example with: airflow connections add"
    )


def test_a_connection_to_the_server_of_this_machine_starts_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL", '{"conn_type": "spark_connect", "host": "local"}')
    error = failure_of(operator_of(home, "parent"))  # this machine's spark-submit ends at once
    assert str(error).startswith("The Spark server did not start; its log is in")
    assert not isinstance(error, AirflowFailException), "another try may find a server"


def test_a_missing_java(home: Path) -> None:
    error = failure_of(operator_of(home, env_vars={"JAVA_HOME": "/no/java"}))
    assert str(error).startswith("There is no java in JAVA_HOME (/no/java); Spark needs Java")


def test_a_missing_spark_submit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setattr(sys, "executable", str(home / "bin" / "python"))
    monkeypatch.setenv("PATH", str(home))
    assert "spark-submit was not found" in str(failure_of(operator_of(home)))


def test_a_missing_binary_of_the_connection(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_LOCAL", '{"conn_type": "spark", "host": "local", "extra": {"spark-binary": "spark9-submit"}}'
    )
    assert str(failure_of(operator_of(home))) == "spark9-submit of Spark connection 'local' is not on the PATH of this worker."


def test_an_unreachable_catalog_may_be_back_for_the_next_try(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_TABLES_DATABASE_URL", "postgresql://127.0.0.1:1/state")
    error = failure_of(operator_of(home))
    assert not isinstance(error, AirflowFailException)
    assert str(error).startswith("Cannot reach postgresql")


def test_a_state_that_is_no_database_says_what_to_do(home: Path) -> None:
    (home / "dynamic_tables").mkdir()
    (home / "dynamic_tables" / "state.db").write_text("nonsense\n" * 1000)
    assert str(failure_of(operator_of(home))).endswith(
        "refused: file is not a database; restore the file from a backup, or name another one."
    )


def test_a_warehouse_that_is_a_file_says_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("DYNAMIC_TABLES_WAREHOUSE", str(home / "file"))
    error = failure_of(operator_of(home, "parent"))
    assert not isinstance(error, AirflowFailException), "the folder may be there at the next try"
    assert str(error).endswith("check that the warehouse is a folder with room that this process may write to.")


def test_a_missing_catalog_connection(home: Path) -> None:
    assert "Connection 'nowhere' does not exist" in str(failure_of(operator_of(home, catalog_conn_id="nowhere")))


def deferral_of(operator: DynamicTableRefreshOperator, event: dict[str, str] | None = None) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        operator.resume(context(), event) if event else operator.execute(context())
    return deferred.value


def test_it_waits_for_its_parent_without_a_worker(home: Path) -> None:
    before = datetime.now(UTC)
    deferred = deferral_of(operator_of(home, poll_interval=7))
    freshness = timedelta(hours=2)
    assert before + freshness <= datetime.fromisoformat(deferred.trigger.deadline) <= datetime.now(UTC) + freshness
    assert (deferred.trigger.schedule_time, deferred.trigger.poll_interval) == (TICK.isoformat(), 7)
    assert deferred.method_name == "resume"
    assert deferred.timeout > freshness


def test_it_says_whom_it_waits_for_and_why_it_is_skipped(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    deadline = deferral_of(operator_of(home)).trigger.deadline
    missing = "default.default.parent must be fresh up to 2024-01-02T00:00:00+00:00 but has not been refreshed by schedule yet"
    assert f"Waiting, at most until {deadline}: {missing}." in caplog.text

    operator = operator_of(home, "parent")
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
    operator.execute(context())
    earlier = {**context(), "logical_date": TICK - timedelta(hours=1)}
    earlier["ti"].id = "another token"
    with pytest.raises(AirflowSkipException) as skipped:
        operator.execute(earlier)
    assert caplog.messages[-1] == f"Skipped: {skipped.value}"
    assert earlier["ti"].xcoms == {"skipped": str(skipped.value)}, "a callback is not given the reason"
    assert "is already fresh up to 2024-01-02T00:00:00+00:00 (version 1)" in caplog.messages[-1]


def test_it_goes_on_waiting_until_the_same_deadline(home: Path) -> None:
    deadline = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    assert deferral_of(operator_of(home), {"deadline": deadline}).trigger.deadline == deadline


def test_a_late_parent_fails_it_for_good(home: Path) -> None:
    with pytest.raises(AirflowFailException) as error:
        operator_of(home).resume(context(), {"deadline": datetime.now(UTC).isoformat()})
    expected = "UPSTREAM_LATE: default.default.parent must be fresh up to 2024-01-02T00:00:00+00:00 but "
    assert str(error.value).startswith(expected)


def test_a_parent_that_failed_for_good_fails_it_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = AirflowRuns()
    airflow.install(monkeypatch)
    of_parent = "dynamic_table__default__default__parent"
    airflow.runs = [(of_parent, TICK, "failed"), (of_parent, None, "running")]
    deferred = deferral_of(operator_of(home))
    assert deferred.trigger.parents[0][5:7] == [TICK.isoformat(), of_parent]
    airflow.runs = airflow.runs[:1]
    with pytest.raises(AirflowFailException, match=r"^UPSTREAM_FAILED: default\.default\.parent .* clear that run"):
        operator_of(home).resume(context(), {"deadline": deferred.trigger.deadline})
    assert isinstance(failure_of(operator_of(home)), AirflowFailException)


def test_it_waits_for_data_without_a_worker(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    operator = operator_of(home, "awaiting")
    folder = home / "ready" / "2024-01-01"
    folder.mkdir(parents=True)
    (folder / "22").touch()
    deferred = deferral_of(operator)
    assert f"Waiting, at most until {deferred.trigger.deadline}: {folder}/23 is not there yet." in caplog.text
    path, options = deferred.trigger.serialize()
    assert options["parents"] == [[f"{folder}/22", ""], [f"{folder}/23", ""]]
    again = import_string(path)(**options)
    assert again.serialize() == (path, options)
    with pytest.raises(AirflowFailException) as late:
        operator.resume(context(), {"deadline": datetime.now(UTC).isoformat()})
    assert str(late.value) == f"UPSTREAM_LATE: {folder}/23 is not there yet."


@pytest.mark.parametrize("asked", [None, {"full_refresh": True}], ids=["there", "asked for"])
def test_what_is_there_or_not_asked_for_is_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any] | None
) -> None:
    operator = operator_of(home, "awaiting")
    for hour in () if asked else ("22", "23"):
        (home / "ready" / "2024-01-01").mkdir(parents=True, exist_ok=True)
        (home / "ready" / "2024-01-01" / hour).touch()
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
    told = context()
    told["dag_run"].conf = asked
    assert operator.execute(told)["version"] == 1


DAYS = """
dynamic_tables:
- {name: parent, freshness: 1 day, query: SELECT 1 AS x}
- name: child
  freshness: 1 day
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT x, '2024' AS ds FROM parent
"""


def test_partitions_are_checked_before_it_waits(home: Path) -> None:
    (home / "tables.yaml").write_text(DAYS)
    operator = named("default.default.child", home / "tables.yaml")
    told = context()
    told["dag_run"].conf = {"partition": "ds=1995-13-45"}
    with pytest.raises(AirflowException, match="ds=1995-13-45 is no date as 'yyyy-MM-dd' writes it"):
        operator.execute(told)
    told["dag_run"].conf = {"partition": "ds=2023-12-31"}
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(told)
    assert deferred.value.trigger.schedule_time == "2024-01-01T00:00:00+00:00"


def test_killing_it_before_it_began_is_no_error(home: Path) -> None:
    operator_of(home).on_kill()
    assert not (home / "dynamic_tables").exists()


def test_a_stopped_task_starts_no_spark(home: Path) -> None:
    (home / "spark/bin/spark-submit").write_text(f"#!/bin/sh\ntouch {home}/started\n")
    operator = operator_of(home, name="parent")
    operator.on_kill()
    assert str(failure_of(operator)) == "The task was stopped before Spark began."
    assert not (home / "started").exists()


def test_spark_gets_the_package_once_however_many_turns_a_task_has(home: Path) -> None:
    (home / "spark/bin/spark-submit").write_text(f'#!/bin/sh\necho "$@" >> {home}/commands\necho refused\nexit 1\n')
    operator = operator_of(home, name="parent")
    for turn in range(2):
        run = context()
        run["ti"].id = f"turn-{turn}"
        with pytest.raises(AirflowException, match="code 1"):
            operator.execute(run)
        assert operator._hook is not None
        operator._hook._submit_sp.stdout.close()  # Airflow's hook leaves that to the end of the task's process
    first, second = (home / "commands").read_text().splitlines()
    assert second.replace("turn-1", "turn-0") == first
    assert first.count("airflow_dynamic_tables-") == 1


SHOP = """
sources: [{name: shop.counter.orders, format: jdbc}]
dynamic_tables: [{name: lake.sales.orders, freshness: 1 day, spark: {conn_id: local}, query: SELECT id FROM shop.counter.orders}]
"""


SHOWN_AT = "Spark application local-1 of local[*], shown at http://worker:4040"
TRACKED_AT = "INFO Client: tracking URL: http://rm:8088/proxy/application_1/"


@pytest.mark.parametrize(
    ("lines", "while_running", "afterwards"),
    [(SHOWN_AT, "http://worker:4040", ""), (f"{TRACKED_AT}\n{SHOWN_AT}", *["http://rm:8088/proxy/application_1/"] * 2)],
)
def test_a_task_has_links_while_it_runs_and_when_it_failed(
    lines: str, while_running: str, afterwards: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team")
    versions = "https://airflow.example/team/assets?name_pattern=dynamic-table%3A%2F%2Fdefault%2Fdefault%2Fparent"
    operator = operator_of(home, "parent")
    assert links_of(operator) == {"Spark": "", "Versions of the table": versions}, "also while it is deferred"
    (home / "spark/bin/spark-submit").write_text(f"#!/bin/sh\necho '{lines}'\nexit 1\n")
    pushed: dict[str, str] = {}
    asked: Any = context()
    asked["ti"].xcom_push = pushed.__setitem__
    with set_current_context(asked), pytest.raises(AirflowException, match="ended with code 1"):
        operator.execute(asked)
    operator._hook._submit_sp.stdout.close()  # Airflow's hook leaves that to the end of the task's process
    assert pushed == {"_link_SparkLink": while_running}
    assert links_of(operator) == {"Spark": afterwards, "Versions of the table": versions}


def links_of(operator: DynamicTableRefreshOperator) -> dict[str, str]:
    ti: Any = None
    return {link.name: link.get_link(operator, ti_key=ti) for link in operator.operator_extra_links}


def test_a_link_that_cannot_be_pushed_stops_nothing(home: Path) -> None:
    operator = operator_of(home, "parent")
    (home / "spark/bin/spark-submit").write_text(f"#!/bin/sh\necho '{SHOWN_AT}'\necho refused\nexit 1\n")
    assert str(failure_of(operator)) == "spark-submit ended with code 1: refused", "without a supervisor"
    operator._hook._submit_sp.stdout.close()  # Airflow's hook leaves that to the end of the task's process


@pytest.mark.postgres
def test_passwords_are_in_the_environment_while_spark_runs_and_no_longer(home: Path, postgres: PostgresServer) -> None:
    url = postgres.create_database("counter")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id bigint)")
    catalogs = f"catalogs: [{{name: lake}}, {{name: shop, type: jdbc, connection-params: {{url: '{url}'}}}}]"
    (home / "catalogs.yaml").write_text(catalogs.replace("postgres@", "postgres:s3cret@"))
    (home / "shop.yaml").write_text(SHOP)
    (home / "spark/bin/spark-submit").write_text(f"#!/bin/sh\nenv > {home}/environment\necho refused\nexit 1\n")
    definitions = load_definitions(home / "shop.yaml")
    (table,) = definitions.tables.values()
    operator = DynamicTableRefreshOperator(
        task_id="refresh", table=table, definitions=definitions, catalogs_file=home / "catalogs.yaml"
    )
    before = dict(os.environ)
    assert str(failure_of(operator)) == "spark-submit ended with code 1: refused"
    operator._hook._submit_sp.stdout.close()  # Airflow's hook leaves that to the end of the task's process
    seen = dict(line.split("=", 1) for line in (home / "environment").read_text().splitlines() if "=" in line)
    assert seen["DYNAMIC_TABLES_PASSWORD_SHOP"] == "s3cret"
    assert seen["PATH"].startswith(str(Path(sys.executable).parent))
    assert dict(os.environ) == before


WRITER = """#!/bin/sh
for plan; do :; done
stage=$(dirname "${plan#file://}")
while :; do mkdir -p "$stage/data" && echo rows > "$stage/data/part-$((number += 1))"; done 2>/dev/null
"""


def test_a_timeout_stops_spark_before_its_stage_is_deleted(home: Path) -> None:
    """Airflow raises it inside of execute and kills Spark only afterwards, which would go on writing meanwhile."""
    (home / "spark/bin/spark-submit").write_text(WRITER)
    operator = operator_of(home, name="parent", execution_timeout=timedelta(minutes=5))

    def time_out(*_: object) -> None:
        raise AirflowTaskTimeout("Timeout")

    def wait_for_files() -> None:
        while not list(home.glob("dynamic_tables/warehouse/*/*/*/data/token/data/part-*")):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, time_out)
    waiting = threading.Thread(target=wait_for_files)
    waiting.start()
    try:
        with pytest.raises(AirflowTaskTimeout):
            operator.execute(context())
    finally:
        signal.signal(signal.SIGALRM, before)
        waiting.join()
        operator.on_kill()
        operator._hook._submit_sp.stdout.close()  # Airflow's hook leaves that to the end of the task's process
    assert not list(home.rglob("token"))
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(home)})) as workspace:
        (refresh,) = workspace.ledger.list_refreshes()
    assert refresh.error == "The task did not end within its execution timeout (0:05:00)."


def test_a_ledger_that_is_away_right_after_the_commit_does_not_make_it_fail(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither red nor without its event: the table has the version, and the callback puts the ledger right."""
    away = threading.Event()

    def strike(step: Step, token: str) -> None:
        trace(step, token)
        if step is Step.PUBLISHED:
            away.set()

    class Outage(SqlLedger):
        def move_stage(self, *arguments: Any, **changes: Any) -> bool:
            if away.is_set():
                raise CatalogUnavailableError("it is away")
            return super().move_stage(*arguments, **changes)

        def get_refresh(self, token: str) -> Refresh | None:
            if away.is_set():
                raise CatalogUnavailableError("it is away")
            return super().get_refresh(token)

    asset = Asset("x-table")
    operator = operator_of(home, "parent", outlets=[asset])
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
    monkeypatch.setattr("airflow_dynamic_tables.services.workspace.SqlLedger", Outage)
    monkeypatch.setattr("airflow_dynamic_tables.services.writes.protocol.trace", strike)
    events = OutletEventAccessors()
    told: dict[str, Any] = {"version": 1, "rows": None, "partitions": [], "schedule_time": TICK.isoformat(), "refresh": "token"}
    asked: Any = {**context(), "outlet_events": events}
    assert operator.execute(asked) == told
    assert events[asset].extra == events[dynamic_table_asset("default.default.parent")].extra == told

    away.clear()
    complete_refresh({**context(), "task": operator})
    with open_workspace(embedded_settings(os.environ)) as workspace:
        refresh = workspace.ledger.get_refresh("token")
    assert refresh is not None
    assert (refresh.state, refresh.version) == ("SUCCEEDED", 1)


@pytest.mark.parametrize(("watermark", "partitions"), [(None, ["ds=2024-03-01"]), (PartitionWatermark(timedelta(hours=1)), [])])
def test_what_no_ledger_tells_of_partitions_the_schedule_tells_unless_a_watermark_decides(
    home: Path, watermark: PartitionWatermark | None, partitions: list[str]
) -> None:
    operator = operator_of(home, "parent")
    table = replace(operator.table, partition_keys=("ds",), formatters={"ds": "yyyy-MM-dd"})
    events = TableIdentifier("lake", "raw", "events")
    sources = {events: Source(events, "parquet", "/events", ("ds",), watermark=watermark)}
    march = datetime(2024, 3, 2, tzinfo=UTC)
    request = RefreshRequest(table, sources, march, "token", "owner")
    version = Version(1, "token", "1", march, march)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        upgrade(workspace)
        report = operator._report(cast("Any", context()), workspace, request, version)
    assert report["partitions"] == partitions


def test_a_child_of_a_suspended_table_is_skipped_at_its_ticks_and_fails_when_a_user_runs_it(home: Path) -> None:
    operator = operator_of(home)
    parent = operator.parents[0].identifier
    with open_workspace(embedded_settings(os.environ)) as workspace:
        upgrade(workspace)
        ensure(workspace, load_definitions(home / "tables.yaml").tables[parent])
        suspend(workspace, parent, "the source moves")
    scheduled = {**context(), "dag_run": SimpleNamespace(conf={}, run_type="scheduled")}
    with pytest.raises(AirflowSkipException, match=r"^UPSTREAM_SUSPENDED: .*default\.parent is suspended .the source moves."):
        operator.execute(scheduled)
    assert "the source moves" in str(scheduled["ti"].xcoms["skipped"])
    later = {**scheduled, "logical_date": TICK + timedelta(hours=2)}
    with pytest.raises(AirflowSkipException):
        operator.execute(later)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        (line,) = workspace.ledger.list_refreshes(operator.table.identifier)
    assert (line.state, line.reason_code, line.schedule_time) == ("SKIPPED", "UPSTREAM_SUSPENDED", TICK + timedelta(hours=2))
    assert str(failure_of(operator)).startswith("UPSTREAM_SUSPENDED: ")
    grandchild = operator_of(home, "grandchild")
    with pytest.raises(AirflowSkipException, match=r"its last refresh was skipped: UPSTREAM_SUSPENDED: .*the source moves"):
        grandchild.execute(later)


def test_every_commit_of_a_catch_up_has_its_event(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = dynamic_table_asset("default.default.hours")
    answer = AssetResult(name=asset.name, uri=asset.uri, group=asset.group)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: answer), raising=False)
    monkeypatch.setattr(catching_up, "MOST_PARTITIONS", 2)
    tokens: list[str | None] = []

    def refresh(time: datetime, token: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        operator = operator_of(home, "hours")
        operator.hide_assets()

        def job(_context: object, _workspace: object, plan: RefreshPlan) -> None:
            tokens.append(operator._token)
            write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

        monkeypatch.setattr(operator, "_submit", job)
        asked: Any = {**context(), "logical_date": time}
        asked["ti"].id = token
        report = operator.execute(asked)
        events = asked["outlet_events"]
        assert events[asset].extra == report
        return report, [event.extra for event in events[OTHER_EVENTS].asset_alias_events if OTHER_EVENTS in operator.outlets]

    with open_workspace(embedded_settings(os.environ)) as workspace:
        upgrade(workspace)
    refresh(TICK, "first")
    last, others = refresh(TICK + timedelta(hours=5), "second")
    assert [each["partitions"] for each in (*others, last)] == [
        ["ds=2024-01-02-00", "ds=2024-01-02-01"],
        ["ds=2024-01-02-02", "ds=2024-01-02-03"],
        ["ds=2024-01-02-04"],
    ]
    assert [each["version"] for each in (*others, last)] == [2, 3, 4]
    assert tokens == ["first", *(each["refresh"] for each in (*others, last))], "what Airflow stops is the commit under way"


def test_a_run_that_does_not_wait_makes_its_table_as_fresh_as_its_parents(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_workspace(embedded_settings(os.environ)) as workspace:
        upgrade(workspace)
    for name, date, conf in (("parent", TICK, {}), ("child", TICK + timedelta(hours=26), {"do_not_wait": True})):
        operator = operator_of(home, name)
        monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: write_numbers(plan))
        asked: Any = {**context(), "logical_date": date, "dag_run": SimpleNamespace(conf=conf)}
        asked["ti"].id = name
        operator.execute(asked)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        child = workspace.ledger.get_refresh("child")
    assert child is not None
    assert (child.schedule_time, child.data_timestamp) == (TICK + timedelta(hours=26), TICK + timedelta(hours=22))
