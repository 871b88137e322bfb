"""Kill -9 at every step of a compaction of a Hive table: no row is lost or doubled, and the next refresh hardly waits."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import create_file, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.formats.hive import stage
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.maintenance import compacting
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.faults.report import FaultReport
from tests.support.faults.victims import KILL, PREFIX, REVENUE, STOP, YAML, Attempt, Site, refresh, sweep, victim
from tests.support.metastore import HiveMetastore

POINTS = ("opened", "publishing", "announced", "swap", "landed", "published", "completed")
"""Of these, announced: the table says that a commit is under way; swap and landed: before its one step, and after it."""
CURES = ("same partition", "other partition", "sweep")
SHORT = {
    ("publishing", "same partition"),
    ("announced", "other partition"),
    ("swap", "sweep"),
    ("landed", "same partition"),
    ("published", "sweep"),
}
MANY = DEFAULT_LIMITS.many + 1
OLD = {"1": list(range(MANY)), "2": [2]}


@pytest.fixture
def lake(site: Site, hive_metastore: HiveMetastore) -> Iterator[Site]:
    """A site whose tables are in a metastore, with a table of many small files."""
    catalogs = site.home / "catalogs.yaml"
    catalogs.write_text(
        "catalogs: [{name: lake, type: hive, default-database: sales, "
        f"connection-params: {{uri: '{hive_metastore.uri}', warehouse: '{site.warehouse}'}}}}]"
    )
    (site.home / "sales.yaml").write_text(YAML.replace("partitioned_by", "format: parquet, partitioned_by"))
    placed = replace(site, catalogs=catalogs)
    with closing(Metastore(hive_metastore.uri)) as metastore:
        _drop(metastore)
        with placed.open() as workspace:
            run(workspace, placed.request(Attempt("base", OLD)), write_scattered)
        yield placed
        _drop(metastore)


def _drop(metastore: Metastore) -> None:
    if "sales" in metastore.ask("get_all_databases"):
        metastore.call("drop_database", "sales", False, True)


def write_scattered(plan: RefreshPlan) -> None:
    """A file for every row."""
    files = []
    for day, numbers in OLD.items():
        for number in numbers:
            uri = f"{plan.data_location}/ds={day}/part-{number}.parquet"
            with create_file(uri) as file:
                pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), file)
                files.append(StagedFile(uri, file.tell()))
    columns = (Column("ds", "string"), Column("n", "bigint"))
    touched = tuple({"ds": day} for day in OLD)
    write_text(plan.result_location, RefreshResult(plan.token, "by hand", len(files), tuple(files), columns, touched).to_json())


def compact(site: Site) -> int:
    """What the maintenance does for the table, with audit events of its commit."""
    with site.open() as workspace, pytest.MonkeyPatch.context() as patched:
        patched.setattr(Metastore, "alter_table", _told(Metastore.alter_table, after="announced"))
        patched.setattr(Metastore, "alter_partitions", _told(Metastore.alter_partitions, before="swap", after="landed"))
        return compacting.compact(workspace, REVENUE).files


def _told(call: Callable[..., None], before: str = "nothing", after: str = "nothing") -> Callable[..., None]:
    def told(*arguments: object) -> None:
        sys.audit(f"{PREFIX}{before}", "")
        call(*arguments)
        sys.audit(f"{PREFIX}{after}", "")

    return told


def content(workspace: Workspace) -> dict[str, list[int]]:
    """What a reader sees now."""
    rows: dict[str, list[int]] = {}
    for row in workspace.table(REVENUE).sample(1_000):
        rows.setdefault(row["ds"], []).append(row["n"])
    return {day: sorted(numbers) for day, numbers in sorted(rows.items())}


@pytest.mark.parametrize(
    ("point", "cure"),
    [pytest.param(*case, marks=() if case in SHORT else pytest.mark.long) for case in product(POINTS, CURES)],
)
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_killed_at(lake: Site, fault_report: FaultReport, monkeypatch: pytest.MonkeyPatch, point: str, cure: str) -> None:
    monkeypatch.setattr(stage, "_PATIENCE", 600.0)
    process = victim(point, KILL, compact, lake).process
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    fault_report.injected("kill -9")
    with lake.open() as workspace:
        assert content(workspace) == OLD
        new = OLD
        if cure == "sweep":
            sweep(lake)
        else:
            new = {**OLD, **({"1": [10]} if cure == "same partition" else {"2": [20]})}
            changed = {day: numbers for day, numbers in new.items() if OLD[day] != numbers}
            began = time.monotonic()
            assert refresh(lake, Attempt("next", changed, "somebody else", tuple(changed))).number == 2
            assert time.monotonic() - began < 300, "it waits as for a refresh that died there"
        assert content(workspace) == new
        sweep(lake)
        assert content(workspace) == new
        assert [version.number for version in workspace.table(REVENUE).versions()] == list(range(1, 2 + (cure != "sweep")))
        check_settled(workspace)
    compact(lake)
    with lake.open() as workspace:
        assert content(workspace) == new
        assert len(workspace.table(REVENUE).read().files) == 2


@pytest.mark.parametrize("point", ["swap", pytest.param("publishing", marks=pytest.mark.long)])
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_a_zombie_publishes_nothing(lake: Site, fault_report: FaultReport, point: str) -> None:
    """A refresh takes the stage away of one that sleeps; it wakes up when the refresh is over."""
    zombie = victim(point, STOP, compact, lake)
    zombie.wait_until_stopped()
    fault_report.injected("SIGSTOP")
    assert refresh(lake, Attempt("next", {"1": [10]}, "somebody else", ("1",))).number == 2
    zombie.wake()
    assert zombie.answer() == (0, None)
    sweep(lake)
    with lake.open() as workspace:
        assert content(workspace) == {**OLD, "1": [10]}
        assert [version.number for version in workspace.table(REVENUE).versions()] == [1, 2]
        check_settled(workspace)


def check_settled(workspace: Workspace) -> None:
    """Nobody hears of compactions, and nothing is left of them."""
    stages = workspace.ledger.list_stages(REVENUE, tuple(StageState))
    assert {stage.state for stage in stages} <= {StageState.COMMITTED, StageState.ABORTED}
    assert {refresh.token for refresh in workspace.ledger.list_refreshes(REVENUE)} <= {"base", "next"}
    partitions = workspace.table(REVENUE).count_files(DEFAULT_LIMITS)
    assert {str(one.partition["ds"]) for one in partitions} == {"1", "2"}
