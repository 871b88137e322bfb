"""Two installations, each with a ledger of its own, and one table: neither deletes or overwrites what is the other's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.ledger.base import RefreshState, Stage, StageState
from airflow_dynamic_tables.services.maintenance.sweeping import SweepReport, sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.owner_markers import MARKS
from tests.support.metastore import HiveMetastore
from tests.support.pyarrow_job import write_numbers

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
LATER = timedelta(days=20)
YAML = """
defaults: {{catalog: lake, database: {database}, freshness: 1 day, versions_to_keep: 1, version_max_age: 1 hour}}
dynamic_tables:
- {{name: numbers, {format}, query: SELECT 1 AS x}}
"""
CATALOG = {
    "iceberg": "{{name: lake, type: sql, connection-params: {{url: 'sqlite:///{folder}/lake.db', warehouse: '{warehouse}'}}}}",
    "folder": "{{name: lake, type: sql, connection-params: {{url: 'sqlite:///{folder}/lake.db', warehouse: '{warehouse}'}}}}",
    "hive": "{{name: lake, type: hive, connection-params: {{uri: '{uri}', warehouse: '{warehouse}'}}}}",
}
FORMAT = {"iceberg": "format: iceberg", "folder": "format: parquet, atomicity: none", "hive": "format: parquet"}
FORMATS = ["iceberg", "folder", pytest.param("hive", marks=pytest.mark.metastore)]
ATOMIC = [name for name in FORMATS if name != "folder"]


class Pair:
    """The installations, ``mine`` and ``theirs``, and what they do to the table."""

    def __init__(self, folder: Path, kind: str, uri: str) -> None:
        self.folder = folder
        self.ahead = timedelta()
        warehouse = f"file://{folder}/warehouse"
        (folder / "catalogs.yaml").write_text(f"catalogs: [{CATALOG[kind].format(folder=folder, warehouse=warehouse, uri=uri)}]")
        self.database = f"sales_{uuid4().hex}"
        (folder / "sales.yaml").write_text(YAML.format(database=self.database, format=FORMAT[kind]))
        (self.table,) = load_definitions(folder / "sales.yaml").tables.values()
        self.mine, self.theirs = (self.opened(folder / f"{name}.db") for name in ("mine", "theirs"))

    def opened(self, state: Path) -> Workspace:
        settings = WorkspaceSettings(f"sqlite:///{state}", f"file://{self.folder}/unused", self.folder / "catalogs.yaml")
        return open_workspace(settings, lambda: datetime.now(UTC) + self.ahead)

    @property
    def identifier(self) -> TableIdentifier:
        return self.table.identifier

    def request(self) -> RefreshRequest:
        token = str(uuid4())
        return RefreshRequest(self.table, {}, MARCH, token=token, owner=token)

    def refresh(self, workspace: Workspace, number: int) -> None:
        assert isinstance(run(workspace, self.request(), lambda plan: write_numbers(plan, (number,))), Version)

    def quarantined(self, workspace: Workspace) -> Stage:
        attempt = begin(workspace, self.request())
        write_numbers(attempt.plan)
        workspace.ledger.move_stage(attempt.plan.token, (StageState.OPEN,), StageState.QUARANTINED)
        return attempt.stage

    def swept(self, workspace: Workspace) -> SweepReport:
        self.ahead = LATER
        report = sweep(workspace)
        self.ahead = timedelta()
        return report

    def rows(self, workspace: Workspace) -> list[int]:
        return [row["x"] for row in sample(workspace, self.identifier, 10)]

    def marks(self) -> list[Path]:
        return sorted(path for path in (self.folder / "warehouse").rglob("*") if path.parent.name == MARKS)


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    server: HiveMetastore | None = request.getfixturevalue("hive_metastore") if request.param == "hive" else None
    pair = Pair(tmp_path, request.param, server.uri if server is not None else "")
    with ExitStack() as stack:
        stack.enter_context(pair.mine)
        stack.enter_context(pair.theirs)
        yield pair


@pytest.mark.parametrize("pair", ATOMIC, indirect=True)
def test_the_maintenance_deletes_nothing_of_another_installation(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.refresh(pair.mine, 1)
    pair.refresh(pair.theirs, 2)
    stage = pair.quarantined(pair.mine)
    with caplog.at_level(logging.WARNING):
        report = pair.swept(pair.theirs)
    assert (report.deleted_files, report.failed) == (0, ())
    assert f"{pair.identifier} is refreshed by another installation, too" in caplog.text
    assert list(Path(stage.location.removeprefix("file://")).rglob("*.parquet"))
    assert pair.rows(pair.mine) == pair.rows(pair.theirs) == [2]


@pytest.mark.parametrize("pair", ["folder"], indirect=True)
def test_nobody_publishes_into_the_folder_of_another_installation(pair: Pair) -> None:
    pair.refresh(pair.mine, 1)
    stage = pair.quarantined(pair.mine)
    with pytest.raises(ConfigurationError, match="is refreshed by another installation, too") as raised:
        pair.refresh(pair.theirs, 2)
    (mark,) = pair.marks()
    assert str(mark) in str(raised.value)
    (refused,) = pair.theirs.ledger.list_refreshes(pair.identifier)
    assert (refused.state, refused.error) == (RefreshState.FAILED, str(raised.value))
    assert pair.swept(pair.theirs).deleted_files == 0
    assert list(Path(stage.location.removeprefix("file://")).rglob("*.parquet"))
    pair.mine.ledger.move_stage(stage.token, (StageState.QUARANTINED,), StageState.ABORTED)
    pair.refresh(pair.mine, 3)
    assert pair.rows(pair.mine) == [3]


@pytest.mark.sampled
@pytest.mark.parametrize("pair", FORMATS, indirect=True)
def test_when_its_mark_is_deleted_the_other_installation_is_gone(pair: Pair) -> None:
    pair.refresh(pair.mine, 1)
    for mark in pair.marks():
        mark.unlink()
    pair.refresh(pair.theirs, 2)
    pair.refresh(pair.theirs, 3)
    left = pair.quarantined(pair.theirs)
    pair.theirs.ledger.move_stage(left.token, (StageState.QUARANTINED,), StageState.ABORTED)
    Path(left.location.removeprefix("file://")).joinpath("late.parquet").write_text("of a zombie")
    assert pair.swept(pair.theirs).failed == ()
    assert pair.swept(pair.theirs).failed == ()
    assert not list(Path(left.location.removeprefix("file://")).rglob("*.parquet"))
    assert pair.rows(pair.theirs) == [3]


@pytest.mark.parametrize("pair", FORMATS, indirect=True)
def test_one_installation_leaves_one_mark_however_often_it_is_opened(pair: Pair) -> None:
    pair.refresh(pair.mine, 1)
    with pair.opened(pair.folder / "mine.db") as again:
        pair.refresh(again, 2)
    (mark,) = pair.marks()
    assert mark.name == pair.mine.ledger.installation()
    assert "Delete it when that one is gone." in mark.read_text()
    assert pair.rows(pair.mine) == [2]
