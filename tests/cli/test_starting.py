"""init: a project that is right as it is written. Its commands are run by tests/docs: they are those of the README."""

from __future__ import annotations

import json
import runpy
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.cli.new_project import write_project
from tests.cli.conftest import Run


def test_a_new_project_is_planned_for_its_last_day(dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yesterdays = {_yesterday()}
    ran = dynamic_tables("init", "a shop")
    assert ran.code == 0, ran.err
    assert "cd 'a shop'" in ran.out
    monkeypatch.chdir(project / "a shop")
    assert dynamic_tables("validate", "--without-spark").code == 0
    (planned,) = json.loads(dynamic_tables("plan", "--output", "json").out)
    days = [line[:10] for line in Path("data/orders.csv").read_text().splitlines()[1:]]
    assert planned["partitions"] == [{"ds": max(days)}]
    assert max(days) in yesterdays | {_yesterday()}, "unless it was midnight just now"


def _yesterday() -> str:
    return (datetime.now(UTC).date() - timedelta(days=1)).isoformat()


def test_its_dag_file_makes_a_dag(tmp_path: Path) -> None:
    write_project(tmp_path, date(2024, 1, 31))
    assert "dynamic_table__lake__sales__daily_revenue" in runpy.run_path(str(tmp_path / "dags" / "dynamic_tables.py"))


def test_data_depend_on_their_last_day_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_project(tmp_path / name, date(2024, 1, 31))
    assert len({(tmp_path / name / "data" / "orders.csv").read_text() for name in ("one", "two")}) == 1


def test_a_folder_with_other_files_will_do(dynamic_tables: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path / "shop")
    assert "Next:\n  dynamic-tables validate\n" in dynamic_tables("init").out
    assert dynamic_tables("validate", "--without-spark").code == 0


@pytest.mark.parametrize("file", ["README.md", "dags/definitions/sales.yaml", "data/orders.csv"])
def test_nothing_is_written_over_what_exists(dynamic_tables: Run, tmp_path: Path, file: str) -> None:
    mine = tmp_path / "shop" / file
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    ran = dynamic_tables("init", "shop")
    assert ran.code == 1
    assert f"shop/{file}: exists already" in ran.err
    assert {path for path in (tmp_path / "shop").rglob("*") if path.is_file()} == {mine}
    assert mine.read_text() == "mine"


def test_a_project_that_cannot_be_finished_leaves_nothing(dynamic_tables: Run, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "data").touch()
    ran = dynamic_tables("init", "shop")
    assert (ran.code, "Nothing was written." in ran.err) == (1, True)
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["data"]
