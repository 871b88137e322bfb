"""Random sequences of changes and refreshes of a random query, after each of which the table must equal its query.

One :class:`Sequence` has one table over two facts by day and a dimension, in any formats that are refreshed incrementally. Its
jobs and the expected rows come from DuckDB, so a sequence takes a few seconds. ``python -m tests.support.sequences FIRST NUMBER``
runs many of them and prints their :class:`Score`.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import DecimalType, IntegerType, LongType, StringType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import DefinitionError, JobFailedError, UnsupportedError
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support import duckdb_job
from tests.support.changing_sources import ChangingSource, Columns, DeltaSource, FolderSource, IcebergSource, as_arrow
from tests.support.clock import Clock
from tests.support.faults.steps import watch_steps
from tests.support.faults.victims import KILL, start

TABLE = TableIdentifier("lake", "sales", "t")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
FROZEN_BEFORE = "2024-02-22"
DAYS = [f"2024-02-{day}" for day in range(20, 27)] + ["2024-01-30", "2024-01-31"]
FACTS: Columns = {"id": IntegerType(), "n": DecimalType(12, 2), "name": StringType(), "at": LongType(), "ds": StringType()}
DIM: Columns = {"id": IntegerType(), "name": StringType(), "factor": LongType(), "kind": StringType()}
COLUMNS = {"facts": FACTS, "other": FACTS, "dim": DIM}
YAML = """
defaults: {{catalog: lake, database: sales, format: {format}}}
sources:
{sources}
dynamic_tables:
- name: t
  freshness: 1 day
  partitioned_by: [{keys}]
  query: {query}
  {settings}
