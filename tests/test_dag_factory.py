"""Definitions become DAGs: the right ones, the same ones every time, and no more than asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from airflow.executors.local_executor import LocalExecutor
from airflow.sdk import DAG, Asset, BaseNotifier
from airflow.sdk.definitions.callback import AsyncCallback, SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization

from airflow_dynamic_tables import dag_factory
from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dag_factory import FRESHNESS_DAG, MAINTENANCE_DAG, VERIFICATION_DAG, build_dag, load_dynamic_tables
from airflow_dynamic_tables.dags.schedules import CONTINUOUS_TAG
from airflow_dynamic_tables.definitions.cache import normalised
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.operators.continuous_refresh import ContinuousRefreshOperator
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.reconcilers import abort_refresh, complete_refresh, count_failure
from airflow_dynamic_tables.services.settings import find_catalogs_file
from tests.definitions.test_normalised import EVERYTHING
from tests.support.airflow_version import AIRFLOW_VERSION, since

DAILY, TOTALS = "dynamic_table__lake__sales__daily", "dynamic_table__lake__sales__totals"

TABLES = """
defaults: {catalog: lake, database: sales}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders, partitioned_by: [ds]}
dynamic_tables:
  - name: daily
    comment: Revenue per day
    freshness: 1 day
    timezone: Europe/Berlin
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    tags: [finance]
    owner: jane
    retries: 5
    pool: spark
    execution_timeout: 2 hours
    spark: {conn_id: cluster, deploy_mode: cluster, executor_memory: 4g, conf: {spark.a: b}, env_vars: {JAVA_HOME: /java}}
    query: SELECT ds, sum(amount) AS revenue FROM raw.orders GROUP BY ds
  - name: totals
    freshness: 1 hour
    query: SELECT sum(revenue) AS revenue FROM daily
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNAMIC_TABLES_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "dags" / "definitions"
    folder.mkdir(parents=True)
    (folder / "tables.yaml").write_text(TABLES)
    return folder


def load(folder: Path) -> dict[str, DAG]:
    namespace: dict[str, DAG] = {}
    load_dynamic_tables(namespace, folder)
    return namespace


def test_one_dag_for_each_table_and_one_for_maintenance(folder: Path) -> None:
    dags = load(folder)
    assert sorted(dags) == [DAILY, TOTALS, MAINTENANCE_DAG]
    assert [task.task_id for task in dags[DAILY].tasks] == ["refresh"]


def test_names_are_completed_by_the_default_catalog_and_database(folder: Path) -> None:
    (folder / "tables.yaml").write_text("dynamic_tables: [{name: answer, freshness: 1 day, query: SELECT 42 AS answer}]")
    (folder.parent / "catalogs.yaml").write_text("catalogs: [{name: lake, default-database: sales}]")
    assert sorted(load(folder)) == ["dynamic_table__lake__sales__answer", MAINTENANCE_DAG]


CONTINUOUS = """
defaults: {catalog: lake, database: sales, schedule: 0 6 * * *, dag: shared, continuous: {hold: 30 minutes}}
dynamic_tables:
  - {name: live, freshness: 10 seconds, query: SELECT 1 AS x}
  - {name: slow, freshness: 1 day, refresh_mode: continuous, retries: 7, query: SELECT x FROM live}
  - {name: daily, freshness: 1 day, query: SELECT x FROM live}
"""


def test_a_continuous_table_has_a_dag_of_its_own_that_always_has_one_run(folder: Path) -> None:
    (folder / "tables.yaml").write_text(CONTINUOUS)
    dags = load(folder)
    shared = "dynamic_table_group__shared"
    live, slow = (dags[f"dynamic_table__lake__sales__{name}"] for name in ("live", "slow"))
    assert sorted(dags) == [live.dag_id, slow.dag_id, shared, MAINTENANCE_DAG]
    for dag in (live, slow):
        assert (type(dag.timetable).__name__, dag.max_active_runs, dag.catchup) == ("ContinuousTimetable", 1, False)
        dag.validate()
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable.description.startswith("As frequently")
    task = live.get_task("refresh")
    assert isinstance(task, ContinuousRefreshOperator)
    assert (task.task_id, task.table.continuous.hold, task.definitions_path) == ("refresh", timedelta(minutes=30), folder)
    # Only a worker that died makes Airflow try again, and that soon.
    assert (task.retries, task.retry_delay) == (2, timedelta(seconds=10))
    assert (slow.get_task("refresh").retries, slow.get_task("refresh").retry_delay) == (7, timedelta(seconds=10))
    assert [parent.identifier.table for parent in slow.get_task("refresh").parents] == ["live"]
    assert [parent.identifier.table for parent in dags[shared].get_task("lake.sales.daily").parents] == ["live"]


