"""What is wrong around a refresh is one line that says what to do, on the command line; see the tests of the operator, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def answer(dynamic_tables: Run, *argv: str) -> str:
    ran = dynamic_tables(*argv)
    assert (ran.code, ran.out) == (1, "")
    lines = [line for line in ran.err.splitlines() if not line.startswith("begin ")]
    assert len(lines) == 1, ran.err
    assert "not expected" not in lines[0]
    return lines[0]


def test_a_state_that_is_no_database(dynamic_tables: Run, project: Path) -> None:
    (project / "airflow" / "dynamic_tables").mkdir(parents=True)
    (project / "airflow" / "dynamic_tables" / "state.db").write_text("nonsense\n" * 1000)
    for command in (("list",), ("history",), ("gc",), ("refresh", "daily_revenue")):
        line = answer(dynamic_tables, *command)
        assert line.endswith("state.db refused: file is not a database; restore the file from a backup, or name another one.")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_warehouse_that_is_no_folder(dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (project / "file").touch()
    monkeypatch.setenv("DYNAMIC_TABLES_WAREHOUSE", str(project / place))
    line = answer(dynamic_tables, "refresh", "daily_revenue")
    assert line.startswith("The metadata of sales.daily_revenue could not be written, its last version is untouched: [Errno 20] ")
    assert f"Not a directory: '{project / 'file'}" in line
    assert line.endswith("; check that the warehouse is a folder with room that this process may write to.")
    (project / "file").unlink()
    monkeypatch.setenv("SPARK_HOME", str(project))
    assert "cannot be written" not in dynamic_tables("refresh", "daily_revenue").err, "nothing is left in the way"


def test_a_source_that_is_gone(dynamic_tables: Run, project: Path) -> None:
    shutil.rmtree(project / "data")
    line = answer(dynamic_tables, "refresh", "daily_revenue")
    assert line == f"Source lake.raw.orders: there is nothing at {project}/data/orders."
    (history,) = json.loads(dynamic_tables("history", "-o", "json").out)
    assert (history["state"], history["error"]) == ("FAILED", line)
