"""Partition commit: which partitions are complete, whose policies ran, and who has heard, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.continuous.partition_commit import CompletePartition, PartitionCommits
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_days

NOW = datetime(2024, 3, 5, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- name: per_day
  freshness: 1 minute
  partitioned_by: [ds]
  options:
    partition.fields.ds.date-formatter: yyyy-MM-dd
    sink.partition-commit.policy.kind: custom
    sink.partition-commit.policy.class: tests.services.continuous.test_partition_commit:Policy
    sink.partition-commit.delay: DELAY
  query: SELECT '2024-03-01' AS ds, 1 AS n
"""


class Policy:
    """What a user runs for complete partitions."""

    heard: ClassVar[list[CompletePartition]] = []
    is_away = False

    def commit(self, partition: CompletePartition) -> None:
        if self.is_away:
            raise ConnectionError("away")
        self.heard.append(partition)


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[CompletePartition]:
    monkeypatch.setattr(Policy, "heard", [])
    return Policy.heard


class Table:
    def __init__(self, workspace: Workspace, folder: Path, delay: str = "0 s") -> None:
        (folder / "t.yaml").write_text(YAML.replace("DELAY", delay))
        self.definitions = load_definitions(folder / "t.yaml")
        self.workspace = workspace
        self.request = RefreshRequest(
            self.definitions.tables[TableIdentifier("lake", "sales", "per_day")], {}, NOW, token="", owner="o"
        )

    def publish(self, *days: int) -> str:
        """Publish days of March; the token of the version."""
        token = str(uuid4())
        names = [f"2024-03-{day:02}" for day in days]
        partitions = PartitionSet.of({"ds": name} for name in names)
        request = replace(self.request, token=token, partitions=partitions)
        run(self.workspace, request, lambda plan: write_days(plan, {name: [1] for name in names}))
        return token

    @property
    def commits(self) -> PartitionCommits:
        """As a new process sees them."""
        return PartitionCommits(self.workspace, self.request.table, {})

    def complete(self) -> list[tuple[str, str]]:
        return [(row.partition, row.token) for row in self.commits.complete()]


def test_a_partition_is_told_until_somebody_has_heard_and_again_after_late_data(
    workspace: Workspace, clock: Clock, tmp_path: Path, heard: list[CompletePartition]
) -> None:
    clock.time = NOW
    table = Table(workspace, tmp_path)
    assert table.complete() == []
    first = table.publish(1, 2)
    told = [("ds=2024-03-01", first), ("ds=2024-03-02", first)]
    assert table.complete() == told
    table.commits.offer(table.commits.complete())
    assert table.complete() == told  # the task was killed before Airflow heard of it
    table.commits.confirm(set(told))
    assert table.complete() == []
    assert [dict(partition.values) for partition in heard] == [{"ds": "2024-03-01"}, {"ds": "2024-03-02"}]
    clock.time += timedelta(seconds=1)
    late = table.publish(1)
    assert table.complete() == [("ds=2024-03-01", late)]
    table.commits.confirm({("ds=2024-03-01", first)})  # of the version before
    assert table.complete() == [("ds=2024-03-01", late)]
    assert [partition.token for partition in heard] == [first, first, late]


def test_a_policy_that_fails_is_run_again_and_nobody_hears_before(
    workspace: Workspace, clock: Clock, tmp_path: Path, heard: list[CompletePartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.time = NOW
    table = Table(workspace, tmp_path)
    token = table.publish(1)
    monkeypatch.setattr(Policy, "is_away", True)
    assert table.complete() == []
    monkeypatch.setattr(Policy, "is_away", False)
    assert table.complete() == [("ds=2024-03-01", token)]
    assert len(heard) == 1


def test_the_delay_counts_from_the_first_commit(workspace: Workspace, clock: Clock, tmp_path: Path) -> None:
    clock.time = NOW
    table = Table(workspace, tmp_path, "1 h")
    seconds = [0.0]
    has_news = table.commits.watched(lambda: seconds[0])
    table.publish(1)
    assert table.complete() == []
    clock.time = NOW + timedelta(minutes=30)
    token = table.publish(1)
    clock.time = NOW + timedelta(hours=1)
    assert table.complete() == []
    clock.time += timedelta(seconds=1)
    assert not has_news()
    seconds[0] = 61
    assert has_news()
    assert table.complete() == [("ds=2024-03-01", token)]
    table.commits.offer(table.commits.complete())
    seconds[0] = 122
    assert not has_news()
