"""Schedulers by name: ours, and those that packages bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.schedulers.base import known_schedulers, open_scheduler

_SCHEDULER = """
from airflow_dynamic_tables.schedulers.base import Outcome, WorkflowScheduler

class Paper(WorkflowScheduler):
    @classmethod
    def from_connections(cls, connections): return cls()
    def create(self, workflow): return Outcome({"schedulerType": "paper"}, f"wrote down {workflow.workflow_id}")
    def suspend(self, handler): return Outcome(handler, "crossed out")
    def resume(self, handler): return Outcome(handler, "wrote down")
    def delete(self, handler): return Outcome(handler, "erased")
    def close(self): pass

def no_class(): pass
"""


def _nowhere(conn_id: str) -> Connection:
    raise ConfigurationError(f"Connection {conn_id!r} does not exist.")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "paper_scheduler.py").write_text(_SCHEDULER)
    monkeypatch.delitem(sys.modules, "paper_scheduler", raising=False)
    return tmp_path


def _install(site: Path, package: str, entry: str) -> None:
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[airflow_dynamic_tables.schedulers]\n{entry}\n")


def test_another_package_brings_one(site: Path) -> None:
    _install(site, "paper", "paper = paper_scheduler:Paper")
    assert "paper" in known_schedulers()
    with open_scheduler("paper", _nowhere) as scheduler:
        assert scheduler.suspend({}).told == "crossed out"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("paper = paper_scheduler:Pepper", "cannot be imported from paper_scheduler:Pepper"),
        ("paper = no_such_module:Paper", "cannot be imported from no_such_module:Paper"),
        ("paper = paper_scheduler:no_class", "is paper_scheduler:no_class, which is no WorkflowScheduler"),
    ],
)
def test_one_that_is_broken(site: Path, entry: str, said: str) -> None:
    _install(site, "paper", entry)
    with pytest.raises(ConfigurationError, match=said):
        open_scheduler("paper", _nowhere)


def test_one_that_two_packages_bring(site: Path) -> None:
    _install(site, "paper", "paper = paper_scheduler:Paper")
    _install(site, "pencil", "paper = pencil_scheduler:Paper")
    with pytest.raises(ConfigurationError, match="brought twice, by paper_scheduler:Paper and pencil_scheduler:Paper"):
        open_scheduler("paper", _nowhere)


def test_nobody_takes_the_place_of_ours(site: Path) -> None:
    _install(site, "paper", "airflow = paper_scheduler:Paper")
    with pytest.raises(ConfigurationError, match="Connection 'dynamic_tables_airflow' does not exist"):
        open_scheduler("airflow", _nowhere)


def test_an_unknown_one() -> None:
    with pytest.raises(ConfigurationError, match="There is no scheduler airflwo; did you mean 'airflow'"):
        open_scheduler("airflwo", _nowhere)
