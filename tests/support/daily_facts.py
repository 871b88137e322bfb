"""A table of numbers by day over files, whose job reads the bound files, to be refreshed after changes of the files."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_days

DAYS = TableIdentifier("lake", "sales", "days")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BY_DAY = "SELECT ds, n FROM (SELECT ds, n, count(*) OVER (PARTITION BY ds) FROM raw.facts)"
"""Returns the rows of the facts. Because of the window, only complete days are computed."""

BY_MONTH = "WITH m AS (SELECT date_format(ds, 'yyyy-MM') AS m, n FROM raw.facts) SELECT m AS ds, n FROM m"
WITH_FACTOR = "SELECT f.ds, f.n * x.n AS n FROM raw.facts f CROSS JOIN raw.factor x"
YAML = """
defaults: {{catalog: lake, database: sales, format: {format}}}
sources:
- {{name: raw.facts, format: csv, path: {folder}/facts, schema: "n bigint, ds string", partitioned_by: [ds]}}
- {{name: raw.factor, format: csv, path: {folder}/factor, schema: n bigint}}
dynamic_tables:
- name: {name}
  freshness: 1 day
  partitioned_by: [ds]
  options: {{partition.fields.ds.date-formatter: {pattern}}}
  query: "{query}"
  {settings}
"""


def name_of(day: int) -> str:
    return f"{MARCH + day * DAY:%Y-%m-%d}"


def by_day(rows: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each day, sorted."""
    found: dict[str, list[int]] = defaultdict(list)
    for day, number in rows:
        found[day].append(number)
    return {day: sorted(numbers) for day, numbers in found.items()}


@dataclass
class Bench:
    """A table with a partition per day, over files of facts by day and a factor for all of them."""

    workspace: Workspace
    clock: Clock
    folder: Path
    table: TableIdentifier = DAYS
    format: str = "iceberg"
    query: str = BY_DAY
    settings: str = "late: refresh"
    pattern: str = "yyyy-MM-dd"
    """That of the partitions; a shorter one is for a query that rolls the days up."""
    tick: int = 0
    plans: list[RefreshPlan] = field(default_factory=list)
    writes: int = 0
    fails: bool = False
    scattered: bool = False
    """Whether the job writes one file a row."""
    changes_meanwhile: Random | None = None
    """Random changes while a job runs."""
    all_days: bool = False
    """Whether the table must have the days that are not over, too."""

    def begin(self) -> None:
        """Write facts of four days, and a factor of one."""
        self.write_factor(1)
        for day in range(4):
            self.write(day, day)

    def write(self, day: int, *numbers: int, name: str = "") -> None:
        """Write a file of facts; every file looks as if it had been written an hour ago."""
        self.writes += 1
        self._write(self.folder / "facts" / f"ds={name_of(day)}" / f"{name or self.writes}.csv", numbers)

    def write_factor(self, number: int) -> None:
        self._write(self.folder / "factor" / "factor.csv", (number,))

    def _write(self, file: Path, numbers: tuple[int, ...]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{number}\n" for number in numbers))
        stamp = (datetime.now(UTC) - timedelta(hours=1)).timestamp() + self.writes
        os.utime(file, (stamp, stamp))

    def change(self, chance: Random, tick: int) -> None:
        """Add, rewrite or remove a file, or change the factor."""
        day = chance.randrange(-3, tick + 1)
        folder = self.folder / "facts" / f"ds={name_of(day)}"
        match chance.randrange(5):
            case 0 | 1:
                self.write(day, chance.randrange(100))
            case 2:
                self.write(day, *range(chance.randrange(1, 4)), name="same")
            case 3:
                shutil.rmtree(folder, ignore_errors=True)
            case 4:
                self.write_factor(chance.randrange(1, 5))

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        named = {"name": self.table, "format": self.format, "folder": self.folder}
        path.write_text(YAML.format(**named, query=self.query, settings=self.settings, pattern=self.pattern))
        definitions = load_definitions(path)
        token = str(uuid4())
        time = MARCH + self.tick * DAY
        return RefreshRequest(definitions.tables[self.table], definitions.sources, time, token, token, is_scheduled=True)

    def live(self, tick: int) -> LivePlan:
        """What a scheduled refresh would do now."""
        self.clock.time = max(self.clock.time, MARCH + tick * DAY)
        table = self.request().table
        definitions = load_definitions(self.folder / "sales.yaml")
        plan = preview(table, MARCH + tick * DAY, definitions.sources)
        return live_plan(self.workspace, plan, table, definitions)

    def refresh(self, tick: int, **asked: object) -> Version | Skipped:
        self.tick = tick
        self.clock.time = max(self.clock.time + timedelta(minutes=1), MARCH + tick * DAY)
        return run(self.workspace, replace(self.request(), **asked), self.submit)  # type: ignore[arg-type]

    def submit(self, plan: RefreshPlan) -> None:
        if self.fails:
            raise JobFailedError("no")
        self.plans.append(plan)
        rows: dict[str, list[int]] = defaultdict(list)
        numbers = {source.identifier: [int(n) for n in self._lines(source.files)] for source in plan.sources}
        factor = sum(numbers.get("lake.raw.factor", [1]))
        for source in plan.sources:
            for file in source.files if source.partition_keys else ():
                rows[file.split("ds=")[1][: len(self.pattern)]] += [int(number) * factor for number in self._lines([file])]
        planned = plan.partitions
        write_days(plan, {day: found for day, found in rows.items() if planned.covers({"ds": day})}, scattered=self.scattered)
        if self.changes_meanwhile is not None:
            self.change(self.changes_meanwhile, self.tick)

    @staticmethod
    def _lines(files: list[str] | tuple[str, ...]) -> Iterator[str]:
        for file in files:
            yield from Path(urlsplit(file).path).read_text().split()

    @property
    def made(self) -> PartitionSet:
        """The partitions that the last job made."""
        return self.plans[-1].partitions

    def rows(self) -> dict[str, list[int]]:
        """The rows of the table by day."""
        rows = self.workspace.table(self.table, self.format).sample(10_000)
        return self._counted(by_day((row["ds"], row["n"]) for row in rows))

    def expected(self) -> dict[str, list[int]]:
        """The rows that the query returns now, by day."""
        factor = sum(map(int, self._lines([str(file) for file in (self.folder / "factor").glob("*.csv")]))) or 1
        factor = factor if self.query == WITH_FACTOR else 1
        found: dict[str, list[int]] = defaultdict(list)
        for file in (self.folder / "facts").glob("*/*.csv"):
            found[file.parent.name[3:][: len(self.pattern)]] += [int(number) * factor for number in self._lines([str(file)])]
        return self._counted(found)

    def _counted(self, found: dict[str, list[int]]) -> dict[str, list[int]]:
        counted = {day: sorted(numbers) for day, numbers in found.items() if numbers}
        return counted if self.all_days else {day: numbers for day, numbers in counted.items() if day < name_of(self.tick)}


@contextmanager
def opened_bench(clock: Clock, folder: Path, empty_state: Path) -> Iterator[Bench]:
    """Open a bench over an embedded catalog."""
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, folder)}", f"file://{folder}/warehouse")
    with open_workspace(settings, clock) as workspace:
        bench = Bench(workspace, clock, folder)
        bench.begin()
        yield bench


