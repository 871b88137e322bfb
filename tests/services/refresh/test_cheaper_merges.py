"""Partitions are replaced while that reads fewer bytes than a merge of their new rows, which DuckDB computes instead of Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.types import LongType, StringType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support import duckdb_job
from tests.support.changing_sources import Columns, DeltaSource, IcebergSource, as_arrow
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH

TABLE = TableIdentifier("lake", "sales", "t")
COLUMNS: Columns = {"ds": StringType(), "name": StringType(), "n": LongType(), "note": StringType()}
KEYS = ", ".join(["ds", *(f"md5(concat(name, '{number}'))" for number in range(6))])
QUERY = f"SELECT {KEYS.replace('))', ')) AS k{}').format(*range(6))}, sum(n) AS n FROM raw.facts GROUP BY {KEYS}"
"""Groups of single rows, each several times as long as its row."""
YAML = """
defaults: {{catalog: lake, database: sales, format: {format}}}
sources: [{sources}]
dynamic_tables:
- name: t
  freshness: 1 day
  partitioned_by: [ds]
  refresh_mode: {mode}
  query: "{query}"
"""


@dataclass
class Shop:
    """A table over facts, of which the most rows are in the partition of one day."""

    workspace: Workspace
    clock: Clock
    folder: Path
    kind: type[IcebergSource | DeltaSource]
    query: str = QUERY
    source_key: str | None = "ds"
    mode: str = "incremental"
    sources: dict[str, IcebergSource | DeltaSource] = field(default_factory=dict)
    plans: list[RefreshPlan] = field(default_factory=list)

    def append(self, ds: str, rows: int, note: int = 0, *, source: str = "facts") -> None:
        chance = random.Random(rows)
        facts = [(ds, str(number), number, chance.randbytes(note).hex()) for number in range(rows)]
        self.sources[source].append(as_arrow(facts, COLUMNS))

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        definitions = [source.definition for source in self.sources.values()]
        named = {"sources": ", ".join(definitions), "query": self.query, "mode": self.mode}
        path.write_text(YAML.format(**named, format="iceberg" if self.kind is IcebergSource else "delta"))
        loaded = load_definitions(path)
        self.clock.time += timedelta(days=1)
        token = str(uuid4())
        return RefreshRequest(loaded.tables[TABLE], loaded.sources, self.clock.time, token, token, is_scheduled=True)

    def refresh(self) -> Refresh:
        """Refresh as the live plan foretells; return the record of the history."""
        request = self.request()
        foretold = self.foretold(request) if self.plans else None
        assert isinstance(run(self.workspace, request, self.submit), Version)
        done = self.workspace.ledger.list_refreshes(TABLE)[0]
        if foretold is not None:
            assert (foretold.action, foretold.reason_code, foretold.reason) == (done.action, done.reason_code, done.reason)
        return done

    def foretold(self, request: RefreshRequest) -> LivePlan:
        plan = preview(request.table, request.schedule_time, request.sources)
        return live_plan(self.workspace, plan, request.table, load_definitions(self.folder / "sales.yaml"))

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        duckdb_job.run(plan)

    def check(self) -> None:
        expected = duckdb_job.query(
            {name: source.rows() for name, source in self.sources.items()}, self.query.replace("raw.", "")
        )
        made = self.workspace.existing_table(TABLE).sample(1_000_000)
        assert sorted(tuple(row.items()) for row in made) == sorted(tuple(row.items()) for row in expected.to_pylist())


Open = Callable[..., Shop]


@pytest.fixture(params=[IcebergSource, DeltaSource])
def opened(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Open:
    def begun(**others: Any) -> Shop:
        clock.time = MARCH
        shop = Shop(workspace, clock, tmp_path, request.param, **others)
        for name in ("facts", "other") if "raw.other" in shop.query else ("facts",):
            shop.sources[name] = request.param(workspace, tmp_path, name, COLUMNS, shop.source_key)
            shop.append("2024-02-11", 10, source=name)
        shop.append("2024-02-10", 8_000)
        shop.refresh()
        return shop

    return begun


def size(shop: Shop, source: str) -> float:
    """The size of the data files of a source, or of the table after its first refresh, in the partition of the large day."""
    files = (file for file in shop.folder.rglob("*.parquet") if "=2024-02-10/" in str(file))
    of_table = shop.plans[0].token
    return sum(file.stat().st_size for file in files if (of_table in str(file)) is (source == "t")) / 2**20


def test_partitions_that_are_larger_than_their_sources_are_replaced(opened: Open) -> None:
    shop = opened()
    table, before = size(shop, "t"), size(shop, "facts")
    shop.append("2024-02-10", 5)
    after = size(shop, "facts")
    done = shop.refresh()
    assert (done.action, done.reason_code) == (RefreshAction.PARTITIONS, ReasonCode.MERGE_COSTS_MORE)
    read = f"{table + after - before:.1f} MiB instead of {after:.1f} MiB"
    assert done.reason.endswith(f"; all rows are computed, because a merge of the new ones would read {read}"), done.reason
    shop.append("2024-02-11", 5)
    assert shop.refresh().action is RefreshAction.MERGE, "the other partition is small"
    shop.append("2024-02-10", 8_000, note=100)
    assert shop.refresh().reason_code is ReasonCode.MERGE_COSTS_MORE
    shop.append("2024-02-10", 5)
    done = shop.refresh()
    assert (done.action, done.reason_code) == (RefreshAction.MERGE, ReasonCode.SOURCES_CHANGED)
    shop.check()


@pytest.mark.large
@pytest.mark.parametrize(
    ("mode", "action", "code"),
    [
        ("incremental", RefreshAction.FULL, ReasonCode.MERGE_COSTS_MORE),
        ("incremental_strict", RefreshAction.MERGE, ReasonCode.SOURCES_CHANGED),
    ],
)
def test_strict_tables_do_not_replace_all_rows_for_it(opened: Open, mode: str, action: RefreshAction, code: ReasonCode) -> None:
    shop = opened(source_key=None, mode=mode)
    shop.append("2024-02-10", 5)
    done = shop.refresh()
    assert (done.action, done.reason_code) == (action, code)
    shop.check()


@pytest.mark.large
def test_a_merge_saves_the_other_sources_of_a_union(opened: Open) -> None:
    union = "(SELECT ds, name, n FROM raw.facts UNION ALL SELECT ds, name, n FROM raw.other)"
    shop = opened(query=QUERY.replace("raw.facts", union))
    shop.append("2024-02-10", 5)
    assert shop.refresh().reason_code is ReasonCode.MERGE_COSTS_MORE
    shop.append("2024-02-10", 8_000, note=100, source="other")
    shop.refresh()
    shop.append("2024-02-10", 5)
    assert shop.refresh().action is RefreshAction.MERGE
    shop.check()
