"""The plugin of pytest: nothing until somebody names definitions; then each test is an item, and one Spark runs all."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.connect_server import ConnectServer

DEFINITIONS = """\
dynamic_tables:
  - {name: lake.sales.one, freshness: 1 day, query: SELECT 1 AS n}
tests:
  - {table: one, name: "it is one", expect: {rows: [{n: 1}]}}
  - {table: one, name: "it is two", expect: {rows: [{n: 2}]}}
"""

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "sales.yaml").write_text(DEFINITIONS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nfilterwarnings = ['error']\n")
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    return tmp_path


def run(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    installed = bool(entry_points(group="pytest11", name="dynamic_tables"))
    plugin = "dynamic_tables" if installed else "airflow_dynamic_tables.pytest_plugin"
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:cacheprovider", "-q", "-rA", *arguments]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_it_is_declared_as_a_plugin() -> None:
    assert 'dynamic_tables = "airflow_dynamic_tables.pytest_plugin"' in (ROOT / "pyproject.toml").read_text()


def test_nobody_who_does_not_ask_for_it_notices_it(project: Path) -> None:
    (project / "definitions" / "sales.yaml").write_text("no: [yaml")
    (project / "test_mine.py").write_text(
        "import sys\ndef test_mine(): assert not {'pydantic', 'airflow_dynamic_tables.services'} & sys.modules.keys()\n"
    )
    ran = run(project)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout


def test_definitions_are_named_by_an_option(project: Path, connect_server: ConnectServer) -> None:
    ran = run(project, "--dynamic-tables", "definitions", "test_mine.py", SPARK_REMOTE=connect_server.url)
    assert ran.returncode == 1, ran.stderr
    assert "PASSED definitions/sales.yaml::lake.sales.one[it is one]" in ran.stdout
    assert "FAILED definitions/sales.yaml::lake.sales.one[it is two]" in ran.stdout
    assert "definitions/sales.yaml:5:24\nmissing {n: 2}\nextra   {n: 1}" in ran.stdout
    assert "2 passed, 1 failed" in ran.stdout or "1 failed, 2 passed" in ran.stdout


def test_or_by_a_setting_and_one_is_chosen(project: Path, connect_server: ConnectServer) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write("dynamic_tables = 'definitions'\n")
    chosen = run(project, "definitions/sales.yaml::lake.sales.one[it is one]", SPARK_REMOTE=connect_server.url)
    assert (chosen.returncode, "1 passed" in chosen.stdout) == (0, True), chosen.stdout
    assert "1 passed" in run(project, "test_mine.py").stdout


def test_a_mistake_is_an_error_of_its_file(project: Path) -> None:
    with (project / "definitions" / "sales.yaml").open("a") as file:
        file.write("  - {table: two, name: t, expect: {rows: []}}\n")
    (project / "definitions" / "other.yaml").write_text("sources: []\n")
    ran = run(project, "--dynamic-tables", "definitions")
    assert ran.returncode == 2, ran.stdout
    assert "sales.yaml:6:13: there is no dynamic table 'two'" in ran.stdout
    assert "1 error" in ran.stdout
