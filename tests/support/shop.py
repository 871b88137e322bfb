"""A table over daily facts in sources of any format, whose merges and replacements DuckDB computes instead of Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.types import LongType, StringType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support import duckdb_job
from tests.support.changing_sources import ChangingSource, Columns, IcebergSource, as_arrow
from tests.support.clock import Clock

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
  partitioned_by: [{keys}]
  refresh_mode: {mode}
  query: {query}
"""


@dataclass
class Shop:
    """A table over facts, of which the most rows are in the partition of one day."""

    workspace: Workspace
    clock: Clock
    folder: Path
    kind: type[ChangingSource]
    query: str = QUERY
    source_key: str | None = "ds"
    keys: str = "ds"
    """The partition keys of the table."""
    mode: str = "incremental"
    sources: dict[str, ChangingSource] = field(default_factory=dict)
    plans: list[RefreshPlan] = field(default_factory=list)
    before_reading: Callable[[], None] | None = None
    """A change between the plan of a refresh and its job."""

    def append(self, ds: str, rows: int, note: int = 0, *, source: str = "facts") -> None:
        chance = random.Random(rows)
        facts = [(ds, str(number), number, chance.randbytes(note).hex()) for number in range(rows)]
        self.sources[source].append(as_arrow(facts, COLUMNS))

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        definitions = [source.definition for source in self.sources.values()]
        named = {"sources": ", ".join(definitions), "query": json.dumps(self.query), "mode": self.mode, "keys": self.keys}
        path.write_text(YAML.format(**named, format="iceberg" if self.kind is IcebergSource else "delta"))
        loaded = load_definitions(path)
        self.clock.time += timedelta(days=1)
        token = str(uuid4())
        return RefreshRequest(loaded.tables[TABLE], loaded.sources, self.clock.time, token, token, is_scheduled=True)

    def refresh(self, **asked: Any) -> Refresh:
        """Refresh, by the schedule as the live plan foretells; return the record of the history."""
        request = replace(self.request(), **asked)
        foretold = self.foretold(request) if self.plans and request.is_scheduled else None
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
        if self.before_reading is not None:
            self.before_reading()
        duckdb_job.run(plan)

    def check(self) -> None:
        expected = duckdb_job.query(
            {name: source.rows() for name, source in self.sources.items()}, self.query.replace("raw.", "")
        )
        assert sorted(tuple(row.items()) for row in self.rows()) == sorted(tuple(row.items()) for row in expected.to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""
        return self.workspace.existing_table(TABLE).sample(1_000_000)
