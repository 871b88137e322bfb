"""A definition as plain data: whatever YAML can say comes back from a catalog as the same table."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, RowCount
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode
from airflow_dynamic_tables.core.versions import SHORTEST_AGE, Retention
from airflow_dynamic_tables.definitions.cache import VERSION, Cache, normalised, restored
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.redaction import without_secret_values

ROOT = Path(__file__).parents[2]
EVERYTHING = """
defaults: {catalog: lake, database: sales, options: {partition.fields.ds.date-formatter: yyyy-MM-dd}, tags: [a]}
sources: [{name: raw.orders, format: parquet, path: /data/orders, partitioned_by: [ds, hh]}, {name: raw.events, format: hive}]
views: [{name: recent, query: "SELECT * FROM raw.orders WHERE ds > '2024'"}]
dynamic_tables:
- name: "`odd.name`"
  comment: Everything that can be said
  freshness: 1 day
  refresh_mode: full
  initial: latest
  skip_unchanged: false
  late: refresh
  on_change: {raw.orders: ignore}
  max_lag: {shared: 2 hours}
  frozen: ds < {now - 30 days}
  partition_events: changed
  partition_events_limit: 20
  float_tolerance: 1e-9
  keep_dropped: 30 days
  verify_every: 30 days
  suspend_after_failures: 3
  scheduler: dolphinscheduler
  renamed_from: even_odder
  schedule: 0 6 * * *
  timezone: Europe/Berlin
  partitioned_by: [hh, ds]
  options: {partition.fields.hh.time-formatter: HH, header: true}
  format: parquet
  atomicity: none
  versions_to_keep: 3
  version_max_age: 2 days
  columns: {amount: in €}
  expectations:
  - {not_null: [amount], action: drop}
  - {unique: [amount, ds]}
  - {unique: [amount], across_partitions: true}
  - {relationship: [amount], to: raw.orders, to_columns: [total], action: warn}
  - {accepted_values: {hh: ["00", "01"]}, name: hours, action: warn}
  - {row_count: {min: 0, max_decrease: 50%}}
  spark: {conn_id: big, conf: {spark.executor.memory: 4g}, num_executors: 2, env_vars: {A: b}}
  start_date: 2024-01-01 00:00:00
  tags: [b]
  dag_id_prefix: dev_
  params: {region: eu, level: {type: integer, default: 3, choices: [1, 3], title: Level, description: How loud}}
  owner: ada
  retries: 0
  retry_delay: 90 seconds
  pool: spark
  execution_timeout: 2 hours
  continuous: {strategy: micro-refresh, hold: 30 minutes, events: 10 seconds}
  end_date: 2034-01-01
  owner_links: {ada: https://example.org/ada}
  dag_display_name: Everything
  access_control: {analysts: [can_read]}
  retry_exponential_backoff: 2
  max_retry_delay: 1 hour
  dagrun_timeout: 5 hours
  max_consecutive_failed_dag_runs: 5
  depends_on_past: true
  pool_slots: 2
  priority_weight: -3
  weight_rule: absolute
  queue: big
  executor: LocalExecutor
  on_failure_callback: [company.alerts:page, {notifier: "company.alerts:Chat", arguments: {to: [a, b], urgent: true}}]
  dag_on_failure_callback: company.alerts:page
  dag_on_success_callback: []
  on_execute_callback: company.alerts:begun
  executor_config: {pod_template_file: /pods/big.yaml, pod_override: company.pods:big}
  is_paused_upon_creation: true
  deadline: {after: 2 hours, reference: logical_date, callback: company.alerts:late}
  on_success_callback: []
  on_retry_callback: company.alerts:note
  on_skipped_callback: {notifier: "company.alerts:Chat"}
  on_late_callback: company.alerts:late
  on: {all: [often, raw.orders, "s3://bucket/a b", {name: c}]}
  wait_for: [{path: "/data/{yyyy-MM-dd}"}, {source: raw.events, partition: "ds={yyyy-MM-dd}"},
    {source: raw.orders, rows: 1000}, {source: raw.orders, partition: "ds={yyyy-MM-dd}", rows: 1}]
  query: SELECT amount, hh, ds FROM recent WHERE amount IN (SELECT x FROM shared)
- {name: often, freshness: 3 minutes, query: "SELECT 1 AS x"}
- {name: shared, dag: shared, freshness: 1 day, query: "SELECT 1 AS x"}
- {name: when_updated, freshness: 1 day, schedule: none, on: [often], query: "SELECT 1 AS x"}
- name: in_several_commits
  freshness: 1 day
  refresh_mode: incremental
  max_partitions_per_commit: 7
  partitioned_by: [ds]
  query: SELECT amount, ds FROM raw.orders
"""


def assert_comes_back(table: DynamicTable) -> None:
    declaration = normalised(table)
    kept = json.loads(json.dumps(declaration, sort_keys=True))  # a metastore keeps it so
    assert kept == declaration
    again = restored(kept)
    assert again == replace(table, path=Path(), line=0, file="", text="")
    assert list(again.formatters) == list(table.formatters)
    assert normalised(again) == declaration


def test_everything_that_can_be_said_comes_back(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(EVERYTHING, encoding="utf-8")
    definitions, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert mistakes == ()
    odd, often, shared, when_updated, divided = definitions.tables.values()
    assert (odd.identifier.table, often.cron, when_updated.cron) == ("odd.name", None, None)
    for table in (odd, often, shared, when_updated, divided):
        assert_comes_back(table)
    nothing = DynamicTable(odd.identifier, "", "", (), odd.freshness, odd.mode, odd.mode, "", None)
    unsaid = {field.name for field in fields(DynamicTable) if getattr(odd, field.name) == getattr(nothing, field.name)}
    # So no field was left out above.
    assert unsaid == {"identifier", "declared_mode", "mode", "freshness", "dag", "max_partitions_per_commit"}
    assert shared.dag == "shared", "which excludes 'on'"
    assert divided.max_partitions_per_commit == 7, "which excludes other modes than the incremental one"


@pytest.mark.parametrize("path", ["dags/definitions", "tests/definitions/broken"])
def test_the_definitions_of_the_demo_and_of_the_tests_come_back(path: str) -> None:
    definitions, _ = load_sound_definitions(ROOT / path, cache=Cache(None))
    assert definitions.tables
    for table in definitions.tables.values():
        assert_comes_back(table)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_OPTIONAL = st.none() | _TEXTS
_OPTIONS = st.dictionaries(_TEXTS, _TEXTS, max_size=3)
_OPEN = _OPTIONS.filter(lambda settings: without_secret_values(settings) == settings)
"""Settings without secrets, which would not come back."""
_LENGTHS = st.none() | st.timedeltas(timedelta(0), timedelta(days=1_000))
_NAMES = st.builds(TableIdentifier, _TEXTS, _TEXTS, _TEXTS)
_KEYS = st.lists(_TEXTS, unique=True, max_size=3).map(tuple)
_MODES = st.sampled_from(RefreshMode)


@given(
    st.builds(
        DynamicTable,
        identifier=_NAMES,
        query=_TEXTS,
        expanded_query=_TEXTS,
        upstream=st.lists(_NAMES, max_size=2).map(tuple),
        declared_mode=_MODES,
        mode=_MODES,
        mode_reason=_TEXTS,
        freshness=st.builds(Freshness, st.integers(1, 10_000_000)),
        cron=_OPTIONAL,
        comment=_OPTIONAL,
        options=_OPTIONS,
        retention=st.builds(Retention, st.integers(1, 99), st.timedeltas(SHORTEST_AGE, timedelta(days=99))),
        comments=_OPTIONS,
        expectations=st.lists(st.builds(Expectation, _TEXTS, st.sampled_from(Action), st.none() | _TEXTS, _KEYS), max_size=2).map(
            tuple
        ),
        row_counts=st.lists(
            st.builds(
                RowCount, _TEXTS, st.sampled_from(Action), st.none() | st.integers(0), max_decrease=st.none() | st.floats(0, 1)
            ),
            max_size=2,
        ).map(tuple),
        spark=st.builds(SparkSettings, _TEXTS, _OPEN, num_executors=st.none() | st.integers(1), env_vars=_OPEN),
        start_date=st.none() | st.datetimes(timezones=st.just(UTC)),
        tags=_KEYS,
        owner=_OPTIONAL,
        retries=st.none() | st.integers(0, 99),
        retry_delay=_LENGTHS,
        pool=_OPTIONAL,
        execution_timeout=_LENGTHS,
    ),
    _KEYS,
)
def test_any_table_comes_back(table: DynamicTable, keys: tuple[str, ...]) -> None:
    assert_comes_back(replace(table, partition_keys=keys, formatters=dict.fromkeys(keys[1:], "yyyy")))


def test_what_notifiers_are_made_with_is_kept_without_secrets(tmp_path: Path) -> None:
    text = """
dynamic_tables:
- name: t
  freshness: 1 day
  query: SELECT 1 AS x
  on_failure_callback: {notifier: "company:Chat", arguments: {channel: ops, hooks: [{api_key: k3y, url: "https://me:pass@host/x"}]}}
"""
    (tmp_path / "t.yaml").write_text(text, encoding="utf-8")
    definitions, _ = load_sound_definitions(tmp_path, cache=Cache(None))
    (table,) = definitions.tables.values()
    (callback,) = normalised(table)["on_failure_callback"]
    assert callback["arguments"] == {"channel": "ops", "hooks": [{"api_key": "***", "url": "https://me:***@host/x"}]}


def test_a_definition_of_a_later_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(EVERYTHING, encoding="utf-8")
    definitions, _ = load_sound_definitions(tmp_path, cache=Cache(None))
    declaration = normalised(next(iter(definitions.tables.values())))
    with pytest.raises(UnsupportedError, match=r"`odd\.name` was written by a later release"):
        restored({**declaration, "version": VERSION + 1})
