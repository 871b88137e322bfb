"""Partitions that are computed again for the versions that they were made of, and compared with the table."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Retention, Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConflictError, DriftError, DynamicTableError, JobFailedError, UnsupportedError
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.refresh.verifying import (
    DailySample,
    RandomSample,
    VerifiedPartition,
    VerifyRequest,
    check_verified,
    verify,
    verify_turn,
)
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.rollback import forget_versions
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.runners.conftest import JobRunner
from tests.support.clock import Clock
from tests.support.jobs import refresh

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAYS = TableIdentifier("lake", "sales", "days")
YAML = """
defaults: {{catalog: lake, database: sales, freshness: 1 day}}
sources:
- {{name: raw.facts, format: csv, path: {folder}/facts, schema: "n bigint, ds string", partitioned_by: [ds]}}
- {{name: raw.events, format: delta, path: {folder}/events}}
dynamic_tables:
- {{name: parent, query: "SELECT ds, n FROM raw.facts", partitioned_by: [ds]}}
- name: days
  format: {format}
  atomicity: none
  partitioned_by: [ds]
  query: "{query}"
  verify_every: 3 days
  {more}
"""
EVERY_TYPE = (
    "SELECT ds, n, CAST(n AS DECIMAL(20, 3)) / 7 AS d, IF(n = 1, NULL, n) AS nothing, IF(n = 1, DOUBLE('NaN'), -0.0D) AS f, "
    "named_struct('m', map('a', n, 'b', NULL), 'l', array(n, NULL)) AS s, explode(array('x', 'x')) AS twice FROM raw.facts"
)


@dataclass
class Bench:
    """A table with a partition per day, which Spark makes of files or of another table."""

    workspace: Workspace
    spark: SparkSession
    folder: Path
    query: str = "SELECT ds, n FROM raw.facts"
    format: str = "iceberg"
    more: str = ""
    plans: list[RefreshPlan] = field(default_factory=list)

    def write(self, day: int, *numbers: int) -> None:
        """Write the facts of a day; the file looks as if it had been written an hour ago."""
        file = self.folder / "facts" / f"ds={day}" / "facts.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{number}\n" for number in numbers))
        stamp = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
        os.utime(file, (stamp, stamp))

    def definitions(self) -> Any:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(folder=self.folder, query=self.query, format=self.format, more=self.more))
        return load_definitions(path)

    def request(self, name: str = "days", *days: int) -> RefreshRequest:
        definitions, token = self.definitions(), str(uuid4())
        table = definitions.tables[TableIdentifier("lake", "sales", name)]
        partitions = PartitionSet.of({"ds": str(day)} for day in days) if days else None
        return RefreshRequest(table, definitions.sources, MARCH, token, token, partitions)

    def refresh(self, name: str = "days", *days: int) -> Version:
        made = run(self.workspace, self.request(name, *days), self.submit)
        assert isinstance(made, Version)
        return made

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        refresh(self.spark, plan)

    def verify(self, most: int | None = None, submit: Callable[[RefreshPlan], object] | None = None) -> dict[str, str]:
        """The partitions and what was found."""
        return {one.partition: self.told(one) for one in self.verified(most, submit)}

    def verified(self, most: int | None, submit: Callable[[RefreshPlan], object] | None = None) -> list[VerifiedPartition]:
        definitions = self.definitions()
        request = VerifyRequest(definitions.tables[DAYS], definitions.sources, RandomSample(most, seed=7))
        return verify(self.workspace, request, submit or self.submit)

    def turn(self, day: date, submit: Callable[[RefreshPlan], object] | None = None) -> dict[str, str]:
        """The partitions whose turn is on a day and what was found, as long as that is no error."""
        definitions = self.definitions()
        table = definitions.tables[DAYS]
        found = verify_turn(self.workspace, table, definitions.sources, day, submit or self.submit)
        check_verified(table, found)
        return {one.partition: self.told(one) for one in found}

    @staticmethod
    def told(one: VerifiedPartition) -> str:
        return one.reason or f"{one.verdict} {one.rows} -{one.missing} +{one.extra}"

    def iceberg(self, name: str = "days") -> Any:
        return self.workspace.catalog("lake").stores()[0].tables.load_table(("sales", name))  # type: ignore[attr-defined]

    def rewrite(self, day: int, *numbers: int, name: str = "days") -> None:
        """What another engine does to a partition."""
        table = self.iceberg(name)
        rows = pa.table({"ds": pa.array([str(day)] * len(numbers)), "n": pa.array(numbers, pa.int64())})
        if table.scan(f"ds = '{day}'").count():
            table.overwrite(rows, f"ds = '{day}'")
        else:
            table.append(rows)

    def stages(self) -> list[Path]:
        location = Path(urlsplit(self.workspace.existing_table(DAYS).folder() or "").path)
        return [path for path in location.rglob("verification-*") if any(file.is_file() for file in path.rglob("*"))]


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path, spark: SparkSession) -> Iterator[Bench]:
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    clock.time = MARCH + timedelta(hours=1)
    with open_workspace(settings, clock) as workspace:
        bench = Bench(workspace, spark, tmp_path)
        for day in (1, 2, 3):
            bench.write(day, day, day, 10 * day)
        yield bench


pytestmark = pytest.mark.spark


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet", "orc"])
def test_rows_of_every_type_are_equal_and_leave_nothing_behind(bench: Bench, kind: str) -> None:
    bench.query, bench.format = EVERY_TYPE, kind
    before = bench.refresh()
    assert bench.verify() == {f"ds={day}": "EQUAL 6 -0 +0" for day in (1, 2, 3)}
    assert bench.stages() == []
    assert bench.workspace.existing_table(DAYS).current() == before
    assert len(bench.plans) == 2, "partitions that are read in one way are computed by one job"


def test_a_verification_reads_all_files(bench: Bench) -> None:
    """It also checks the lineage, by which a refresh of a partition reads only some of them."""
    bench.refresh()
    bench.refresh("days", 2)
    assert bench.verify(1)
    complete, refresh, verification = ([len(source.files) for source in plan.sources] for plan in bench.plans)
    assert (complete, refresh, verification) == ([3], [1], [3])


def test_drift_by_another_engine_is_found_by_partition(bench: Bench) -> None:
    bench.refresh()
    bench.rewrite(1, 1, 10)  # lost a duplicate
    bench.rewrite(2, 2, 2, 21)
    assert bench.verify() == {"ds=1": "DRIFT 2 -1 +0", "ds=2": "DRIFT 3 -1 +1", "ds=3": "EQUAL 3 -0 +0"}
    record = bench.workspace.ledger.list_refreshes(DAYS)[0]
    assert (record.action, record.reason_code, record.version) == (RefreshAction.VERIFY, ReasonCode.DRIFT, None)
    assert record.reason == "partitions verified with seed 7: equal: 1, drift: 2"
    assert [(one.name, one.violations) for one in record.expectations] == [("ds=1", 1), ("ds=2", 2), ("ds=3", 0)]


def test_partitions_that_another_engine_emptied_or_added(bench: Bench) -> None:
    bench.refresh()
    bench.iceberg().delete("ds = '2'")
    bench.rewrite(9, 9)
    found = bench.verify()
    assert found == {"ds=1": "EQUAL 3 -0 +0", "ds=2": "DRIFT 0 -3 +0", "ds=3": "EQUAL 3 -0 +0", "ds=9": "DRIFT 1 -0 +1"}


@pytest.mark.large
def test_partitions_without_rows_are_equal(bench: Bench) -> None:
    bench.refresh()
    bench.refresh("days", 8)
    assert bench.verify()["ds=8"] == "EQUAL 0 -0 +0"


@pytest.mark.large
def test_a_sample_is_chosen_by_its_seed(bench: Bench) -> None:
    bench.refresh()
    first = bench.verify(2)
    assert len(first) == 2
    assert bench.verify(2) == first


DAY = date(2024, 3, 1)


def test_every_partition_has_one_turn_in_a_cycle() -> None:
    turns: dict[str, list[int]] = {}
    for number in range(60):
        present = [{"ds": str(day)} for day in range(number, 100 + 2 * number)]  # others come and go
        for spec in DailySample(DAY + timedelta(days=number), 30).chosen(DAYS, present):
            turns.setdefault(spec["ds"], []).append(number)
    assert {day: len(turns[str(day)]) for day in range(60, 100)} == dict.fromkeys(range(60, 100), 2)
    assert {second - first for first, second in (turns[str(day)] for day in range(60, 100))} == {30}
    counts = [
        len(DailySample(DAY + timedelta(days=day), 30).chosen(DAYS, [{"ds": str(n)} for n in range(900)])) for day in range(30)
    ]
    assert sum(counts) == 900
    assert max(counts) < 60, "turns are spread"


@pytest.mark.large
def test_the_turns_of_a_cycle_verify_all_and_a_retry_verifies_the_same(bench: Bench) -> None:
    bench.refresh()
    days = [DAY + timedelta(days=number) for number in range(3)]
    found = [bench.turn(day) for day in days]
    assert sorted(partition for turn in found for partition in turn) == ["ds=1", "ds=2", "ds=3"]
    assert bench.turn(days[0]) == found[0]
    turns = [one for one in bench.workspace.ledger.list_refreshes(DAYS) if one.action is RefreshAction.VERIFY]
    assert len(turns) == sum(map(bool, [*found, found[0]])), "a day without turns leaves no record"
    bench.rewrite(2, 2, 2, 21)
    (day,) = (day for day, turn in zip(days, found, strict=True) if "ds=2" in turn)
    with pytest.raises(DriftError, match=r"ds=2: rows missing: 1, extra: 1\. .* refresh lake\.sales\.days --partition ds=2"):
        bench.turn(day)
    assert bench.stages() == []


def test_frozen_partitions_have_no_turn_and_a_job_that_fails_is_an_error(bench: Bench) -> None:
    bench.more = "refresh_mode: incremental\n  frozen: ds < '3'"
    bench.refresh()
    bench.rewrite(1, 5)
    found = {partition: told for number in range(3) for partition, told in bench.turn(DAY + timedelta(days=number)).items()}
    assert found == {"ds=1": "it is frozen (ds < '3')", "ds=2": "it is frozen (ds < '3')", "ds=3": "EQUAL 3 -0 +0"}

    def failing(_: RefreshPlan) -> None:
        raise JobFailedError("no Spark")

    days = (DAY + timedelta(days=number) for number in range(3))
    its_day = next(day for day in days if DailySample(day, 3).chosen(DAYS, [{"ds": "3"}]))
    with pytest.raises(JobFailedError, match="ds=3 is not verified: no Spark"):
        bench.turn(its_day, failing)


def test_sources_are_read_as_they_were(bench: Bench) -> None:
    bench.query = "SELECT ds, n FROM parent"
    bench.refresh("parent")
    bench.refresh()
    bench.rewrite(2, 5, name="parent")
    assert bench.verify() == {f"ds={day}": "EQUAL 3 -0 +0" for day in (1, 2, 3)}
    bench.rewrite(2, 5)  # the same rows as the source has now
    assert bench.verify()["ds=2"] == "DRIFT 1 -3 +1"


def test_a_version_that_expired_is_not_equal(bench: Bench, clock: Clock) -> None:
    bench.query = "SELECT ds, n FROM parent"
    bench.refresh("parent")
    bench.refresh()
    bench.write(2, 5)
    bench.refresh("parent", 2)
    clock.time = datetime.now(UTC) + timedelta(days=30)
    registered = bench.workspace.look_up(TableIdentifier("lake", "sales", "parent"))
    assert forget_versions(bench.workspace, registered, Retention(versions_to_keep=1, version_max_age=timedelta(hours=1))) > 0
    found = bench.verify()
    assert (found["ds=1"], found["ds=3"]) == ("EQUAL 3 -0 +0", "EQUAL 3 -0 +0")
    assert "has expired" in found["ds=2"]
    assert bench.workspace.ledger.list_refreshes(DAYS)[0].reason_code is ReasonCode.UNVERIFIED


def test_files_that_changed_cannot_be_read_as_they_were(bench: Bench) -> None:
    bench.refresh()
    bench.write(2, 5)
    found = bench.verify()
    assert (found["ds=1"], found["ds=3"]) == ("EQUAL 3 -0 +0", "EQUAL 3 -0 +0")
    assert found["ds=2"] == "lake.raw.facts changed, and no earlier version of it can be read"


@pytest.mark.large
def test_a_delta_source_is_read_as_it_was_until_its_files_are_deleted(bench: Bench) -> None:
    bench.query = "SELECT ds, n FROM raw.events"
    path = bench.folder / "events"

    def events(*numbers: int) -> pa.Table:
        return pa.table(
            {"ds": pa.array(["1", "2"] * len(numbers)), "n": pa.array([n for n in numbers for _ in "12"], pa.int64())}
        )

    write_deltalake(path, events(1, 2), partition_by=["ds"])
    bench.refresh()
    write_deltalake(path, events(3), partition_by=["ds"], mode="append")
    write_deltalake(path, events(4).slice(1), partition_by=["ds"], mode="overwrite", predicate="ds = '2'")
    assert bench.verify() == {"ds=1": "EQUAL 2 -0 +0", "ds=2": "EQUAL 2 -0 +0"}
    bench.rewrite(2, 1, 9)
    assert bench.verify()["ds=2"] == "DRIFT 2 -1 +1"
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = bench.verify(submit=lambda plan: JobRunner(bench.spark).run(plan, {}))
    assert found["ds=2"] == "files of lake.raw.events at version 0 are deleted"
    shutil.rmtree(path)
    for number in range(3):
        write_deltalake(path, events(number), partition_by=["ds"], mode="append")
    assert set(bench.verify().values()) == {"version 0 of lake.raw.events is not the one that was read"}


@pytest.mark.large
def test_partitions_of_another_definition_are_not_verified(bench: Bench) -> None:
    version = bench.refresh()
    bench.query = "SELECT ds, n + 0 AS n FROM raw.facts"
    bench.refresh("days", 1)
    found = bench.verify()
    assert found == {
        "ds=1": "EQUAL 3 -0 +0",
        "ds=2": f"its definition changed since version {version.number}",
        "ds=3": f"its definition changed since version {version.number}",
    }


def test_a_query_that_names_the_time_is_verified_for_its_schedule_time(bench: Bench, clock: Clock) -> None:
    bench.query = "SELECT ds, n, current_timestamp AS made_at FROM raw.facts"
    bench.refresh()
    clock.time += timedelta(days=100)
    assert set(bench.verify().values()) == {"EQUAL 3 -0 +0"}


def test_a_query_that_returns_other_rows_each_time_is_refused(bench: Bench) -> None:
    bench.query = "SELECT ds, rand() AS n FROM raw.facts"
    bench.refresh()
    with pytest.raises(UnsupportedError, match=r"days cannot be verified: rand\(\) is not known"):
        bench.verify()


def test_it_yields_to_refreshes(bench: Bench) -> None:
    bench.refresh()

    def refreshed_meanwhile(_: RefreshPlan) -> None:
        bench.refresh("days", 1)

    with pytest.raises(ConflictError, match="began while its rows were compared"):
        bench.verify(submit=refreshed_meanwhile)
    assert bench.stages() == []
    running = begin(bench.workspace, bench.request("days", 2))
    assert not isinstance(running, Skipped)
    with pytest.raises(ConflictError, match="is being refreshed"):
        bench.verify()


@pytest.mark.large
def test_a_refresh_is_left_out_as_if_nothing_had_been_verified(bench: Bench) -> None:
    bench.query = "SELECT ds, n FROM raw.facts"
    bench.refresh()
    bench.verify()
    definitions, token = bench.definitions(), str(uuid4())
    scheduled = RefreshRequest(definitions.tables[DAYS], definitions.sources, MARCH, token, token, is_scheduled=True)
    skipped = run(bench.workspace, scheduled, bench.submit)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.UNCHANGED


def test_a_job_that_fails_verifies_nothing(bench: Bench) -> None:
    bench.refresh()

    def failing(_: RefreshPlan) -> None:
        raise DynamicTableError("no Spark")

    assert set(bench.verify(submit=failing).values()) == {"no Spark"}
    assert bench.stages() == []


@pytest.mark.large
def test_a_process_that_is_killed_leaves_a_stage_that_is_swept(bench: Bench) -> None:
    bench.refresh()

    def killed(plan: RefreshPlan) -> None:
        data = Path(urlsplit(plan.data_location).path)
        data.mkdir(parents=True)
        (data / "part-0.parquet").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    settings = bench.workspace.settings

    def child() -> None:
        with open_workspace(settings) as workspace:
            Bench(workspace, bench.spark, bench.folder).verify(submit=killed)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (stage,) = bench.workspace.ledger.list_stages(DAYS)
    assert stage.state is StageState.OPEN
    assert len(bench.stages()) == 1
    assert sweep(bench.workspace).aborted == (stage.token,)
    assert bench.stages() == []
    assert set(bench.verify().values()) == {"EQUAL 3 -0 +0"}
