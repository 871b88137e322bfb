"""The package in other versions of Python: its DAGs, a table that is refreshed, alerts and backfills."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.downloads import CACHE
from tests.support.suite import missing_service

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/test_dag_factory.py",
    "tests/system/test_airflow_dags_test.py",
    "tests/system/test_airflow_alerts.py",
    "tests/system/test_airflow_backfills.py",
)


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


def installed(python: str) -> Path:
    """Return the Python of an environment with our pinned dependencies; created once for each checkout."""
    content = (ROOT / "constraints.txt").read_bytes() + f"{ROOT} {python}".encode()
    folder = CACHE / f"python-{hashlib.sha256(content).hexdigest()[:16]}"
    if not (folder / "done").exists():
        uv = [str(Path(sys.executable).with_name("uv"))]
        _check([*uv, "venv", "--quiet", "--clear", "--python", python, str(folder)])
        pip = [*uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "--constraint", "constraints.txt"]
        _check([*pip, "--editable", ".[pyspark,postgres,hive,hdfs,s3,delta,glue]", "--group", "dev"])
        (folder / "done").touch()
    return folder / "bin" / "python"


def _check(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("minor", ["3.12", "3.13"])
def test_the_package_works_there(minor: str) -> None:
    command = [str(installed(interpreter(minor))), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "AIRFLOW", "PYTHONPATH"))}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
