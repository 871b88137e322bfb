"""The age of sources: refreshes warn or fail if a source did not change for too long, whatever its format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.types import IcebergType, LongType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import StaleSourceError
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.delays import delay_of
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.planning import bind_sources
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changing_sources import DeltaSource, IcebergSource, as_arrow
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers, write_scattered

TABLE = TableIdentifier("lake", "sales", "t")
HOUR = timedelta(hours=1)
COLUMNS: dict[str, IcebergType] = {"x": LongType()}
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {source}
dynamic_tables:
- {{name: t, freshness: 1 hour, query: SELECT x FROM raw.s{more}}}
"""


class Lake:
    """A table over a source, whose clock the tests set."""

    def __init__(self, workspace: Workspace, clock: Clock, folder: Path) -> None:
        self.workspace, self.clock, self.folder = workspace, clock, folder
        self.source, self.more, self.tokens = "", "", 0
        self.clock.time = datetime.now(UTC) - HOUR  # a file that has just changed may change again unnoticed

    def write(self, text: str = "1\n") -> None:
        """Write a file of the folder that is the source, as of the time of the clock."""
        self.source = f"{{name: raw.s, format: csv, path: {self.folder}/s, schema: x bigint, max_age: {{age}}}}"
        (self.folder / "s").mkdir(exist_ok=True)
        file = self.folder / "s" / f"{len(text)}.csv"
        file.write_text(text)
        os.utime(file, (self.clock.time.timestamp(),) * 2)

    def definitions(self, age: str) -> Definitions:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(source=self.source.replace("{age}", age), more=self.more))
        return load_definitions(path)

    def refresh(self, age: str, *, is_scheduled: bool = True) -> Version | Skipped:
        definitions = self.definitions(age)
        self.tokens += 1
        token = f"t{self.tokens}"
        request = RefreshRequest(definitions.tables[TABLE], definitions.sources, self.clock.time, token, token)
        return run(self.workspace, replace(request, is_scheduled=is_scheduled), write_numbers)

    def plan(self, age: str) -> LivePlan:
        definitions = self.definitions(age)
        table = definitions.tables[TABLE]
        return live_plan(self.workspace, preview(table, self.clock.time, definitions.sources), table, definitions)


@pytest.fixture
def lake(workspace: Workspace, clock: Clock, tmp_path: Path) -> Lake:
    return Lake(workspace, clock, tmp_path)


def test_a_refresh_fails_while_a_source_is_too_old(lake: Lake) -> None:
    lake.write()
    lake.clock.time += HOUR
    assert isinstance(lake.refresh("2 hours"), Version)
    lake.clock.time += 2 * HOUR
    with pytest.raises(StaleSourceError, match=r"UPSTREAM_LATE: lake\.raw\.s changed last at .*; its max_age is 2 hours"):
        lake.refresh("2 hours")
    failed = lake.workspace.ledger.list_refreshes(TABLE)[0]
    assert (failed.state, failed.error[:25]) == (RefreshState.FAILED, "UPSTREAM_LATE: lake.raw.s")
    planned = lake.plan("2 hours")
    assert (planned.action, planned.reason) == (None, failed.error)
    delay = delay_of(lake.workspace, lake.definitions("2 hours"), TABLE)
    assert (delay.stopped, delay.why) == (str(TABLE), failed.error)
    assert isinstance(lake.refresh("2 hours", is_scheduled=False), Version), "a user insists"
    lake.write("22\n")
    assert isinstance(lake.refresh("2 hours"), Version)


