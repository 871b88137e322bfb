"""Readers never notice: while a table is refreshed at full speed, whatever they observe is one committed version, whole.

**A poll** is one look at the table by one of four reader processes, which know nothing of one another or of the writer. Each
begins with a fresh look-up of the table in the catalog's database, by a plain PyIceberg ``SqlCatalog``, and ends with one hash
over all rows. In between it goes one of these ways:

* *metadata* (most polls): the table's metadata file is read anew. What lies below it (manifest list, manifests, data files) never
  changes, so a process reads each of these once, when it first meets it: a data file by PyArrow, all its rows, and their number
  compared with what the table says. That none ever changes is checked too: every such poll compares size, time and inode of four
  of them, and at the end every process those of all, unless they were deleted.
* *manifest list* (1 in 10): that one is read anew as well.
* *manifests* (1 in 250; 1 in 50 in the short form): PyIceberg plans a scan, and reads every manifest for it.
* *rows* (1 in 2,000; 1 in 200 in the short form): the rows themselves are scanned; every other time by PyIceberg's ``to_arrow``,
  and else from the files that this package binds for Spark (``LakeTable.read``), by a PyArrow dataset.

The hash is the sum of the hashes of all rows, so all ways lead to the same one, and a row that is missing, or there twice, shows.
The writer computes the hash of a version from the rows it writes, before it commits. Every ten versions a job fails, the table is
rolled back, and the maintenance deletes the files of all but the newest twenty versions. A poll is a wrong observation when it
fails, and when it sees anything but a committed version, or an older version than the same process saw before.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.faults.conftest import jdbc_site
from tests.support.faults.iceberg_reader import IcebergReader, Rota
from tests.support.faults.postgres_reader import PostgresReader
from tests.support.faults.report import FaultReport
from tests.support.faults.row_digests import rows_digest, text, total
from tests.support.faults.watchers import FAILED, Report, watching
from tests.support.postgres import PostgresServer

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales, versions_to_keep: 20, version_max_age: 1 hour}
dynamic_tables:
- {name: numbers, freshness: 1 day, partitioned_by: [p], query: "SELECT 1 AS p, 2L AS n"}
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done at least. ``sizes`` are the numbers of partitions of the commits, in turn."""

    commits: int
    polls: int
    sizes: tuple[int, ...]
    rota: Rota


CI = Scale(commits=20, polls=4_000, sizes=(1, 1, 1, 50, 1, 1, 1, 50, 1, 500), rota=Rota(10, 50, 200))
LONG = Scale(commits=200, polls=100_000, sizes=(*(1, 200, 1, 1, 1) * 4, 2000), rota=Rota(10, 250, 2_000))


class Writer:
    """Refreshes a table whose rows it makes up, and knows the hash of every version before it is committed."""

    def __init__(self, workspace: Workspace, request: RefreshRequest, partitions: int) -> None:
        self.versions: list[str] = []
        self._workspace = workspace
        self._request = request
        self._random = Random(1)
        self._content = dict.fromkeys(range(partitions), 0)
        self._contents: list[dict[int, int]] = []

    def refresh(self, size: int, *, fails: bool = False) -> None:
        """Replace that many partitions, chosen at random; or write them and then fail."""
        chosen = sorted(self._random.sample(sorted(self._content), size))
        number = len(self.versions)
        rows = {p: [number * 10 + n for n in range((p + number) % 4)] for p in chosen}
        # Every other replacement of all partitions is one of the whole table.
        named = None if size == len(self._content) and number % 2 else tuple({"p": str(p)} for p in chosen)
        request = replace(
            self._request,
            token=str(uuid4()),
            partitions=PartitionSet.of(named) if named is not None else None,
            full_refresh=named is None,
        )

        def job(plan: RefreshPlan) -> None:
            tables = _write(plan, rows)
            if fails:
                raise JobFailedError("as if the query divided by zero")
            self._expect(self._content | {p: rows_digest(table) for p, table in tables.items()})

        if fails:
            with pytest.raises(JobFailedError):
                run(self._workspace, request, job)
            return
        assert isinstance(run(self._workspace, request, job), Version)

    def roll_back(self, versions: int) -> None:
        """Make the version current that was it so many versions ago."""
        number = len(self.versions) - versions
        self._expect(self._contents[number - 1])
        rollback(self._workspace, RollbackRequest(self._request.table.identifier, number, str(uuid4()), "writer"))

    def _expect(self, content: dict[int, int]) -> None:
        self._content = content
        self._contents.append(content)
        self.versions.append(text(total(content.values())))


