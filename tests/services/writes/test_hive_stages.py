"""Stages of Hive tables that others alter, rename or drop: what is read stays, the rest goes, and the history tells."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hive_metastore.ttypes import Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import RefreshState, Stage, StageState
from airflow_dynamic_tables.services.maintenance.sweeping import recover, sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, commit, run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, utc_now
from airflow_dynamic_tables.services.writes.leases import LEASE
from airflow_dynamic_tables.services.writes.publishing import publish_stage, read_result
from tests.support.metastore import HiveMetastore
from tests.support.pyarrow_job import write_days, write_numbers

TICK = datetime(2024, 3, 2, tzinfo=UTC)
DAY_BEFORE = "2024-02-29"
DATABASE = "shop"
TABLE = "dynamic_tables: [{{name: hms.{database}.numbers, format: parquet, freshness: 1 day, query: SELECT 1 AS x}}]"
DAYS = """
dynamic_tables:
  - name: hms.{database}.numbers
    format: parquet
    freshness: 1 day
    initial: latest
    partitioned_by: [ds]
    options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
    query: SELECT 1 AS n, '2024-03-01' AS ds
"""


class Shop:
    """A Hive table, by default without partitions, refreshed by hand."""

    def __init__(self, folder: Path, uri: str, table: str = TABLE) -> None:
        self.database = f"{DATABASE}_{uuid4().hex}"
        catalogs = folder / "catalogs.yaml"
        parameters = f"{{uri: '{uri}', warehouse: 'file://{folder}/warehouse'}}"
        catalogs.write_text(f"catalogs: [{{name: hms, type: hive, connection-params: {parameters}}}]")
        (folder / "tables.yaml").write_text(table.format(database=self.database))
        (self.definition,) = load_definitions(folder / "tables.yaml").tables.values()
        self.settings = WorkspaceSettings(f"sqlite:///{folder}/state.db", f"file://{folder}/unused", catalogs)
        self.metastore = Metastore(uri)
        self.ahead = timedelta()
        self.workspace: Workspace = open_workspace(self.settings, lambda: utc_now() + self.ahead)

    def request(self, token: str, at: datetime = TICK) -> RefreshRequest:
        return RefreshRequest(self.definition, {}, at, token, f"owner of {token}")

    def refresh(self, token: str, *numbers: int, at: datetime = TICK) -> Version:
        version = run(self.workspace, self.request(token, at), lambda plan: write_numbers(plan, numbers))
        assert isinstance(version, Version)
        return version

    def refresh_days(self, token: str, number: int, at: datetime = TICK, *days: str, is_scheduled: bool = False) -> list[str]:
        """The days that a refresh planned; each gets that number."""
        planned: list[str] = []

        def write(plan: RefreshPlan) -> None:
            planned.extend(sorted(str(spec["ds"]) for spec in plan.partitions))
            write_days(plan, {day: [number] for day in planned})

        named = PartitionSet.of({"ds": day} for day in days) if days else None
        request = replace(self.request(token, at), partitions=named, is_scheduled=is_scheduled)
        assert isinstance(run(self.workspace, request, write), Version)
        return planned

    def begin(self, token: str, *numbers: int) -> Attempt:
        attempt = begin(self.workspace, self.request(token))
        assert isinstance(attempt, Attempt)
        write_numbers(attempt.plan, numbers)
        return attempt

    def swap(self, attempt: Attempt) -> None:
        """The commit of a refresh that dies right after it."""
        self.workspace.ledger.move_stage(attempt.stage.token, (StageState.OPEN,), StageState.COMMITTING)
        publish_stage(attempt.write.staged, attempt.plan, read_result(attempt.plan), lambda: None)

    def stage(self, token: str) -> Stage:
        stage = self.workspace.ledger.get_stage(token)
        assert stage is not None
        return stage

    def rows(self) -> list[int]:
        return sorted(row["x"] for row in sample(self.workspace, self.definition.identifier, 100))

    def load(self) -> Table:
        return self.metastore.call("get_table", self.database, "numbers")

    def drop(self) -> None:
        self.metastore.call("drop_table", self.database, "numbers", False)


@pytest.fixture
def shop(tmp_path: Path, empty_state: Path, hive_metastore: HiveMetastore) -> Iterator[Shop]:
    (tmp_path / "state.db").write_bytes(empty_state.read_bytes())
    shop = Shop(tmp_path, hive_metastore.uri)
    with closing(shop.metastore), shop.workspace:
        yield shop


def folder_of(stage: Stage) -> Path:
    return Path(stage.location.removeprefix("file://"))


def history(shop: Shop) -> dict[str, tuple[RefreshState, int | None, str | None]]:
    return {
        refresh.token: (refresh.state, refresh.version, refresh.error)
        for refresh in shop.workspace.ledger.list_refreshes(shop.definition.identifier)
    }


@pytest.mark.parametrize("notices", ["the maintenance", "the next refresh"])
def test_an_undone_version_stands_in_the_history(shop: Shop, notices: str) -> None:
    shop.refresh("first", 1)
    read = shop.load()
    shop.refresh("undone", 2, at=TICK + timedelta(days=1))
    shop.metastore.call("alter_table", shop.database, "numbers", read)
    assert shop.rows() == [1]
    if notices == "the maintenance":
        assert sweep(shop.workspace).failed == ()
    else:
        assert shop.refresh("next", 3, at=TICK + timedelta(days=1)).number == 3
    state, version, why = history(shop)["undone"]
    assert (state, version) == (RefreshState.UNDONE, 2)
    assert str(why).startswith("Version 2 was undone by another engine, which wrote the table back as it had read it before")
    assert history(shop)["first"] == (RefreshState.SUCCEEDED, 1, None)

    assert shop.refresh("last", 4, at=TICK + timedelta(days=1)).number == (3 if notices == "the maintenance" else 4)
    sweep(shop.workspace)
    assert {state for token, (state, _, _) in history(shop).items() if token != "undone"} == {RefreshState.SUCCEEDED}


@pytest.fixture
def days(tmp_path: Path, empty_state: Path, hive_metastore: HiveMetastore) -> Iterator[Shop]:
    (tmp_path / "state.db").write_bytes(empty_state.read_bytes())
    shop = Shop(tmp_path, hive_metastore.uri, DAYS)
    with closing(shop.metastore), shop.workspace:
        yield shop


@pytest.mark.sampled
@pytest.mark.parametrize("notices", ["the maintenance", "recover", "the next refresh", "the commit"])
def test_partitions_that_were_put_back_stand_in_the_history_and_are_refreshed(days: Shop, notices: str) -> None:
    days.refresh_days("first", 1)
    read = days.metastore.call("get_partitions", days.database, "numbers", -1)
    days.refresh_days("undone", 2)

    def alter() -> None:
        days.metastore.call("alter_partitions", days.database, "numbers", read)

    if notices != "the commit":
        alter()
    if notices == "the maintenance":
        days.ahead = timedelta(days=3)
        assert sweep(days.workspace).failed == ()
        days.ahead = timedelta()
    elif notices == "recover":
        recover(days.workspace, days.definition.identifier)
    elif notices == "the next refresh":
        assert days.refresh_days("by hand", 3, TICK, DAY_BEFORE) == [DAY_BEFORE]
    else:
        attempt = begin(days.workspace, replace(days.request("by hand"), partitions=PartitionSet.of([{"ds": DAY_BEFORE}])))
        assert isinstance(attempt, Attempt)
        write_days(attempt.plan, {DAY_BEFORE: [3]})
        alter()
        commit(days.workspace, attempt)
    state, version, why = history(days)["undone"]
    assert (state, version) == (RefreshState.UNDONE, 2)
    assert str(why).startswith("Version 2 was undone by another engine, which altered partitions, so that ds=2024-03-01 lead to")
    assert history(days)["first"] == (RefreshState.SUCCEEDED, 1, None)
    assert sorted(Path(days.stage("undone").location.removeprefix("file://")).rglob("*.parquet"))

    assert days.refresh_days("next", 4, TICK + timedelta(days=1), is_scheduled=True) == ["2024-03-01", "2024-03-02"]
    rows = {row["ds"]: row["n"] for row in sample(days.workspace, days.definition.identifier, 100)}
    assert rows == {"2024-03-01": 4, "2024-03-02": 4} | ({DAY_BEFORE: 3} if "by hand" in history(days) else {})
    assert days.refresh_days("last", 5, TICK + timedelta(days=2), is_scheduled=True) == ["2024-03-03"]


def test_a_stage_that_was_given_up_and_is_read_all_the_same_has_landed(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    attempt = shop.begin("late", 1, 2)
    shop.swap(attempt)
    shop.workspace.ledger.move_stage("late", (StageState.COMMITTING,), StageState.FENCING, {"state": RefreshState.ABORTED})
    shop.workspace.ledger.move_stage("late", (StageState.FENCING,), StageState.ABORTING)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        assert sweep(shop.workspace).completed == ("late",)
    assert caplog.records == []
    assert shop.stage("late").state is StageState.COMMITTED
    assert history(shop)["late"] == (RefreshState.SUCCEEDED, 1, None)
    assert shop.rows() == [1, 2]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_the_stage_of_a_dropped_table_goes(shop: Shop, is_made_anew: bool) -> None:
    shop.refresh("first", 1)
    left = shop.begin("left", 2).stage
    assert folder_of(left).exists()
    shop.drop()
    shop.ahead = LEASE * 2
    if is_made_anew:
        assert shop.refresh("anew", 3).number == 1
    else:
        assert sweep(shop.workspace).aborted == ("left",)
    assert shop.stage("left").state is StageState.ABORTED
    assert not folder_of(left).exists()
    assert folder_of(shop.stage("first")).exists(), "it was a version, and somebody may want the files of a dropped table"


def test_files_that_a_renamed_table_may_read_stay(shop: Shop) -> None:
    """Nobody knows what became of a commit when the table is gone under its name."""
    shop.refresh("first", 1)
    attempt = shop.begin("landed", 2, 3)
    shop.swap(attempt)
    table = shop.load()
    table.tableName = "renamed"
    shop.metastore.call("alter_table", shop.database, "numbers", table)
    shop.ahead = LEASE * 2
    assert sweep(shop.workspace).aborted == ("landed",)
    renamed = shop.metastore.call("get_table", shop.database, "renamed")
    assert list(Path(renamed.sd.location.removeprefix("file:").replace("///", "/")).glob("*.parquet"))
    assert folder_of(attempt.stage).exists()
