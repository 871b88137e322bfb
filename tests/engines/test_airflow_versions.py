"""The package in other versions of Airflow and Python: its DAGs, refreshes, alerts, deadlines, backfills and partitions."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.downloads import CACHE
from tests.support.suite import missing_service

ROOT = Path(__file__).parents[2]
PINS = {"3.2": ROOT / "tests" / "engines" / "airflow-3.2.txt", "3.3": ROOT / "constraints.txt"}
"""Exact versions of all packages, by version of Airflow."""

PYTHONS = ("3.11", "3.12", "3.13")
ALSO = [(airflow, python) for airflow in PINS for python in PYTHONS if (airflow, python) != ("3.3", "3.11")]
"""Versions of Airflow and Python; with Airflow 3.3 and Python 3.11, all other tests run."""

TESTS = (
    "tests/test_dag_factory.py",
    "tests/cli/test_starting.py",
    "tests/system/test_airflow_dags_test.py::test_a_table_is_committed_before_success_and_survives_a_failing_query",
    "tests/system/test_airflow_dags_test.py::test_the_commands_read_the_ledger_of_the_connection",
    "tests/system/test_airflow_alerts.py",
    "tests/system/test_airflow_backfills.py",
    "tests/system/test_airflow_continuous.py::test_partitions_are_told_once_they_are_whole",
)

PROVIDERS = (
    *("amazon", "apache-hive", "apache-kafka", "celery", "cncf-kubernetes", "common-sql", "databricks", "fab", "google"),
    *("microsoft-azure", "openlineage", "postgres", "snowflake", "trino"),
)
"""Airflow's providers that share libraries with this package, or that installations usually have beside it."""

WARNING = "SelectableGroups dict interface is deprecated"
"""By the OpenTelemetry of Airflow 3.2, on Python 3.11."""


def interpreter(minor: str) -> str:
    """Return a Python of this version, if the machine has one: the shims of pyenv are there without it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{minor}"), *map(str, pyenv.glob(f"versions/{minor}.*/bin/python"))]
    works = (
        each for each in found if each and not subprocess.run([each, "--version"], capture_output=True, check=False).returncode
    )
    python = next(works, None)
    if python is None:
        missing_service(f"needs Python {minor}: pyenv install {minor}")
    return python


def installed(airflow: str, python: str) -> Path:
    """Return the Python of an environment with pinned dependencies; created once for each checkout."""
    pins = PINS[airflow]
    content = pins.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + f"{ROOT} {python}".encode()
    folder = CACHE / f"airflow-{airflow}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not (folder / "done").exists():
        uv = [str(Path(sys.executable).with_name("uv"))]
        _check([*uv, "venv", "--quiet", "--clear", "--python", python, str(folder)])
        pip = [*uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "--constraint", str(pins)]
        _check([*pip, "--editable", ".[pyspark,postgres,hive,hdfs,s3,delta,glue]", "--group", "test"])
        (folder / "done").touch()
    return folder / "bin" / "python"


def _check(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.large
@pytest.mark.parametrize("airflow", PINS)
def test_no_pin_of_ours_keeps_airflows_own_providers_away(airflow: str, tmp_path: Path) -> None:
    """Airflow's constraints are no package: that its versions fit ours is shown by resolving them together."""
    together = tmp_path / "together.txt"
    providers = (f"apache-airflow-providers-{name}" for name in PROVIDERS)
    together.write_text("\n".join((f"apache-airflow=={_pinned(airflow)}", *providers)))
    compile_ = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--all-extras"]
    _check(
        [*compile_, "--python-version", PYTHONS[0], "--output-file", str(tmp_path / "pins.txt"), "pyproject.toml", str(together)]
    )
    pins = (tmp_path / "pins.txt").read_text()
    assert [name for name in PROVIDERS if f"\napache-airflow-providers-{name}==" not in pins] == []


@pytest.mark.large
@pytest.mark.system
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("airflow", "python"), ALSO)
def test_the_package_works_there(airflow: str, python: str) -> None:
    pytest_there = [str(installed(airflow, interpreter(python))), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command = [*pytest_there, "-W", f"ignore:{WARNING}:DeprecationWarning", "-m", "", *TESTS]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "AIRFLOW", "PYTHONPATH"))}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]


def _pinned(airflow: str) -> str:
    found = re.search(r"^apache-airflow==(\S+)$", PINS[airflow].read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)


def test_the_project_declares_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, last = (_pinned(airflow) for airflow in PINS)
    major, minor = map(int, last.split(".")[:2])
    assert f"apache-airflow>={first},<{major}.{minor + 1}" in project["dependencies"]
    languages = [
        each.rpartition(" ")[2] for each in project["classifiers"] if each.startswith("Programming Language :: Python ::")
    ]
    assert languages == list(PYTHONS)
    assert project["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1].removeprefix('3.')) + 1}"
