"""Where the rows of a table come from: refreshes, the versions that they read, and what has changed since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import UpstreamError
from airflow_dynamic_tables.services.lifecycle.registration import register
from airflow_dynamic_tables.services.refresh.origins import Origin, OriginState, origins
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.clock import Clock
from tests.support.daily_facts import DAY, DAYS, MARCH, name_of
from tests.support.pyarrow_job import write_days

YAML = """
defaults: {{catalog: lake, database: sales, freshness: 1 day, refresh_mode: incremental}}
sources:
- {{name: raw.facts, format: csv, path: {folder}/facts, schema: "n bigint, ds string", partitioned_by: [ds]}}
- {{name: raw.names, format: csv, path: {folder}/names, schema: "n bigint, name string"}}
dynamic_tables:
- {{name: days, partitioned_by: [ds], query: "SELECT ds, n FROM raw.facts"}}
- name: named
  partitioned_by: [ds]
  on_change: {{raw.names: ignore}}
  query: SELECT d.ds, d.n FROM days d JOIN raw.names x ON d.n = x.n
- {{name: months, partitioned_by: [ds], query: "{query}"}}
"""
BY_MONTH = "SELECT substr(ds, 1, 7) AS ds, sum(n) AS n FROM named GROUP BY 1"


class House:
    """Three tables, one over the other, above files by day and a file of names."""

    def __init__(self, workspace: Workspace, clock: Clock, folder: Path) -> None:
        self.workspace = workspace
        self.clock = clock
        self.folder = folder
        self.query = BY_MONTH
        self.tick = 0
        self.writes = 0
        for day in range(2):
            self.write(day)
        self._write("names/names.csv")
        for name in ("days", "named", "months"):
            self.refresh(name)

    def write(self, day: int, name: str = "a") -> None:
        self._write(f"facts/ds={name_of(day)}/{name}.csv")

    def _write(self, name: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
        self.writes += 1
        stamp = (datetime.now(UTC) - timedelta(hours=1)).timestamp() + self.writes
        os.utime(file, (stamp, stamp))

    @property
    def definitions(self) -> Definitions:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(folder=self.folder, query=self.query))
        return load_definitions(path)

    def refresh(self, name: str) -> None:
        self.tick += 1
        self.clock.time = MARCH + self.tick * DAY
        table = self.definitions.tables[TableIdentifier("lake", "sales", name)]
        token = f"{name}-{self.tick}"
        request = RefreshRequest(table, self.definitions.sources, self.clock.time, token, token, is_scheduled=True)
        run(self.workspace, request, self._submit)

    @staticmethod
    def _submit(plan: RefreshPlan) -> None:
        days = [name_of(0)[:7]] if plan.identifier.endswith("months") else [name_of(0), name_of(1)]
        write_days(plan, {day: [1] for day in days if plan.partitions.covers({"ds": day})})

    def why(self, name: str, *partitions: str) -> list[Origin]:
        asked = PartitionSet.of({"ds": one} for one in partitions) if partitions else None
        definitions = self.definitions
        return origins(self.workspace, definitions, definitions.tables[TableIdentifier("lake", "sales", name)], asked)

    def told(self, name: str, *partitions: str) -> list[tuple[int, str, str, str]]:
        return [
            (one.depth, one.table.removeprefix("lake."), str(one.partitions), one.token or "")
            for one in self.why(name, *partitions)
        ]

    def changed(self, name: str, *partitions: str) -> dict[str, str]:
        found = self.why(name, *partitions)
        return {
            f"{one.table.removeprefix('lake.')} {one.partitions}": one.why for one in found if one.state is OriginState.CHANGED
        }


@pytest.fixture
def house(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[House]:
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    with open_workspace(settings, clock) as workspace:
        yield House(workspace, clock, tmp_path)


def test_rows_are_followed_down_to_files(house: House) -> None:
    assert house.told("named", name_of(1)) == [
        (0, "sales.named", f"ds={name_of(1)}", "named-2"),
        (1, "sales.days", f"ds={name_of(1)}", "days-1"),
        (2, "raw.facts", f"ds={name_of(1)}", ""),
        (1, "raw.names", "the complete table", ""),
    ]
    assert [(depth, table) for depth, table, *_ in house.told("months")] == [
        (0, "sales.months"),
        (1, "sales.named"),
        (2, "sales.days"),
        (3, "raw.facts"),
        (2, "raw.names"),
    ]
    assert not house.changed("months")


def test_each_partition_has_its_own_refresh(house: House) -> None:
    house.write(1, "late")
    for name in ("days", "named", "months"):
        house.refresh(name)
    assert sorted(told for told in house.told("months", "2024-03") if told[0] == 1) == [
        (1, "sales.named", f"ds={name_of(0)}", "named-2"),
        (1, "sales.named", f"ds={name_of(1)}", "named-5"),
    ]


def test_a_change_shows_where_it_is(house: House) -> None:
    house.write(1, "late")
    told = house.changed("months")
    assert list(told) == [f"raw.facts ds={name_of(0)}, ds={name_of(1)}"]
    assert told.popitem()[1].startswith("lake.raw.facts moved")
    assert not house.changed("days", name_of(0))
    house.refresh("days")
    assert [name.split()[0] for name in house.changed("named", name_of(1))] == ["sales.named", "sales.days", "raw.facts"]
    assert not house.changed("named", name_of(0))


def test_an_ignored_source_does_not_change_the_table(house: House) -> None:
    house._write("names/more.csv")
    assert list(house.changed("named", name_of(0))) == ["raw.names the complete table"]


def test_another_definition_is_a_change(house: House) -> None:
    house.query = BY_MONTH.replace("sum(n)", "max(n)")
    assert house.changed("months") == {"sales.months the complete table": "its definition changed"}


def test_nothing_is_known_after_a_rollback_by_hand(house: House) -> None:
    table = TableIdentifier("lake", "sales", "named")
    store = house.workspace.catalog("lake").stores()[0]
    store.tables.load_table(("sales", "named")).delete(f"ds = '{name_of(0)}'")  # type: ignore[attr-defined]
    assert "the table is not as its refresh left it" in house.changed("named")["sales.named the complete table"]
    assert house.workspace.ledger.list_refreshes(table)[0].token == "named-2"


def test_versions_that_a_rollback_undid_are_not_named(house: House) -> None:
    house.write(0, "late")
    house.refresh("days")  # version 2 of both days is in the history, and is undone
    days = TableIdentifier("lake", "sales", "days")
    rollback(house.workspace, RollbackRequest(days, 1, "back", "me"))
    unknown = house.why("days", name_of(0))
    assert [(one.token, one.why) for one in unknown] == [(None, "the refresh that made it is not known, as after a rollback")]
    assert house.told("days", name_of(1))[0] == (0, "sales.days", f"ds={name_of(1)}", "days-1")
    house.refresh("named")
    assert [one for one in house.told("named", name_of(0)) if one[0] == 1] == [
        (1, "sales.days", f"ds={name_of(0)}", "days-1"),
        (1, "raw.names", "the complete table", ""),
    ]


def test_hidden_tables_are_left_out(house: House) -> None:
    definitions = house.definitions
    names = {name: TableIdentifier("lake", "sales", name) for name in ("months", "days")}
    found = origins(house.workspace, definitions, definitions.tables[names["months"]], None, {names["days"]})
    assert [(one.depth, one.table) for one in found] == [(0, "lake.sales.months"), (1, "lake.sales.named"), (2, "lake.raw.names")]


def test_a_table_without_a_version(house: House) -> None:
    register(house.workspace, replace(house.definitions.tables[DAYS], identifier=TableIdentifier("lake", "sales", "more")))
    definitions = house.definitions
    table = replace(definitions.tables[DAYS], identifier=TableIdentifier("lake", "sales", "more"))
    with pytest.raises(UpstreamError, match="has no version yet; refresh it first"):
        origins(house.workspace, definitions, table)