def _write(plan: RefreshPlan, rows: dict[int, list[int]]) -> dict[int, pa.Table]:
    """One file for every partition that has rows."""
    tables = {
        p: pa.table({"p": pa.array([p] * len(numbers), pa.int32()), "n": pa.array(numbers, pa.int64())})
        for p, numbers in rows.items()
    }
    files = []
    if plan.sink is not None:
        _write_into(plan.sink, tables)
    for p, table in tables.items():
        if table.num_rows and plan.sink is None:
            file = Path(urlsplit(plan.data_location).path, f"p={p}", "part-0.parquet")
            file.parent.mkdir(parents=True)
            pq.write_table(table, file)
            files.append(StagedFile(f"{plan.data_location}/p={p}/part-0.parquet", file.stat().st_size))
    result = RefreshResult(
        token=plan.token,
        application_id="by hand",
        rows=sum(map(len, rows.values())),
        files=tuple(files),
        columns=(Column("p", "int"), Column("n", "bigint")),
        partitions=tuple({"p": str(p)} for p, numbers in rows.items() if numbers),
    )
    write_text(plan.result_location, result.to_json())
    return tables


def _write_into(sink: Sink, tables: dict[int, pa.Table]) -> None:
    """Make the stage table, as the job does."""
    with psycopg.connect(sink.url.removeprefix("jdbc:"), user=sink.user) as connection:
        connection.execute(f"CREATE TABLE {sink.table} (p integer, n bigint)".encode())
        with connection.cursor() as cursor, cursor.copy(f"COPY {sink.table} FROM STDIN".encode()) as copy:
            for table in tables.values():
                for row in table.to_pylist():
                    copy.write_row((row["p"], row["n"]))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> WorkspaceSettings:
    if request.param == "sqlite":
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    else:
        url = request.getfixturevalue("postgres_state")()
    return WorkspaceSettings(url, f"file://{tmp_path}/warehouse")


@pytest.fixture
def workspace(settings: WorkspaceSettings) -> Iterator[Workspace]:
    with open_workspace(settings) as opened:
        yield opened


