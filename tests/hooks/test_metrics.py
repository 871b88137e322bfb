"""Metrics arrive at a StatsD server and at a reader of OpenTelemetry, by Airflow's clients; the board names those that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
from airflow.sdk.observability import stats
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError, JobFailedError, QuarantinedError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.hooks.metrics import Counter, Gauge, Timer, emit_outcome, emit_waiting, set_gauge
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support.pyarrow_job import write_numbers
from tests.support.statsd import Received, statsd_server

TICK = datetime(2024, 1, 2, tzinfo=UTC)
NAME = TableIdentifier("lake", "sales", "revenue")
METRICS = Path(__file__).parents[2] / "docs" / "metrics"


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    with statsd_server(monkeypatch) as received:
        yield received


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DynamicTable:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables:\n- {name: lake.sales.revenue, freshness: 1 day, query: SELECT 1 AS x}\n")
    (table,) = load_definitions(path).tables.values()
    return table


def refresh(table: DynamicTable, days: int, job: Callable[[RefreshPlan], object] = write_numbers) -> None:
    with DynamicTableCatalogHook().get_conn() as workspace:
        tick = TICK + timedelta(days=days)
        run(workspace, RefreshRequest(table, {}, tick, f"token-{days}", "test", is_scheduled=True), job)


def fail(_plan: RefreshPlan) -> None:
    raise JobFailedError("no memory")


def test_every_refresh_counts_by_action_and_outcome(table: DynamicTable, statsd: Received) -> None:
    refresh(table, 0)
    writes, duration, rows, size, dirty = statsd()
    of_table = "lake__sales__revenue"
    assert writes == f"airflow.dynamic_tables.writes.{of_table}.INITIALIZE.committed:1|c"
    assert re.fullmatch(rf"airflow\.dynamic_tables\.duration\.{of_table}\.INITIALIZE:[\d.]+\|ms", duration)
    assert re.fullmatch(rf"airflow\.dynamic_tables\.rows\.{of_table}:\d+\|c", rows)
    assert re.fullmatch(rf"airflow\.dynamic_tables\.bytes\.{of_table}:[1-9]\d*\|c", size)
    assert dirty == f"airflow.dynamic_tables.dirty_partitions.{of_table}:0|g"

    refresh(table, 1)
    assert statsd() == [
        f"airflow.dynamic_tables.writes.{of_table}.NO_DATA.skipped:1|c",
        f"airflow.dynamic_tables.dirty_partitions.{of_table}:0|g",
    ]

    with pytest.raises(DynamicTableError):
        refresh(table_with(table, "SELECT 2 AS x"), 2, fail)
    writes, duration = statsd()
    assert writes == f"airflow.dynamic_tables.writes.{of_table}.FULL.failed:1|c"
    assert duration.startswith(f"airflow.dynamic_tables.duration.{of_table}.FULL:")


def table_with(table: DynamicTable, query: str) -> DynamicTable:
    table.path.write_text(table.path.read_text().replace("SELECT 1 AS x", query))
    (changed,) = load_definitions(table.path).tables.values()
    return changed


def test_dropped_rows_are_counted_with_the_version(table: DynamicTable, statsd: Received) -> None:
    table.path.write_text(
        table.path.read_text().replace(
            "SELECT 1 AS x",
            "SELECT 1 AS x, expectations: [{predicate: x > 0, action: drop}, {predicate: x < 9, action: drop},"
            " {predicate: x < 5, action: warn}, {row_count: {max: 2}}]",
        )
    )
    (table,) = load_definitions(table.path).tables.values()
    of_table = "lake__sales__revenue"
    dropped = f"airflow.dynamic_tables.dropped_rows.{of_table}:3|c"

    def job(plan: RefreshPlan) -> None:
        write_numbers(plan, violations={"x > 0": 1, "x < 9": 2, "x < 5": 1})

    with pytest.raises(QuarantinedError):
        refresh(table, 0, job)
    assert dropped not in statsd(), "it may be aborted"
    with DynamicTableCatalogHook().get_conn() as workspace:
        publish(workspace, "token-0")
    lines = statsd()
    assert {f"airflow.dynamic_tables.writes.{of_table}.PUBLISH.committed:1|c", dropped} <= set(lines)
    assert f"airflow.dynamic_tables.rows.{of_table}:3|c" in lines


@pytest.mark.parametrize(("code", "count"), [(ReasonCode.NOTHING_TO_REFRESH, 1), (ReasonCode.ALREADY_FRESH, 0)])
def test_rows_of_an_empty_batch_are_dropped(statsd: Received, code: ReasonCode, count: int) -> None:
    emit_outcome(WriteOutcome(Operation.REFRESH, Ending.SKIPPED, "t", NAME, reason=Reason(code, "…"), dropped=2))
    assert len([line for line in statsd() if "dropped_rows" in line]) == count


def test_tags_are_sent_where_the_client_has_them(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    received: Received = request.getfixturevalue("statsd")
    set_gauge(Gauge.LAG, NAME, 90)
    assert received() == ["airflow.dynamic_tables.lag,table=lake.sales.revenue:90|g"]


@pytest.mark.large
@pytest.mark.parametrize("module", ["airflow.cli.cli_parser", "airflow.api_fastapi.app"])
def test_airflow_sends_from_commands_and_the_api_server(tmp_path: Path, statsd: Received, module: str) -> None:
    """No code of ours initializes the client there."""
    program = (
        f"import {module}\n"
        "from airflow_dynamic_tables.core.identifiers import TableIdentifier\n"
        "from airflow_dynamic_tables.hooks.metrics import Gauge, set_gauge\n"
        "set_gauge(Gauge.LAG, TableIdentifier('lake', 'sales', 'revenue'), 90)\n"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "AIRFLOW_HOME": str(tmp_path)}, check=True)
    assert "airflow.dynamic_tables.lag.lake__sales__revenue:90|g" in statsd()


def test_opentelemetry_has_the_tags_as_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    client: Any = SafeOtelLogger(provider)
    stats.initialize(factory=lambda: client, export_legacy_names=False)
    try:
        emit_all()
        data = reader.get_metrics_data()
    finally:
        stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
        provider.shutdown()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    points = {metric.name: metric.data.data_points[-1] for metric in metrics}
    assert points.keys() == {f"airflow.{metric}" for metric in (*Counter, *Timer, *Gauge)}
    attributes = points["airflow.dynamic_tables.writes"].attributes
    assert attributes == {"table": "lake.sales.revenue", "action": "REFRESH", "outcome": "committed"}
    assert points["airflow.dynamic_tables.dirty_partitions"].value == 3
    assert points["airflow.dynamic_tables.duration"].sum == 2_500


def emit_all() -> None:
    """Emit each metric once or more."""
    seconds = {"begin": 0.5, "spark": 2.0, "spark.query": 1.0}
    committed = WriteOutcome(Operation.REFRESH, Ending.COMMITTED, "t", NAME, seconds=seconds, rows=7, bytes=70)
    emit_outcome(replace(committed, dropped=1, left=3))
    emit_waiting(NAME, timedelta(minutes=1))
    for gauge in set(Gauge) - {Gauge.DIRTY_PARTITIONS}:
        set_gauge(gauge, NAME, 1)


@pytest.mark.parametrize(
    ("ending", "partitions", "left", "dirty"),
    [
        (Ending.COMMITTED, 2, 3, 3),
        (Ending.SKIPPED, 0, 3, 3),
        (Ending.FAILED, 2, 3, 5),
        (Ending.QUARANTINED, 2, 0, 2),
        (Ending.FAILED, None, 0, None),  # all rows are out of date
        (Ending.UNKNOWN, 2, 3, None),
        (Ending.COMMITTED, 2, None, None),  # it did not search
    ],
)
def test_partitions_stay_dirty_until_they_are_replaced(
    statsd: Received, ending: Ending, partitions: int | None, left: int | None, dirty: int | None
) -> None:
    of = PartitionSet.of([{"ds": str(day)} for day in range(partitions)]) if partitions is not None else PartitionSet.of([{}])
    emit_outcome(WriteOutcome(Operation.REFRESH, ending, "t", NAME, of, left=left))
    gauges = [line for line in statsd() if "dirty" in line]
    assert gauges == ([] if dirty is None else [f"airflow.dynamic_tables.dirty_partitions.lake__sales__revenue:{dirty}|g"])


def test_a_lease_and_a_table_of_create_table_as_have_no_metrics(statsd: Received) -> None:
    for operation in (Operation.HOLD, Operation.CREATE):
        emit_outcome(WriteOutcome(operation, Ending.COMMITTED, "t", NAME, rows=7))
    assert statsd() == []


def test_the_board_shows_the_metrics_that_exist(statsd: Received) -> None:
    """By the mappings of statsd_exporter, the names that arrive at StatsD are those of the board, with the same labels."""
    emit_all()
    mapped = dict(map(_mapped, statsd()))
    assert mapped.keys() == {f"airflow_{metric.replace('.', '_')}" for metric in (*Counter, *Timer, *Gauge)}
    assert all(labels["table"] == "lake__sales__revenue" for labels in mapped.values())
    assert mapped["airflow_dynamic_tables_writes"].keys() == {"table", "action", "outcome"}
    board = json.loads((METRICS / "grafana.json").read_text())
    shown = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    named = {_base(name) for name in re.findall(r"airflow_dynamic_tables_\w+", shown)}
    assert named == mapped.keys()


def _mapped(line: str) -> tuple[str, dict[str, str]]:
    """Return the name without suffix and the labels, as the first mapping that matches."""
    name = line.partition(":")[0]
    for mapping in yaml.safe_load((METRICS / "statsd_exporter.yaml").read_text())["mappings"]:
        if match := re.fullmatch(re.escape(mapping["match"]).replace(r"\*", r"([^.]*)"), name):
            put = [re.sub(r"\$(\d)", lambda digit: match[int(digit[1])], text) for text in mapping["labels"].values()]
            full = re.sub(r"\$(\d)", lambda digit: match[int(digit[1])], mapping["name"])
            return _base(full), dict(zip(mapping["labels"], put, strict=True))
    raise AssertionError(f"{name} is not mapped")


def _base(name: str) -> str:
    return re.sub(r"(_total|(_milli)?(_?seconds)(_sum|_count)?)$", "", name)