@pytest.mark.parametrize("asked_for", [None, "dynamic_table__lake__sales__table"], ids=["DAG processor", "task"])
def test_another_threshold_gives_the_same_dag_another_schedule(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked_for: str | None
) -> None:
    (folder / "tables.yaml").write_text("dynamic_tables: [{name: lake.sales.table, freshness: 1 hour, query: SELECT 1 AS x}]")
    if asked_for:
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", asked_for)
    for threshold, timetable, continuous in (
        ("1 hour", "CronTriggerTimetable", False),
        ("2 hours", "ContinuousTimetable", True),
        ("", "CronTriggerTimetable", False),
    ):
        monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__FRESHNESS_THRESHOLD", threshold)
        dag = load(folder)["dynamic_table__lake__sales__table"]
        assert (type(dag.timetable).__name__, CONTINUOUS_TAG in dag.tags) == (timetable, continuous)
        assert [(task.task_id, isinstance(task, ContinuousRefreshOperator)) for task in dag.tasks] == [("refresh", continuous)]


COMMITTED = """
dynamic_tables:
  - name: lake.web.hours
    freshness: 1 minute
    refresh_mode: continuous
    partitioned_by: [hour]
    options: {partition.fields.hour.date-formatter: yyyy-MM-dd-HH, sink.partition-commit.trigger: process-time}
    query: SELECT '2024-01-01-00' AS hour
"""


def test_a_table_that_tells_of_partitions_needs_airflow_3_3(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "tables.yaml").write_text(COMMITTED)
    can_tell = AIRFLOW_VERSION >= (3, 3)
    assert ("dynamic_table__lake__web__hours" in load(folder)) == can_tell
    lacks = f"Airflow {airflow_version} has no asset events that name partitions; upgrade to Airflow 3.3, or remove the option"
    assert (f"lake.web.hours: option 'sink.partition-commit.trigger': {lacks}" in caplog.text) != can_tell


def test_a_continuous_table_waits_for_its_quarantine_as_it_has_one_run(folder: Path) -> None:
    rows = "expectations: [{row_count: {min: 1}, action: quarantine}]"
    (folder / "tables.yaml").write_text(f"dynamic_tables: [{{name: live, freshness: 1 minute, {rows}, query: SELECT 1 AS x}}]")
    dag = load(folder)["dynamic_table__default__default__live"]
    assert (dag.max_active_runs, sorted(dag.task_ids)) == (1, ["decide", "refresh"])


def test_runs_are_serialized_per_table(folder: Path) -> None:
    dag = load(folder)[TOTALS]
    assert (dag.max_active_runs, dag.get_task("refresh").max_active_tis_per_dag, dag.catchup) == (1, 1, False)


def test_the_schedule_ticks_in_the_tables_time_zone(folder: Path) -> None:
    timetable = load(folder)[DAILY].timetable
    assert (timetable.expression, str(timetable.timezone)) == ("0 0 * * *", "Europe/Berlin")


def test_what_the_definition_says_reaches_the_task(folder: Path) -> None:
    task = load(folder)[DAILY].get_task("refresh")
    assert (task.owner, task.retries, task.pool, task.execution_timeout) == ("jane", 5, "spark", timedelta(hours=2))
    assert (task.conf, task.env_vars) == ({"spark.a": "b"}, {"JAVA_HOME": "/java"})
    assert (task._conn_id, task._deploy_mode, task._executor_memory) == ("cluster", "cluster", "4g")
    assert task.durable is False


SETTINGS = """
    end_date: 2034-01-01
    owner_links: {jane: "mailto:jane@example.org", ops: https://example.org/ops}
    dag_display_name: Revenue
    access_control: {analysts: [can_read, can_edit], auditors: [can_read, can_edit, can_delete]}
    retry_exponential_backoff: 2
    max_retry_delay: 1 hour
    dagrun_timeout: 5 hours
    max_consecutive_failed_dag_runs: 5
    depends_on_past: true
    pool_slots: 2
    priority_weight: 7
    weight_rule: absolute
    queue: big
    executor: LocalExecutor
    executor_config: {pod_template_file: /pods/big.yaml}
    is_paused_upon_creation: true
"""


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module")  # Airflow's own, of access_control
def test_the_settings_of_airflow_reach_dag_and_task(folder: Path) -> None:
    (folder / "tables.yaml").write_text(TABLES + SETTINGS.lstrip("\n"))
    dag = load(folder)[TOTALS]
    task = dag.get_task("refresh")
    assert (dag.end_date, dag.dag_display_name) == (datetime(2034, 1, 1, tzinfo=UTC), "Revenue")
    assert dag.owner_links == {"jane": "mailto:jane@example.org", "ops": "https://example.org/ops"}
    assert (dag.access_control or {})["analysts"] == {"DAGs": {"can_read", "can_edit"}}
    assert (dag.dagrun_timeout, dag.max_consecutive_failed_dag_runs) == (timedelta(hours=5), 5)
    assert (task.retry_exponential_backoff, task.max_retry_delay, task.depends_on_past) == (2, timedelta(hours=1), True)
    assert (task.pool_slots, task.priority_weight, task.queue, task.executor) == (2, 7, "big", "LocalExecutor")
    assert (task.executor_config, dag.is_paused_upon_creation) == ({"pod_template_file": "/pods/big.yaml"}, True)
    assert DagSerialization.to_dict(dag)["dag"]["tasks"][0]["__var"]["weight_rule"] == "absolute"


class V1Pod:
    """Stands for the class of Kubernetes, which is not installed."""


POD = V1Pod()