def only(*days: int) -> PartitionSet:
    return PartitionSet.of({"ds": name_of(day)} for day in days)


def fail(bench: Bench, _: Random, tick: int) -> None:
    """Let a complete refresh fail."""
    bench.fails = True
    with pytest.raises(JobFailedError):
        bench.refresh(tick, is_scheduled=False, full_refresh=True)
    bench.fails = False


def refresh_by_hand(bench: Bench, chance: Random, tick: int) -> None:
    """Refresh one day."""
    bench.refresh(tick, is_scheduled=False, partitions=only(chance.randrange(tick)))


Happening = Callable[[Bench, Random, int], None]
"""What happens to a table before a tick."""


def check_random_changes(bench: Bench, chance: Random, rounds: int, happenings: Sequence[Happening]) -> None:
    """Check that each incremental refresh does what the plan foretold, and leaves the table equal to its query and nothing to do.

    The sources change before each one, and something happens before every second one.
    """
    tick = 4
    bench.refresh(tick)
    for _ in range(rounds):
        for _ in range(chance.randrange(4)):
            bench.change(chance, tick)
        if (number := chance.randrange(2 * len(happenings))) < len(happenings):
            happenings[number](bench, chance, tick)
        tick += chance.randrange(3)
        foretold = bench.live(tick)
        before = len(bench.plans)
        outcome = bench.refresh(tick)
        assert (foretold.action is RefreshAction.NO_DATA) == isinstance(outcome, Skipped)
        made = PartitionSet.of(spec for plan in bench.plans[before:] for spec in plan.partitions)
        assert isinstance(outcome, Skipped) or foretold.replaced == made
        if bench.changes_meanwhile is not None:
            bench.changes_meanwhile = None
            bench.refresh(tick)
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(tick), Skipped), bench.workspace.ledger.list_refreshes(bench.table)[0].reason
    assert RefreshAction.PARTITIONS in {plan.action for plan in bench.plans}