@pytest.mark.sampled
@pytest.mark.parametrize("more", ["", ", refresh_mode: incremental", ", skip_unchanged: false"])
def test_a_warning_is_in_the_reason(lake: Lake, more: str, caplog: pytest.LogCaptureFixture) -> None:
    lake.more = more
    lake.write()
    age = "{warn: 1 hour, fail: 1 day}"
    assert isinstance(lake.refresh(age), Version)
    lake.clock.time += 2 * HOUR
    assert "its max_age is 1 hour" in lake.plan(age).reason
    outcome = lake.refresh(age)
    assert isinstance(outcome, Version if "skip" in more else Skipped)
    last = lake.workspace.ledger.list_refreshes(TABLE)[0]
    assert "lake.raw.s changed last at" in last.reason
    assert "lake.sales.t: lake.raw.s changed last at" in caplog.text
    assert isinstance(lake.refresh("{warn: 90 minutes}"), Version if "skip" in more else Skipped), "it changes no rows"
    lake.clock.time += 30 * HOUR
    with pytest.raises(StaleSourceError, match="its max_age is 1 day"):
        lake.refresh(age)


def test_a_time_in_the_future_says_nothing(lake: Lake) -> None:
    lake.clock.time += timedelta(days=2)
    lake.write()
    lake.clock.time -= timedelta(days=2)
    with pytest.raises(StaleSourceError, match=r"changed in the future, at .*, by a clock that is wrong"):
        lake.refresh("1 hour")


@pytest.mark.sampled
@pytest.mark.parametrize("make", [IcebergSource, DeltaSource])
def test_tables_of_other_engines_know_when_they_changed(lake: Lake, make: Callable[..., IcebergSource | DeltaSource]) -> None:
    source = make(lake.workspace, lake.folder, "s", COLUMNS, None)
    lake.source = source.definition.replace("}", ", max_age: {age}}")
    source.append(as_arrow([(1,)], COLUMNS))
    lake.clock.time = datetime.now(UTC) + timedelta(minutes=30)
    assert isinstance(lake.refresh("1 hour"), Version)
    assert isinstance(lake.refresh("1 hour"), Skipped)
    lake.clock.time += HOUR
    with pytest.raises(StaleSourceError, match="its max_age is 1 hour"):
        lake.refresh("1 hour")


@pytest.mark.large
def test_the_compacted_files_of_an_iceberg_table_are_as_old_as_its_rows(lake: Lake) -> None:
    lake.source = "{name: raw.s, format: iceberg}"
    definitions = lake.definitions("")
    table = replace(definitions.tables[TABLE], expanded_query="SELECT 1 AS x", upstream=())
    request = RefreshRequest(table, {}, lake.clock.time, "t", "t")
    made = run(lake.workspace, request, lambda plan: write_scattered(plan, range(DEFAULT_LIMITS.many + 1)))
    assert isinstance(made, Version)
    reader = replace(table, upstream=(TABLE,))
    (before,) = bind_sources(lake.workspace, reader, {})
    assert compact(lake.workspace, TABLE).made == 1
    (after,) = bind_sources(lake.workspace, reader, {})
    assert before.state is not None
    assert after.state is not None
    assert before.version != after.version
    assert before.state.changed_at == after.state.changed_at == made.committed_at


@pytest.mark.large
def test_the_optimized_files_of_a_delta_table_are_as_old_as_its_rows(lake: Lake) -> None:
    source = DeltaSource(lake.workspace, lake.folder, "s", COLUMNS, None)
    lake.source = source.definition.replace("}", ", max_age: {age}}")
    for number in range(2):
        source.append(as_arrow([(number,)], COLUMNS))
    log = source.folder / "_delta_log"
    entry = max(log.glob("*.json"))
    then = lake.clock.time - 2 * HOUR
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = round(then.timestamp() * 1000)
    entry.write_text("\n".join(map(json.dumps, lines)))
    DeltaTable(source.folder).optimize.compact()
    assert len(list(log.glob("*.json"))) > 2
    with pytest.raises(StaleSourceError, match=then.isoformat(timespec="seconds")[:16]):
        lake.refresh("1 hour")
    assert isinstance(lake.refresh("3 hours"), Version)
    newest = max(log.glob("*.json"))
    newest.write_text("\n".join(line for line in newest.read_text().splitlines() if "commitInfo" not in line))
    entry.write_text("\n".join(json.dumps(line) for line in lines if "commitInfo" not in line))
    with pytest.raises(StaleSourceError, match="has no change whose time is known"):
        lake.refresh("3 hours")