"""
STEPS = ("opened", "planned", "written", "result", "commit", "swap", "swapped", "landed", "published", "completed")
"""Where processes are killed."""

Rows = dict[str, Counter[tuple[Any, ...]]]
"""The rows of a table by partition."""


@dataclass(frozen=True)
class Query:
    """A query, and the partition keys of its table."""

    text: str
    keys: tuple[str, ...]


@dataclass
class Score:
    """What refreshes did, and how many partitions they replaced for each one whose rows differed from those of the query."""

    sequences: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    happenings: Counter[str] = field(default_factory=Counter)
    ratios: list[float] = field(default_factory=list)
    needless: int = 0
    """Refreshes that changed no row."""

    def __str__(self) -> str:
        ratio = f"{median(self.ratios):.2f} (at least {min(self.ratios):.2f})" if self.ratios else "-"
        return (
            f"{self.sequences} sequences: {dict(self.actions)}; dirty over needed: median {ratio} of {len(self.ratios)}, "
            f"{self.needless} refreshes without effect; {dict(self.happenings.most_common())}"
        )


def random_query(chance: Random) -> Query:
    """Return a query over facts, with some of: a condition, a union, joins, groups, windows."""
    if chance.random() < 0.2:
        return Query(chance.choice(_WHOLE), ("ds",))
    condition = _condition(chance) if chance.random() < 0.5 else ""
    where = f" WHERE {condition}" if condition else ""
    source = chance.choice(["raw.facts", "raw.facts", "raw.facts", "union", "cte"])
    union = "SELECT id, n, name, at, ds FROM raw.facts UNION ALL SELECT id, -n AS n, name, at, ds FROM raw.other"
    before = "WITH w AS (SELECT id, n, name, at, ds FROM raw.facts WHERE id IS NOT NULL) " if source == "cte" else ""
    facts = {"union": f"({union})", "cte": "w"}.get(source, source)
    join, label = chance.choice([*[("", "f.name")] * 8, *_JOINS])
    read = f"FROM {facts} f{join}{where}"
    top, keys = chance.choice(_TOPS)
    return Query(before + top.format(read=read, label=label, where=where), keys)


_JOINS = [
    (" JOIN raw.dim d ON f.id = d.id", "d.name"),
    (" JOIN raw.dim d ON f.id = d.id", "concat(d.name, f.name)"),
    (" LEFT JOIN raw.dim d ON d.id = f.id", "d.kind"),
    (" LEFT JOIN raw.dim d ON d.name = f.name AND d.factor > 1", "d.kind"),
    (" LEFT SEMI JOIN raw.dim d ON f.id = d.id AND d.factor > 2", "f.name"),
    (" LEFT ANTI JOIN raw.dim d ON f.id = d.id", "f.name"),
    (" JOIN (SELECT id, max(name) AS name FROM raw.dim GROUP BY id) d ON f.id = d.id", "d.name"),
    (" LEFT JOIN raw.other d ON f.ds = d.ds AND f.id = d.id", "d.name"),
    (" LEFT ANTI JOIN raw.other d ON f.ds = d.ds AND f.id = d.id", "f.name"),
    (" JOIN (SELECT ds, max(name) AS name FROM raw.other GROUP BY ds) d ON f.ds = d.ds", "d.name"),
    (" CROSS JOIN (SELECT max(name) AS name FROM raw.dim) d", "d.name"),
    (" LEFT JOIN raw.other d ON d.id = f.id AND d.ds BETWEEN '2024-02-20' AND '2024-02-22'", "d.name"),
]
"""Joins of the facts, and a column of their result."""

_TOPS = [
    ("SELECT f.ds, f.id, f.n * 2 AS n, {label} AS label {read}", ("ds",)),
    ("SELECT f.id, f.n, f.ds, {label} AS label {read}", ()),
    ("SELECT DISTINCT f.ds, {label} AS label {read}", ("ds",)),
    (
        (
            "SELECT f.ds, f.id, count(*) AS c, sum(f.n) AS s, min(f.n) AS low, max(f.at) AS high, sum(f.id) AS ids {read} "
            "GROUP BY f.ds, f.id"
        ),
        ("ds",),
    ),
    ("SELECT {label} AS label, sum(f.n) FILTER (WHERE f.n > 0) AS s, count(f.name) AS c {read} GROUP BY {label}", ()),
    ("SELECT sum(f.n) AS s, count(*) AS c, max({label}) AS label {read}", ()),
    ("SELECT substr(f.ds, 1, 7) AS month, count(*) AS c, max(f.n) AS n {read} GROUP BY substr(f.ds, 1, 7)", ("month",)),
    (
        (
            "SELECT date_format(to_date(f.ds), 'yyyy-MM') AS month, {label} AS label, min(f.at) AS low {read} "
            "GROUP BY date_format(to_date(f.ds), 'yyyy-MM'), {label}"
        ),
        ("month",),
    ),
    ("SELECT concat(substr(f.ds, 1, 4), substr(f.ds, 6, 2)) AS month, f.n, {label} AS label {read}", ("month",)),
    ("SELECT month(to_date(f.ds)) AS month, f.ds, f.n {read}", ("month",)),
    ("SELECT cast(cast(date_add(f.ds, 1) AS date) AS string) AS ds, f.n, {label} AS label {read}", ("ds",)),
    ("SELECT f.ds, count(DISTINCT {label}) AS c, sum(f.n) AS s {read} GROUP BY f.ds HAVING count(*) > 1", ("ds",)),
    (
        (
            "SELECT f.ds, coalesce(nullif({label}, ''), 'none') AS label, max(f.n) AS n {read} "
            "GROUP BY f.ds, coalesce(nullif({label}, ''), 'none')"
        ),
        ("ds", "label"),
    ),
    (
        (
            "SELECT id, at, n, label FROM (SELECT f.id, f.at, f.n, {label} AS label, row_number() OVER (PARTITION BY f.id "
            "ORDER BY f.at DESC, f.n, {label}) AS r {read}) WHERE r = 1"
        ),
        (),
    ),
    (
        (
            "SELECT ds, id, at FROM (SELECT f.ds, f.id, f.at, row_number() OVER (PARTITION BY f.ds, f.id "
            "ORDER BY f.at DESC) AS r {read}) WHERE r = 1"
        ),
        ("ds",),
    ),
    ("SELECT f.ds, f.n, count(*) OVER (PARTITION BY f.ds) AS c, {label} AS label {read}", ("ds",)),
    ("SELECT f.ds, f.n, max(f.at) OVER (PARTITION BY f.id) AS latest {read}", ("ds",)),
    ("SELECT f.ds, f.n, (SELECT count(*) FROM raw.other) AS c {read}", ("ds",)),
    ("SELECT f.ds, f.n, f.id {read} UNION ALL SELECT ds, -n AS n, id FROM raw.other", ("ds",)),
    ("SELECT f.ds, f.id {read} EXCEPT SELECT ds, id FROM raw.other", ("ds",)),
    (
        "SELECT coalesce(a.ds, b.ds) AS ds, a.n, b.n AS m FROM (SELECT f.ds, f.n {read}) a FULL JOIN raw.other b ON a.ds = b.ds",
        ("ds",),
    ),
]

_WHOLE = [
    "SELECT f.ds, f.n, d.factor FROM raw.dim d JOIN raw.facts f ON f.id = d.id",
    "SELECT f.ds, f.n, d.factor FROM raw.facts f, raw.dim d WHERE d.factor > 2 AND f.id = d.id",
    "SELECT f.ds, f.n, coalesce(d.factor, 3) AS factor FROM raw.facts f LEFT JOIN raw.dim d USING (id)",
    "SELECT f.ds, f.n, d.factor FROM raw.facts f LEFT JOIN raw.dim d ON f.name = d.name WHERE d.id = f.id",
    "SELECT f.ds, d.factor, e.kind FROM raw.facts f JOIN raw.dim d ON f.id = d.id LEFT JOIN raw.dim e ON e.name = f.name",
    (
        "WITH d AS (SELECT id, sum(factor) AS factor FROM raw.dim WHERE name > 'a' GROUP BY id), f AS (SELECT * FROM raw.facts "
        "WHERE n > -1) SELECT f.ds, f.n, d.factor FROM f JOIN d ON f.id = d.id"
    ),
    (
        "SELECT f.ds, f.n, d.factor FROM raw.facts f JOIN (SELECT id, factor, row_number() OVER (PARTITION BY id ORDER BY factor "
        "DESC, name) AS r FROM raw.dim) d ON f.id = d.id WHERE d.r = 1"
    ),
    (
        "SELECT f.ds, f.n, d.factor FROM raw.facts f JOIN raw.dim d ON f.id = d.id UNION ALL SELECT f.ds, f.n, 0 AS factor "
        "FROM raw.facts f LEFT JOIN raw.dim d ON f.name = d.name WHERE d.id IS NULL"
    ),
    (
        "SELECT j.ds, j.factor, g.n FROM (SELECT f.ds, d.factor FROM raw.facts f JOIN raw.dim d ON f.id = d.id) j "
        "JOIN raw.facts g ON g.ds = j.ds"
    ),
    (
        "SELECT f.ds, f.n, o.n AS m FROM raw.facts f JOIN raw.other o "
        "ON to_date(o.ds) BETWEEN cast(date_sub(f.ds, 2) AS date) AND to_date(f.ds)"
    ),
    (
        "SELECT f.ds, count(o.id) AS c, sum(o.n) AS s FROM raw.facts f LEFT JOIN raw.other o "
        "ON datediff(f.ds, o.ds) < 3 AND o.ds <= f.ds GROUP BY f.ds"
    ),
    (
        "SELECT f.ds, f.id, o.n AS m FROM raw.facts f LEFT JOIN raw.other o "
        "ON to_date(o.ds) = cast(date_sub(f.ds, 1) AS date) AND o.id = f.id"
    ),
    (
        "SELECT f.ds, f.id FROM raw.facts f LEFT SEMI JOIN raw.other o "
        "ON to_date(o.ds) >= cast(date_sub(f.ds, 3) AS date) AND to_date(o.ds) < cast(date_add(f.ds, 1) AS date)"
    ),
]
"""Queries of facts, and of a dimension or the facts of other days."""

_CONDITIONS = [
    *("f.ds > '2024-02-21'", "f.ds <> '2024-02-22'", "f.ds IN ('2024-02-21', '2024-02-24')", "f.ds < '2024-02'"),
    *("f.id > 2", "f.id = 1", "f.id <> 1", "f.id IS NULL", "f.id IS NOT NULL", "f.id NOT IN (1, 2)", "f.id BETWEEN 2 AND 3"),
    *("f.n > 1.5", "f.n IS NULL", "f.name >= 'b'", "f.name = ''", "f.name IS NULL", "f.at > 10", "f.at BETWEEN -20 AND 5"),
]


def _condition(chance: Random) -> str:
    one, two, three = chance.sample(_CONDITIONS, 3)
    return chance.choice(
        [one, one, f"{one} AND {two}", f"({one} OR {two})", f"NOT ({one} OR {two})", f"({one} AND {two}) OR {three}"]
    )


_SOURCES: list[type[ChangingSource]] = [IcebergSource, IcebergSource, DeltaSource, DeltaSource, FolderSource]

_SETTINGS = [
    *[("incremental", "")] * 4,
    ("incremental", "max_partitions_per_commit: 2"),
    ("frozen", f"frozen: \"ds < '{FROZEN_BEFORE}'\""),
    ("full", "late: refresh"),
]


class Sequence:
    """A table and its sources, and what happens to them."""

    def __init__(self, seed: int, folder: Path, empty_state: Path, score: Score) -> None:
        self.chance = chance = Random(seed)
        self.folder, self.score, self.clock = folder, score, Clock()
        self.clock.time = MARCH
        self._settings = WorkspaceSettings(
            f"sqlite:///{shutil.copy(empty_state, folder / 'state.db')}", f"file://{folder}/warehouse"
        )
        self.workspace = open_workspace(self._settings, self.clock)
        self.query = random_query(chance)
        kind, setting = chance.choice(_SETTINGS)
        by_day = "ds" in self.query.keys
        self.kind = kind if by_day or kind == "incremental" else "incremental"
        settings = [setting if by_day else ""]
        if "raw.dim" in self.query.text:
            settings.append(f"on_change: {{raw.dim: {chance.choice(['refresh', 'affected', 'affected'])}}}")
        settings.append("refresh_mode: full" if self.kind == "full" else "refresh_mode: incremental")
        if by_day and (self.kind == "full" or chance.random() < 0.3):
            settings.append("options: {partition.fields.ds.date-formatter: yyyy-MM-dd}")
        self.settings = "\n  ".join(filter(None, settings))
        self.format = chance.choice(["iceberg", "delta"])
        self.writes = 0
        self._read: tuple[str, Definitions] | None = None
        self.before_reading: Callable[[], None] | None = None
        self.meanwhile: Callable[[], None] | None = None
        self.fails = False
        self.plans: list[RefreshPlan] = []
        self.steps: list[str] = []
        self.sources: dict[str, ChangingSource] = {}
        for name, columns in COLUMNS.items():
            source: type[ChangingSource] = chance.choice(_SOURCES)
            self.sources[name] = source(self.workspace, folder, name, columns, None if name == "dim" else "ds")
            for day in chance.sample(DAYS, 5) if name != "dim" else [""]:
                self.sources[name].append(self._rows(name, day, 4))
        if "max_partitions_per_commit" in self.settings:
            try:
                self._definitions()
            except DefinitionError:  # the partitions of the query cannot be listed
                self.settings = self.settings.removeprefix(f"{setting}\n  ")

    def close(self) -> None:
        """Close the workspace."""
        self.workspace.close()

    def _rows(self, name: str, day: str, most: int) -> pa.Table:
        chance = self.chance
        rows: list[tuple[Any, ...]] = []
        # Rows of a file resemble each other, so that statistics exclude some files.
        ids: list[int | None] = chance.choice([[None, 1, 2, 3], [1], [2, 3], [None]])
        names: list[str | None] = chance.choice([[None, "", "a", "b"], ["a"], ["b", "c"]])
        for _ in range(chance.randrange(1, most)):
            self.writes += 1
            if name == "dim":
                rows.append((chance.choice(ids), chance.choice(names), chance.randrange(5), chance.choice([None, "x", "y"])))
            else:
                number = chance.choice([None, Decimal(chance.randrange(-500, 500)) / 100])
                rows.append((chance.choice(ids), number, chance.choice(names), chance.choice([1, -1]) * self.writes, day))
        return as_arrow(rows, COLUMNS[name])

    # Changes of the sources

    def append(self, name: str) -> None:
        """Add rows of one day or several."""
        for day in self.chance.sample(DAYS, self.chance.choice([1, 1, 2])):
            self.sources[name].append(self._rows(name, day, 4))

    def rewrite(self, name: str) -> None:
        """Replace the rows of a day, or those of the dimension."""
        source, day = self.sources[name], self.chance.choice(DAYS)
        if name == "dim":
            source.overwrite(self._rows(name, day, 6))
        else:
            source.replace(self._rows(name, day, 4), day)

    def update(self, name: str) -> None:
        """Change a value in some rows."""
        source = self.sources[name]
        rows = source.rows().to_pylist()
        for row in rows:
            if self.chance.random() < 0.2:
                row["name"] = self.chance.choice([None, "a", "z"])
        columns = COLUMNS[name]
        source.overwrite(as_arrow([tuple(row[each] for each in columns) for row in rows], columns))

    def delete(self, name: str) -> None:
        """Delete the rows of an id, a day, or all."""
        source, chance = self.sources[name], self.chance
        day, number = chance.choice(DAYS), chance.randrange(1, 4)
        condition = chance.choice(
            [f"id = {number}", f"id = {number}", "id > -100", f"ds = '{day}'" if name != "dim" else "id = 1"]
        )
        if isinstance(source, FolderSource):
            kept = duckdb_job.query({"t": source.rows()}, f"SELECT * FROM t WHERE NOT coalesce({condition}, false)")
            source.overwrite(kept)
        elif source.rows().num_rows:
            source.delete(condition)

    def recreate(self, name: str) -> None:
        """Drop the source and create it again, with the same rows or others."""
        rows = self.sources[name].rows() if self.chance.random() < 0.5 else self._rows(name, self.chance.choice(DAYS), 4)
        self.sources[name].recreate(rows.select(list(COLUMNS[name])))

    def compact(self, name: str) -> None:
        """Write the same rows to other files."""
        self.sources[name].compact()

    def restore(self, name: str) -> None:
        """Go back to an earlier version."""
        source = self.sources[name]
        if isinstance(source, FolderSource):
            self.append(name)
        elif not isinstance(source, DeltaSource) or DeltaTable(source.folder).version() > 3:
            source.restore(self.chance.randrange(1, 3))

    def forget(self, name: str) -> None:
        """Change a source, and expire its earlier versions."""
        source = self.sources[name]
        self.append(name)
        if not isinstance(source, FolderSource):
            source.forget()

    def add_column(self, name: str) -> None:
        """Add a column that the query does not read."""
        source = self.sources[name]
        if "more" not in source.rows().column_names:
            source.add_column()

    def change_file(self, name: str) -> None:
        """Replace a file by another one of the same name, remove it, or add one with an earlier time, as copies have."""
        source = self.sources[name]
        if not isinstance(source, FolderSource) or not source.files:
            self.append(name)
            return
        file, kind = self.chance.choice(source.files), self.chance.choice(["write", "remove", "copy"])
        self.steps.append(f"{kind} {file.name}")
        if kind == "write":
            source.write_again(file)
        elif kind == "remove":
            file.unlink()
        else:
            source.append(self._rows(name, self.chance.choice(DAYS), 4), hours=3)

    def change(self) -> None:
        """Change a source."""
        read = [name for name in ("facts", "other", "dim") if f"raw.{name}" in self.query.text]
        name = self.chance.choice(["facts", *read, *read])
        kind = self.chance.choice(_CHANGES)
        self.score.happenings[kind] += 1
        self.steps.append(f"{kind} {name}")
        getattr(self, kind)(name)

    # What happens to the table

    def fail(self) -> None:
        """Let a complete refresh fail."""
        self.fails = True
        with suppress(JobFailedError):
            self.refresh(full_refresh=True, replaces_frozen=True, is_scheduled=False)
        self.fails = False

    def refresh_by_hand(self) -> None:
        """Refresh one partition."""
        if self.query.keys == ("ds",):
            self.refresh(is_scheduled=False, replaces_frozen=True, partitions=PartitionSet.of([{"ds": self.chance.choice(DAYS)}]))

    def backfill(self) -> None:
        """Refresh for an earlier time."""
        earlier = self.clock.time - timedelta(days=self.chance.randrange(2, 10))
        self.refresh(is_scheduled=False, schedule_time=earlier)

    def meddle(self) -> None:
        """Let another engine add rows of the table again, or delete some."""
        if self.format == "delta":
            location = self.workspace.table(TABLE, "delta").folder()
            assert location is not None
            if self.chance.random() < 0.5:
                write_deltalake(location, DeltaTable(location).to_pyarrow_table().slice(0, 2), mode="append")
            else:
                DeltaTable(location).delete(f"{self._column()} IS NOT NULL")
            return
        table = self.workspace.catalog("lake").stores()[0].tables.load_table(("sales", "t"))  # type: ignore[attr-defined]
        if self.chance.random() < 0.5:
            table.append(table.scan().to_arrow().slice(0, 2))
        else:
            table.delete(f"{self._column()} IS NOT NULL")

    def _column(self) -> str:
        return str(self._results().column_names[0])

    def roll_back(self) -> None:
        """Go back to an earlier version of the table."""
        versions = [each.number for each in self.workspace.existing_table(TABLE).versions()]
        rollback(self.workspace, RollbackRequest(TABLE, self.chance.choice(versions), str(uuid4()), "me"))

    def compact_table(self) -> None:
        """Compact the files of the table."""
        compact(self.workspace, TABLE, Limits(many=2))

    def drop_table(self) -> None:
        """Drop the table without a word to the ledger."""
        self.workspace.catalog("lake").drop_table(TABLE.path)

    def change_meanwhile(self) -> None:
        """Change a source, or restore one, while a job runs."""
        name = self.chance.choice(["facts", "other", "dim"])
        self.meanwhile = self.chance.choice([self.change, lambda: self.restore(name)])
        self.refresh()

    def change_before_reading(self) -> None:
        """Add rows to a source, or replace one of its files, after a refresh was planned and before its job reads."""
        name = self.chance.choice(["facts", "other", "dim"])
        source = self.sources[name]

        def change() -> None:
            if isinstance(source, FolderSource) and source.files:
                source.write_again(self.chance.choice(source.files))
            else:
                self.append(name)

        self.before_reading = change
        self.refresh()

    def change_query(self) -> None:
        """Change the condition of the query."""
        self.query = replace(self.query, text=f"SELECT * FROM ({self.query.text}) WHERE {self._column()} IS NOT NULL")

    def die(self) -> None:
        """Kill the process of a refresh at a step, while which a source changes or not."""
        self.request()
        step = self.chance.choice(STEPS)
        self.steps.append(step)
        child = start(refresh_and_die, self._settings.database_url, self.folder, self.clock.time, str(uuid4()), step)
        child.process.join(300)
        assert child.process.exitcode in (0, -signal.SIGKILL), child.process.exitcode

    def happen(self) -> None:
        """Let something happen to the table."""
        # A full refresh follows the sources; it does not look for changes of older days of the table itself.
        kind = self.chance.choice([each for each in _HAPPENINGS if self.kind != "full" or each != "meddle"])
        self.score.happenings[kind] += 1
        self.steps.append(kind)
        with suppress(*([UnsupportedError] if self.kind == "frozen" else [])):
            getattr(self, kind)()
        self.before_reading = self.meanwhile = None

    # Refreshes

    def _definitions(self) -> Definitions:
        """Write the definitions, and read them unless they are as before."""
        sources = "\n".join(f"- {source.definition}" for source in self.sources.values())
        named = {"format": self.format, "sources": sources, "keys": ", ".join(self.query.keys), "settings": self.settings}
        text = YAML.format(**named, query=json.dumps(self.query.text))
        if self._read is None or self._read[0] != text:
            path = self.folder / "sales.yaml"
            path.write_text(text)
            self._read = text, load_definitions(path)
        return self._read[1]

    def request(self, **asked: Any) -> RefreshRequest:
        """Request the scheduled refresh of the next day."""
        self.clock.time += timedelta(days=1)
        return replace(request_of(self._definitions(), self.clock.time, str(uuid4())), **asked)

    def refresh(self, **asked: Any) -> Version | Skipped:
        """Refresh the table."""
        return run(self.workspace, self.request(**asked), self.submit)

    def submit(self, plan: RefreshPlan) -> None:
        """Run the job of a plan."""
        if self.fails:
            raise JobFailedError("no")
        self.plans.append(plan)
        if self.before_reading is not None:
            self.before_reading()
        duckdb_job.run(plan)
        if self.meanwhile is not None:
            self.meanwhile()

    def made(self) -> Rows:
        """The rows that the table has."""
        return self._by_partition(self.workspace.existing_table(TABLE).sample(100_000))

    def expected(self) -> Rows:
        """The rows that the query returns now."""
        return self._by_partition(self._results().to_pylist())

    def _results(self) -> pa.Table:
        tables = {name: source.rows() for name, source in self.sources.items()}
        return duckdb_job.query(tables, self.query.text.replace("raw.", ""))

    def _by_partition(self, rows: Iterable[dict[str, Any]]) -> Rows:
        found: Rows = defaultdict(Counter)
        for row in rows:
            spec = {key: None if row[key] is None else str(row[key]) for key in self.query.keys}
            found[describe(spec)][tuple(str(row[name]) for name in sorted(row))] += 1
        return dict(found)

    def check(self) -> None:
        """Refresh by the schedule as the plan foretells; then the table equals its query, and nothing remains to do."""
        has_version = self.workspace.existing_table(TABLE).current() is not None
        before = self.made() if has_version else {}
        expected, made = self.expected(), len(self.plans)
        if self.kind == "frozen" and has_version:
            expected = {name: rows for name, rows in expected.items() if not _is_frozen(name)}
            expected |= {name: rows for name, rows in before.items() if _is_frozen(name)}
        request = self.request()
        foretold = self._foretold(request) if self.chance.random() < 0.3 else None
        try:
            outcome = run(self.workspace, request, self.submit)
        except UnsupportedError:
            assert self.kind == "frozen"
            assert foretold is None or foretold.action is None
            self.score.actions["REFUSED"] += 1
            self.refresh(is_scheduled=False, full_refresh=True, replaces_frozen=True)
            assert self.made() == self.expected()
            return
        plans = self.plans[made:]
        self._count(outcome, plans, before, expected)
        if foretold is not None:
            assert (foretold.action is RefreshAction.NO_DATA) == isinstance(outcome, Skipped), (foretold, outcome)
        assert self.made() == expected
        again = self.refresh()
        if self.kind == "full":  # a day has begun
            assert self.made() == expected
        else:
            assert isinstance(again, Skipped), self.plans[-1].reason

    def _foretold(self, request: RefreshRequest) -> LivePlan:
        plan = preview(request.table, request.schedule_time, request.sources)
        return live_plan(self.workspace, plan, request.table, self._definitions())

    def _count(self, outcome: Version | Skipped, plans: list[RefreshPlan], before: Rows, expected: Rows) -> None:
        if isinstance(outcome, Skipped):
            self.score.actions[str(RefreshAction.NO_DATA)] += 1
            return
        self.score.actions[str(plans[-1].action)] += 1
        named = before.keys() | expected.keys()
        needed = {name for name in named if before.get(name) != expected.get(name)}
        dirty = {name for name in named if any(plan.partitions.covers(_spec(name)) for plan in plans)}
        if not needed:
            self.score.needless += 1
        elif self.query.keys:
            self.score.ratios.append(len(dirty) / len(needed))

    def run(self, rounds: int = 5) -> None:
        """Refresh after random changes, some times."""
        self.refresh()
        assert self.made() == self.expected()
        for _ in range(rounds):
            for _ in range(self.chance.choice([0, 1, 1, 1, 2, 3])):
                self.change()
            if self.chance.random() < 0.3:
                self.happen()
            self.steps.append("check")
            self.check()
        self.score.sequences += 1


def _is_frozen(name: str) -> bool:
    return name < f"ds={FROZEN_BEFORE}"


def _spec(name: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in name.split("/")) if name else {}


_CHANGES = [
    *["append"] * 12,
    *["rewrite", "rewrite", "update", "delete", "delete", "compact", "restore", "forget", "recreate", "add_column"],
    *["change_file"] * 2,
]
_HAPPENINGS = [
    *("fail", "refresh_by_hand", "backfill", "meddle", "roll_back", "compact_table", "change_meanwhile", "change_meanwhile"),
    *("change_before_reading", "change_query", "drop_table", "die"),
]


def request_of(definitions: Definitions, time: datetime, token: str) -> RefreshRequest:
    """Return the scheduled request of a time."""
    return RefreshRequest(definitions.tables[TABLE], definitions.sources, time, token, token, is_scheduled=True)


def refresh_and_die(database_url: str, folder: Path, time: datetime, token: str, step: str) -> None:
    """Refresh the table in this process, which is killed at a step."""
    clock = Clock()
    clock.time = time

    def hook(reached: str) -> None:
        if reached == step:
            KILL()

    watch_steps(hook)
    with open_workspace(WorkspaceSettings(database_url, f"file://{folder}/warehouse"), clock) as workspace:
        run(workspace, request_of(load_definitions(folder / "sales.yaml"), time, token), duckdb_job.run)


def check(seed: int, folder: Path, empty_state: Path, score: Score) -> None:
    """Run the sequence of a seed; its failure says what was done."""
    sequence = Sequence(seed, folder, empty_state, score)
    try:
        sequence.run()
    except BaseException as error:
        kinds = [type(source).__name__ for source in sequence.sources.values()]
        done = "\n".join(f"{plan.action} {plan.partitions}: {plan.reason}" for plan in sequence.plans)
        error.add_note(
            f"seed {seed}: {sequence.query.text}\n{sequence.settings}\n{kinds} into {sequence.format}\n{sequence.steps}\n{done}"
        )
        raise
    finally:
        sequence.close()


def main(first: int, number: int) -> int:
    """Run the sequences of many seeds; print those that fail, and the score."""
    score = Score()
    failed = []
    with tempfile.TemporaryDirectory() as home:
        state = Path(home) / "empty.db"
        with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{home}/warehouse")) as workspace:
            workspace.ledger.list_refreshes(TABLE)
        for seed in range(first, first + number):
            with tempfile.TemporaryDirectory(dir=home) as folder:
                try:
                    check(seed, Path(folder), state, score)
                except Exception:
                    failed.append(seed)
                    traceback.print_exc()
            if seed % 10 == 9:
                print(f"up to seed {seed}: {score}; failed: {failed}", flush=True)
    print(f"seeds {first} to {first + number - 1}: {score}; failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