@pytest.fixture
def request_(tmp_path: Path) -> RefreshRequest:
    (tmp_path / "sales.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "sales.yaml")
    (table,) = definitions.tables.values()
    return RefreshRequest(table, definitions.sources, MARCH, token="", owner="writer")


@pytest.mark.large
@pytest.mark.parametrize(
    "scale",
    [pytest.param(CI, id="short"), pytest.param(LONG, id="whole", marks=[pytest.mark.long, pytest.mark.timeout(7200)])],
)
def test_every_observation_is_a_committed_version(
    workspace: Workspace, request_: RefreshRequest, scale: Scale, fault_report: FaultReport
) -> None:
    writer = Writer(workspace, request_, max(scale.sizes))
    writer.refresh(max(scale.sizes))
    failures = deleted = 0
    where = (workspace.settings.database_url, workspace.settings.warehouse, request_.table.identifier)
    with watching(IcebergReader, *where, scale.rota) as readers:
        while len(writer.versions) <= scale.commits or readers.polls < scale.polls:
            writer.refresh(scale.sizes[len(writer.versions) % len(scale.sizes)])
            if len(writer.versions) % 10 == 0:
                writer.refresh(min(scale.sizes), fails=True)
                writer.roll_back(5)
                deleted += tidy_up(workspace)
                failures += 1
            assert readers.alive
        reports = readers.reports()
    wrong = [line for report in reports for line in wrong_observations(report, writer.versions)]
    ways = sum((report.ways for report in reports), Counter())
    fault_report.polled(ways.total(), len(wrong))
    fault_report.injected("job fails while readers poll", failures)
    print(f"{len(writer.versions)} versions, {deleted} files deleted, {ways.total():,} polls: {dict(ways)}")
    assert wrong == []
    assert deleted > 0, "old versions expired meanwhile"
    versions_seen = {sight.state for report in reports for sight in report.seen}
    assert len(versions_seen) > scale.commits / 4, "the readers looked all the time"


@pytest.mark.postgres
@pytest.mark.parametrize(
    "scale", [pytest.param(Scale(20, 300, CI.sizes, CI.rota), id="short"), pytest.param(LONG, id="whole", marks=pytest.mark.long)]
)
def test_every_observation_of_a_postgres_table_is_a_committed_version(
    tmp_path: Path, empty_state: Path, postgres: PostgresServer, scale: Scale, fault_report: FaultReport
) -> None:
    """Partitions are deleted and inserted, and the complete table is renamed, while others read."""
    url = postgres.create_database(f"readers_{uuid4().hex[:8]}")
    placed = jdbc_site(tmp_path, f"sqlite:///{shutil.copy(empty_state, tmp_path)}", url)
    (tmp_path / "sales.yaml").write_text(YAML.replace("database: sales", f"database: {url.rpartition('/')[2]}, format: jdbc"))
    (table,) = load_definitions(tmp_path / "sales.yaml").tables.values()
    with placed.open() as workspace:
        writer = Writer(workspace, RefreshRequest(table, {}, MARCH, token="", owner="writer"), max(scale.sizes))
        writer.refresh(max(scale.sizes))
        with watching(PostgresReader, url, table.identifier.table) as readers:
            while len(writer.versions) <= scale.commits or readers.polls < scale.polls:
                writer.refresh(scale.sizes[len(writer.versions) % len(scale.sizes)])
                if len(writer.versions) % 10 == 0:
                    writer.refresh(min(scale.sizes), fails=True)
                assert readers.alive
            reports = readers.reports()
    wrong = [line for report in reports for line in wrong_observations(report, writer.versions)]
    ways = sum((report.ways for report in reports), Counter())
    fault_report.polled(ways.total(), len(wrong))
    print(f"{len(writer.versions)} versions, {ways.total():,} polls: {dict(ways)}")
    assert wrong == []
    versions_seen = {sight.state for report in reports for sight in report.seen}
    assert len(versions_seen) > scale.commits / 4, "the readers looked all the time"


def tidy_up(workspace: Workspace) -> int:
    """Run the maintenance of the day after tomorrow: versions that are not among the newest expire, and their files are deleted.

    :return: how many files.
    """
    with open_workspace(workspace.settings, lambda: datetime.now(UTC) + timedelta(days=2)) as later:
        report = sweep(later)
    assert report.failed == ()
    return report.deleted_files


def wrong_observations(report: Report, versions: list[str]) -> list[str]:
    """What a reader should not have seen, in words; every poll that saw it is a line."""
    wrong, last = list(report.complaints), 0
    for sight in report.seen:
        try:
            # A rollback makes an old content current again: it is the version after what was seen last.
            last = versions.index(sight.state, last)
        except ValueError:
            wrong += [_in_words(sight.state, versions, last)] * sight.times
    return wrong


def _in_words(state: str, versions: list[str], last: int) -> str:
    if state in versions:
        return f"version {versions.index(state) + 1} after version {last + 1}"
    return state if state.startswith(FAILED) else f"not a committed version: {state}"