def test_a_pod_is_named_in_python(folder: Path) -> None:
    (folder / "tables.yaml").write_text(f"{TABLES}    executor_config: {{pod_override: '{__name__}:POD'}}\n")
    assert load(folder)[TOTALS].get_task("refresh").executor_config == {"pod_override": POD}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "executor: KubernetesExecutor",
            "executor: this Airflow has no 'KubernetesExecutor'; [core] executor is 'LocalExecutor'",
        ),
        (
            "executor_config: {pod_override: 'company.pods:big'}",
            "executor_config: pod_override: 'company.pods:big' cannot be imported where Airflow reads DAGs",
        ),
        ("executor_config: {pod_override: 'os:sep'}", "pod_override: 'os:sep' is no kubernetes.client.models.V1Pod"),
    ],
)
def test_an_executor_that_this_airflow_does_not_have_is_a_mistake_of_its_table(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, setting: str, message: str
) -> None:
    (folder / "tables.yaml").write_text(f"{TABLES}    {setting}\n")
    assert {DAILY} == load(folder).keys() - {MAINTENANCE_DAG}, "Airflow would hide both"
    assert f"{folder}/tables.yaml:19:1: lake.sales.totals: " in caplog.text
    assert message in caplog.text
    if setting.startswith("executor:"):
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", TOTALS)
        assert TOTALS in load(folder), "its worker may be configured otherwise"


COMPANY = """
from airflow.sdk import BaseNotifier
def page(context): ...
begun = late = note = page
class Chat(BaseNotifier):
    def __init__(self, **arguments): super().__init__()
    def notify(self, context): ...
class V1Pod: ...
big = V1Pod()
"""


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module")  # Airflow's own, of access_control
def test_a_task_registers_every_key_of_its_definition(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that Airflow is not given where a task runs, or ``diff`` would report a change after each refresh."""
    (tmp_path / "company").mkdir()
    for module in ("alerts", "pods"):
        (tmp_path / "company" / f"{module}.py").write_text(COMPANY)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = EVERYTHING.replace("  scheduler: dolphinscheduler\n", "")
    (folder / "tables.yaml").write_text(text, encoding="utf-8")
    declared = load_definitions(folder).tables.values()
    assert any(table.deadline and table.executor for table in declared)
    for table in declared:
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", table.workflow_id)
        dag = load(folder)[table.workflow_id]
        (task,) = (task for task in dag.tasks if isinstance(task, DynamicTableRefreshOperator))
        assert normalised(task.table) == normalised(table)
        assert (task.executor, dag.deadline or None) == (None, None), "a worker may be configured otherwise"


def test_default_args_hold_where_the_definitions_say_nothing(folder: Path) -> None:
    namespace: dict[str, DAG] = {}
    start = datetime(2025, 1, 1, tzinfo=UTC)
    load_dynamic_tables(
        namespace,
        folder,
        default_args={
            "retries": 7,
            "owner": "ops",
            "on_failure_callback": told,
            "start_date": start,
            "queue": "q",
            "conf": {"spark.z": "1"},
        },
    )
    daily, totals = (namespace[dag_id].get_task("refresh") for dag_id in (DAILY, TOTALS))
    assert (daily.retries, daily.owner, daily.queue) == (5, "jane", "q")
    assert (totals.retries, totals.owner, totals.retry_delay) == (7, "ops", timedelta(minutes=5))
    assert called(totals, "on_failure_callback") == [told, abort_refresh, count_failure]
    assert called(totals, "on_retry_callback") == [abort_refresh]
    assert daily.conf == {"spark.a": "b", "spark.z": "1"}
    assert namespace[TOTALS].start_date == start
    assert called(namespace[MAINTENANCE_DAG].get_task("sweep"), "on_failure_callback") == [told]
    for dag in namespace.values():
        assert " at 0x" not in str(DagSerialization.to_dict(dag)), "an address would make a new version each time"


def called(task: object, event: str) -> list[Any]:
    return list(getattr(task, event))


def told(context: Mapping[str, Any]) -> None:
    """Stands for a callback of a user."""


class Leaves(BaseNotifier):
    def __init__(self, code: int) -> None:
        super().__init__()
        sys.exit(code)

    def notify(self, context: Any) -> None:
        """Not reached."""


class Chat(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text: str, *, to: Sequence[str] = ()) -> None:
        super().__init__()
        self.text = text
        self.to = to

    def notify(self, context: Any) -> None:
        context["sent"].append((self.text, self.to))


def test_callbacks_of_the_definitions_come_beside_ours(folder: Path) -> None:
    here = __name__
    default = f'database: sales, on_failure_callback: "{here}:told", on_skipped_callback: "{here}:told"}}'
    callbacks = f"""\
    on_failure_callback:
      - {here}:told
      - {{notifier: "{here}:Chat", arguments: {{text: "{{{{ exception }}}}", to: [a, b]}}}}
    on_success_callback: {here}:told
    expectations: [{{row_count: {{min: 1}}}}]
"""
    (folder / "tables.yaml").write_text(TABLES.replace("database: sales}", default) + callbacks)
    dags = load(folder)
    assert called(dags[DAILY].get_task("refresh"), "on_failure_callback") == [told, abort_refresh, count_failure]
    refresh, decide = dags[TOTALS].tasks
    function, notifier, *ours = called(refresh, "on_failure_callback")
    assert (function, ours) == (told, [abort_refresh, count_failure])
    sent: list[object] = []
    notifier({"exception": "no rows", "sent": sent, "dag": dags[TOTALS]})
    assert sent == [("no rows", ["a", "b"])]
    assert called(refresh, "on_success_callback") == [told, complete_refresh]
    assert called(refresh, "on_skipped_callback") == [told]
    assert (called(decide, "on_success_callback"), called(decide, "on_failure_callback")) == ([told], []), "nobody is told twice"


def alerts(dag: DAG) -> list[DeadlineAlert]:
    assert isinstance(dag.deadline, list)
    return dag.deadline


@since(3, 3)
def test_a_dag_tells_of_its_runs_and_of_those_that_are_late(folder: Path) -> None:
    here = __name__
    (folder / "tables.yaml").write_text(f"""{TABLES}\
    dag_on_failure_callback: {here}:told
    dag_on_success_callback: []
    deadline: {{callback: ["{here}:told", {{notifier: "{here}:Chat", arguments: {{text: late, to: [a]}}}}]}}
""")
    dags = load(folder)
    totals = dags[TOTALS]
    assert (totals.on_failure_callback, totals.on_success_callback) == ([told], None)
    assert called(totals.get_task("refresh"), "on_failure_callback") == [abort_refresh, count_failure]
    function, notifier = alerts(totals)
    assert isinstance(function.callback, SyncCallback)
    assert (function.callback.path, function.interval) == (f"{here}.told", timedelta(hours=1)), "the freshness"
    assert (notifier.callback.path, notifier.callback.kwargs) == (f"{here}.Chat", {"text": "late", "to": ["a"]})
    assert function.reference == DeadlineReference.DAGRUN_QUEUED_AT
    kept = DagSerialization.to_dict(totals)["dag"]
    assert kept["has_on_failure_callback"], "or the scheduler asks nobody to call it"
    assert "has_on_success_callback" not in kept
    assert len(kept["deadline"]) == 2
    assert DagSerialization.to_dict(load(folder)[TOTALS])["dag"] == kept, "or each time were a new version"
    assert alerts(dags[DAILY]) == []


ALERTS = """
async def late(context): ...
def takes_two(context, who): ...
def takes_other(ctx): ...
class Alerts:
    @staticmethod
    def late(context): ...
"""


def test_a_deadline_calls_async_functions_in_the_triggerer(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    for place, module in ((folder.parent, "alerts_of_dags"), (tmp_path / "plugins", "alerts_of_plugins")):
        (place / f"{module}.py").write_text(ALERTS)
        monkeypatch.syspath_prepend(place)
    text = f"{TABLES}    deadline: {{reference: logical_date, after: 2 hours, callback: alerts_of_plugins:late}}\n"
    (folder / "tables.yaml").write_text(text)
    (alert,) = alerts(load(folder)[TOTALS])
    assert isinstance(alert.callback, AsyncCallback)
    assert (alert.interval, alert.reference) == (timedelta(hours=2), DeadlineReference.DAGRUN_LOGICAL_DATE)

    (folder / "tables.yaml").write_text(text.replace("alerts_of_plugins", "alerts_of_dags"))
    assert TOTALS not in load(folder)
    assert "deadline: 'alerts_of_dags:late' is async, and the triggerer imports nothing from folders of DAGs" in caplog.text
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    assert TOTALS in load(folder)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("alerts:takes_two", "'alerts:takes_two' cannot be called with the one argument 'context'"),
        ("alerts:takes_other", "'alerts:takes_other' cannot be called with the one argument 'context'"),
        ("alerts:Alerts.late", "'alerts:Alerts.late' is not at the top of its module, where Airflow looks for it"),
        (
            f'{{notifier: "{__name__}:Chat", arguments: {{context: x}}}}',
            "gets 'context' from Airflow; take it out of its arguments",
        ),
        ("alerts:nobody", "'alerts:nobody' cannot be imported where Airflow reads DAGs (AttributeError"),
    ],
)
def test_what_airflow_could_not_call_at_a_deadline_is_a_mistake(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, callback: str, message: str
) -> None:
    (folder.parent / "alerts.py").write_text(ALERTS)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "alerts", raising=False)
    (folder / "tables.yaml").write_text(f"{TABLES}    deadline: {{callback: {callback}}}\n")
    assert {DAILY} == load(folder).keys() - {MAINTENANCE_DAG}
    assert "lake.sales.totals: deadline: " in caplog.text
    assert message in caplog.text


def test_a_deadline_that_no_executor_could_tell_of_is_a_mistake(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalExecutor, "supports_callbacks", False)
    (folder / "tables.yaml").write_text(f"{TABLES}    deadline: {{callback: '{__name__}:told'}}\n")
    assert TOTALS not in load(folder)
    incapable = "the LocalExecutor" if AIRFLOW_VERSION >= (3, 3) else f"Airflow {airflow_version}"
    assert f"cannot be called by {incapable}; only an async one can, which the triggerer calls" in caplog.text


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("company.nowhere:page", "'company.nowhere:page' cannot be imported where Airflow reads DAGs (ModuleNotFoundError"),
        ("os:nothing", "'os:nothing' cannot be imported where Airflow reads DAGs (AttributeError"),
        ("os:sep", "'os:sep' is no function; a notifier needs {notifier: …, arguments: …}"),
        (f"{__name__}:Chat", "is no function; a notifier needs"),
        ('{notifier: "subprocess:Popen", arguments: {args: "true"}}', "'subprocess:Popen' is no class of notifiers"),
        (f'{{notifier: "{__name__}:Chat", arguments: {{txt: x}}}}', "does not take these arguments: Chat.__init__"),
        ("script_that_exits:main", "'script_that_exits:main' cannot be imported where Airflow reads DAGs (SystemExit: 3)"),
        (
            '{notifier: "script_that_exits:Chat", arguments: {text: x}}',
            "cannot be imported where Airflow reads DAGs (SystemExit: 3)",
        ),
        (f'{{notifier: "{__name__}:Leaves", arguments: {{code: 4}}}}', "Leaves' does not take these arguments: 4"),
    ],
)
def test_a_callback_that_is_none_is_a_mistake_of_its_table(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, callback: str, message: str
) -> None:
    (folder.parent / "script_that_exits.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(folder.parent)
    (folder / "tables.yaml").write_text(f"{TABLES}    on_failure_callback: {callback}\n")
    assert {DAILY} == load(folder).keys() - {MAINTENANCE_DAG}
    assert f"{folder}/tables.yaml:19:1: lake.sales.totals: on_failure_callback: " in caplog.text
    assert message in caplog.text


def test_a_table_of_another_scheduler_has_no_dag(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "elsewhere.yaml").write_text(
        "dynamic_tables:\n"
        "- {name: lake.sales.elsewhere, freshness: 1 day, query: SELECT 1 AS x, scheduler: dolphinscheduler}\n"
        "- {name: lake.sales.nowhere, freshness: 1 day, query: SELECT 1 AS x, scheduler: dolfin}\n"
        "- {name: lake.sales.shared, freshness: 1 day, query: SELECT 1 AS x, scheduler: dolphinscheduler, dag: sales}\n"
        "- {name: lake.sales.always, freshness: 1 second, query: SELECT 1 AS x, scheduler: dolphinscheduler}\n"
    )
    assert load(folder).keys() == {DAILY, TOTALS, MAINTENANCE_DAG}
    assert "elsewhere.yaml:3:1: lake.sales.nowhere: there is no scheduler 'dolfin'; known are airflow, dolph" in caplog.text
    assert "elsewhere.yaml:4:1: lake.sales.shared: only Airflow refreshes several tables in one 'dag'" in caplog.text
    assert "elsewhere.yaml:5:1: lake.sales.always: only Airflow refreshes by updates of assets, or all the time" in caplog.text


def test_tags_and_documentation(folder: Path) -> None:
    dags = load(folder)
    assert dags[DAILY].tags == {"dynamic-table", "lake", "lake.sales", "finance", "freshness: 1 day"}
    assert dags[DAILY].dag_display_name == "lake.sales.daily"
    text = dags[DAILY].doc_md
    for expected in (
        "Revenue per day",
        "`0 0 * * *` in Europe/Berlin",
        "FULL",
        "lake.raw.orders",
        f"[lake.sales.totals](dags/{TOTALS})",
        "SELECT ds, sum(amount)",
        "`definitions/tables.yaml`, line 6",
    ):
        assert expected in text
    assert f"[lake.sales.daily](dags/{DAILY})" in dags[TOTALS].doc_md


def test_a_file_of_statements_makes_dags_beside_those_of_yaml(folder: Path) -> None:
    (folder / "hourly.sql").write_text(
        "CREATE DYNAMIC TABLE lake.sales.hourly FRESHNESS = INTERVAL '1' HOUR\n"
        "AS SELECT count(*) AS days FROM lake.sales.daily;\n"
        "CREATE DYNAMIC TABLE lake.sales.broken FRESHNES = '1 day' AS SELECT 1 AS x;\n"
    )
    dags = load(folder)
    hourly = dags["dynamic_table__lake__sales__hourly"]
    assert {DAILY, TOTALS, MAINTENANCE_DAG} < dags.keys()
    assert "```sql\nCREATE DYNAMIC TABLE lake.sales.hourly" in (hourly.doc_md or "")
    assert hourly.timetable.expression == "0 * * * *"


def test_the_page_has_the_yaml_without_secrets(folder: Path) -> None:
    (folder / "sales").mkdir()
    (folder / "sales" / "carts.yaml").write_text(
        "defaults: {catalog: lake, database: sales}\ndynamic_tables:\n"
        "- name: other\n  freshness: 1 day\n  query: SELECT 1 AS x\n"
        "# Of the shop.\n- name: carts\n  freshness: 1 day  # as the shop wants it\n"
        "  spark: {conf: {fs.s3a.secret.key: S3CR3T}}\n  query: |\n    SELECT 2 AS x -- ```\n"
    )
    dag = load(folder)["dynamic_table__lake__sales__carts"]
    expected = (
        "````yaml\n# Of the shop.\n- name: carts\n  freshness: 1 day  # as the shop wants it\n"
        "  spark: {conf: {fs.s3a.secret.key: ***}}\n  query: |\n    SELECT 2 AS x -- ```\n````\n"
    )
    for doc in (dag.doc_md, dag.get_task("refresh").doc_md):
        assert "`definitions/sales/carts.yaml`, line 7" in doc
        assert doc.endswith(expected)
        assert "sql" not in doc, "the YAML has the query"


def test_the_page_has_the_query_where_the_yaml_does_not(folder: Path) -> None:
    (folder / "tables.yaml").write_text(
        "defaults: {catalog: lake, database: sales}\ndynamic_tables:\n"
        "- &daily {name: daily, freshness: 1 day, query: SELECT 1 AS x}\n- {<<: *daily, name: totals}\n"
    )
    doc = load(folder)[TOTALS].doc_md
    assert doc is not None
    assert doc.endswith("```yaml\n- {<<: *daily, name: totals}\n```\n\n```sql\nSELECT 1 AS x\n```\n")


def test_tables_are_assets(folder: Path) -> None:
    dags = load(folder)
    daily = Asset("dynamic-table://lake/sales/daily", group="dynamic-table")
    assert dags[DAILY].get_task("refresh").outlets == [daily]
    assert dags[TOTALS].get_task("refresh").inlets == [daily]
    assert dags[DAILY].get_task("refresh").inlets == [], "a source is no dynamic table"


def test_a_task_that_runs_is_stopped_by_no_asset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", TOTALS)
    task = load(folder)[TOTALS].get_task("refresh")
    assert isinstance(task, DynamicTableRefreshOperator)
    assert (task.inlets, task.outlets) == ([], []), "or Airflow looks whether they are active"
    assert task.hidden_outlets == [Asset("dynamic-table://lake/sales/totals", group="dynamic-table")]


def test_the_obvious_spelling_is_the_asset() -> None:
    asset, obvious = dynamic_table_asset("lake.crm.best_customers"), Asset("dynamic-table://lake/crm/best_customers")
    assert (asset.name, asset.uri) == (obvious.name, obvious.uri)
    with pytest.raises(ValueError, match="names no catalog"):
        dynamic_table_asset("crm.best_customers")


def test_any_name_is_an_asset() -> None:
    assets = [dynamic_table_asset(TableIdentifier("lake", *names)) for names in (("a.b", "c"), ("a", "b.c"), ("größe", "x/y"))]
    assert len({asset.uri for asset in assets}) == 3
    assert [asset.name for asset in assets] == [asset.uri for asset in assets]


def test_params_have_defaults_and_a_schema_for_the_form(folder: Path) -> None:
    params = load(folder)[DAILY].params
    flags = ("full_refresh", "even_if_suspended", "do_not_wait")
    assert params.dump() == {"schedule_time": None, "partition": None, **dict.fromkeys(flags, False)}
    assert params.get_param("schedule_time").schema["type"] == ["null", "string"]
    assert "ds=2024-01-31" in params.get_param("partition").description
    for name in ("schedule_time", "partition", *flags):
        assert "null" in params.get_param(name).schema["type"], "the form marks it as required"
    assert params.get_param("partition").resolve("ds=2024-01-01") == "ds=2024-01-01"


def test_a_task_process_builds_only_its_own_dag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", TOTALS)
    dags = load(folder)
    assert list(dags) == [TOTALS]
    assert [str(parent.identifier) for parent in dags[TOTALS].get_task("refresh").parents] == ["lake.sales.daily"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", MAINTENANCE_DAG)
    assert list(load(folder)) == [MAINTENANCE_DAG]


def test_a_callback_of_late_tables_needs_the_freshness_dag(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = "{name: a, freshness: 1 day, query: SELECT 1 AS x, on_late_callback: CALL}"
    (folder / "watched.yaml").write_text(f"dynamic_tables:\n- {table.replace('CALL', f'{__name__}:told')}\n")
    assert FRESHNESS_DAG in load(folder)
    load_dynamic_tables({}, folder, maintenance=False)
    why = "'on_late_callback' has no effect, because the DAG file says maintenance=False"
    assert f"watched.yaml:2:1: default.default.a: {why}" in caplog.text
    (folder / "watched.yaml").write_text(f"dynamic_tables:\n- {table.replace('CALL', 'alerts_of_nobody:told')}\n")
    load(folder)
    assert "on_late_callback: 'alerts_of_nobody:told' cannot be imported where Airflow reads DAGs" in caplog.text


def test_the_freshness_dag_exists_where_airflow_sends_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FRESHNESS_DAG not in load(folder)
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    dag = load(folder)[FRESHNESS_DAG]
    assert dag.get_task("check").definitions_path == folder
    assert dag.schedule.expression == "* * * * *"
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", FRESHNESS_DAG)
    assert list(load(folder)) == [FRESHNESS_DAG]


VERIFIED = (
    "dynamic_tables:\n- {name: a, freshness: 1 day, verify_every: 30 days, query: SELECT 1 AS x, on_failure_callback: CALL}\n"
)


def test_a_daily_dag_verifies_the_tables_that_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "verified.yaml"
    path.write_text(VERIFIED.replace("CALL", f"{__name__}:told"))
    dag = load(folder)[VERIFICATION_DAG]
    (task,) = dag.tasks
    assert task.task_id == "default.default.a"
    assert (task.retries, task.depends_on_past, called(task, "on_failure_callback")) == (2, False, [told])
    assert " at 0x" not in str(DagSerialization.to_dict(dag)), "an address would make a new version each time"
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", VERIFICATION_DAG)
    assert list(load(folder)) == [VERIFICATION_DAG]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "default.default.a")
    assert [task.task_id for task in load(folder)[VERIFICATION_DAG].tasks] == ["default.default.a"]


def test_a_table_that_nothing_verifies_is_a_mistake(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "verified.yaml").write_text(VERIFIED.replace("CALL", f"{__name__}:told"))
    namespace: dict[str, DAG] = {}
    load_dynamic_tables(namespace, folder, maintenance=False)
    assert "dynamic_table__default__default__a" in namespace
    assert VERIFICATION_DAG not in namespace
    assert (
        "verified.yaml:2:1: default.default.a: 'verify_every' has no effect, because the DAG file says maintenance=False"
        in caplog.text
    )


def test_a_task_process_does_without_the_models_of_yaml() -> None:
    program = (
        "import sys, airflow_dynamic_tables.dag_factory; print('airflow_dynamic_tables.definitions.declarations' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_places_with_names_longer_than_a_tag_have_no_tag(folder: Path) -> None:
    text = TABLES.replace("database: sales", f"database: {'s' * 96}")
    (folder / "tables.yaml").write_text(text)
    (dag,) = (dag for dag_id, dag in load(folder).items() if dag_id.endswith("totals"))
    assert dag.tags == {"dynamic-table", "lake", "freshness: 1 hour"}


def test_a_broken_file_hides_no_other_table(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables: [{name: x, freshnes: 1 day}]")
    assert DAILY in load(folder)
    assert f"{folder}/broken.yaml:1:28: unknown key 'freshnes'" in caplog.text


def test_what_airflow_refuses_of_one_table_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(table: DynamicTable, *others: Any) -> DAG:
        if table.identifier.table == "totals":
            raise ValueError("not by this Airflow")
        return build_dag(table, *others)

    monkeypatch.setattr(dag_factory, "build_dag", refuses)
    assert {DAILY} == load(folder).keys() - {MAINTENANCE_DAG}
    assert f"{folder}/tables.yaml:19:1: cannot be understood: ValueError: not by this Airflow" in caplog.text


def test_whoever_keeps_thousands_of_versions_is_told_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "minutes.yaml").write_text(
        "defaults: {catalog: lake, database: sales, version_max_age: 7 days}\ndynamic_tables:\n"
        "- {name: minutes, freshness: 1 minute, refresh_mode: full, query: SELECT 1 AS a}\n"
    )
    load(folder)
    assert f"{folder}/minutes.yaml:3: lake.sales.minutes: its retention keeps about 10,080 versions" in caplog.text


def test_every_dag_can_be_serialized(folder: Path) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables: [{name: x, freshnes: 1 day}]")
    for dag in load(folder).values():
        assert DagSerialization.to_dict(dag)["dag"]["dag_id"] == dag.dag_id


@pytest.mark.large
def test_neither_hash_seed_nor_place_makes_a_new_dag_version(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from airflow.models.serialized_dag import SerializedDagModel\n"
        "from airflow.serialization.serialized_objects import DagSerialization\n"
        "from airflow_dynamic_tables.dag_factory import load_dynamic_tables\n"
        "found = {}; load_dynamic_tables(found, sys.argv[1])\n"
        "print(*(SerializedDagModel.hash(DagSerialization.to_dict(dag)) for dag in found.values()))"
    )
    (folder / "tables.yaml").write_text(TABLES + SETTINGS.lstrip("\n"))
    hashes = set()
    for seed in ("1", "2"):
        place = tmp_path / seed / "definitions"
        place.parent.mkdir()
        shutil.copytree(folder, place)
        command = [sys.executable, "-c", program, str(place)]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        hashes.add(done.stdout.splitlines()[-1])
    assert len(hashes) == 1


def test_dates_before_any_data_can_be_backfilled(folder: Path) -> None:
    assert load(folder)[DAILY].start_date < datetime(1990, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("place", ["definitions/catalogs.yaml", "catalogs.yml"])
def test_the_catalogs_file_is_found(folder: Path, place: str) -> None:
    assert find_catalogs_file(folder) is None
    catalogs = folder.parent / place
    catalogs.write_text("catalogs: [{name: lake}]")
    assert find_catalogs_file(folder) == catalogs
    assert load(folder)[DAILY].get_task("refresh").catalogs_file == catalogs


def test_a_second_loader_can_leave_maintenance_to_the_first(folder: Path) -> None:
    namespace: dict[str, DAG] = {}
    load_dynamic_tables(namespace, folder, conn_id="other", maintenance=False)
    assert sorted(namespace) == [DAILY, TOTALS]
    assert namespace[DAILY].get_task("refresh").catalog_hook().conn_id == "other"


def test_a_table_with_a_fuse_has_a_second_task_that_runs_only_when_the_refresh_failed(folder: Path) -> None:
    (folder / "tables.yaml").write_text(TABLES + "    expectations: [{row_count: {min: 1}}]\n")
    dags = load(folder)
    assert (dags[DAILY].task_ids, dags[DAILY].max_active_runs) == (["refresh"], 1)
    totals = dags[TOTALS]
    assert totals.task_ids == ["refresh", "decide"]
    refresh, decide = totals.tasks
    assert (decide.upstream_task_ids, decide.trigger_rule) == ({"refresh"}, "all_failed")
    assert decide.outlets == refresh.outlets == [dynamic_table_asset(TableIdentifier("lake", "sales", "totals"))]
    assert (totals.max_active_runs, refresh.max_active_tis_per_dag) == (16, 1), "later refreshes do not wait for a decision"
    assert DagSerialization.to_dict(totals) == DagSerialization.to_dict(load(folder)[TOTALS])


@pytest.mark.parametrize("action", ["warn", "fail"])
def test_a_row_count_that_never_quarantines_needs_no_second_task(folder: Path, action: str) -> None:
    (folder / "tables.yaml").write_text(TABLES + f"    expectations: [{{row_count: {{min: 1}}, action: {action}}}]\n")
    assert load(folder)[TOTALS].task_ids == ["refresh"]


GROUP = """
defaults: {catalog: lake, database: sales, dag: sales, timezone: Europe/Berlin}
dynamic_tables:
  - {name: totals, freshness: 1 hour, query: SELECT x FROM daily, tags: [sums]}
  - {name: daily, freshness: 1 day, query: SELECT 1 AS x, pool: spark, expectations: [{row_count: {min: 1}}]}
  - {name: lake.crm.regions, freshness: 1 day, query: SELECT x FROM totals}
  - {name: alone, freshness: 1 day, dag: other, query: SELECT x FROM totals}
"""
SALES = "dynamic_table_group__sales"


@pytest.fixture
def grouped(folder: Path) -> Path:
    (folder / "tables.yaml").write_text(GROUP)
    return folder


def test_tables_share_a_dag(grouped: Path) -> None:
    dags = load(grouped)
    assert sorted(dags) == [f"{SALES[:-5]}other", SALES, MAINTENANCE_DAG]
    dag = dags[SALES]
    assert {task.task_id: task.upstream_task_ids for task in dag.tasks} == {
        "lake.sales.daily": set(),
        "lake.sales.totals": {"lake.sales.daily"},
        "lake.crm.regions": {"lake.sales.totals"},
    }
    assert dag.get_task("lake.sales.totals").trigger_rule == "none_failed"
    assert (dag.get_task("lake.sales.daily").pool, dag.get_task("lake.sales.totals").pool) == ("spark", "default_pool")
    assert (dag.dag_display_name, dag.max_active_runs, dag.catchup) == ("sales", 1, False)
    assert dag.tags == {"dynamic-table", "lake", "lake.sales", "lake.crm", "sums", "freshness: 1 day", "freshness: 1 hour"}
    assert serialized(dag)["timetable"]["__var"]["expressions"] == ["0 0 * * *", "0 * * * *"], "the ticks of all"
    assert dag.params.dump() == {
        "tables": None,
        "schedule_time": None,
        "partition": None,
        "full_refresh": False,
        "even_if_suspended": False,
        "do_not_wait": False,
    }
    assert "[lake.sales.totals](dags/dynamic_table_group__sales)" in str(dag.doc_md)
    assert dag.get_task("lake.sales.daily").outlets == [dynamic_table_asset("lake.sales.daily")]
    assert serialized(dag) == serialized(load(grouped)[SALES])


def serialized(dag: DAG) -> dict[str, Any]:
    return dict(DagSerialization.to_dict(dag)["dag"])


def test_a_task_process_builds_only_its_own_group(grouped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", SALES)
    for _ in range(2):
        dags = load(grouped)
        assert list(dags) == [SALES]
        assert len(dags[SALES].tasks) == 3
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "lake.crm.regions")
    (task,) = load(grouped)[SALES].tasks
    assert isinstance(task, DynamicTableRefreshOperator)
    assert (task.task_id, [str(parent.identifier) for parent in task.parents]) == ("lake.crm.regions", ["lake.sales.totals"])
    assert task.runs.group is not None
    assert len(task.runs.group.tables) == 3


def test_a_broken_table_hides_no_other_of_its_group(grouped: Path, caplog: pytest.LogCaptureFixture) -> None:
    (grouped / "broken.yaml").write_text(
        "defaults: {dag: sales, timezone: Europe/Berlin}\ndynamic_tables:\n- {name: a, freshness: 1 day, query: SELECT 1 AS x, "
        'on_failure_callback: "os:nothing"}\n- {name: b, freshness: 1 day, scheduler: dolfin, query: SELECT 1 AS x}\n'
    )
    dag = load(grouped)[SALES]
    assert len(dag.tasks) == 3
    assert f"{grouped}/broken.yaml:3:1: default.default.a: on_failure_callback: 'os:nothing' cannot be imported" in caplog.text
    assert f"{grouped}/broken.yaml:4:1: default.default.b: there is no scheduler 'dolfin'" in caplog.text
