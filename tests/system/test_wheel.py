"""The wheel, made of the sdist and installed into an environment of its own, as ``pip install`` does it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., str]
SDIST = {"airflow_dynamic_tables", "docs", "CHANGELOG.md", "README.md", "SECURITY.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of an environment that has the wheel; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _check([str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--out-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        assert {Path(name).parts[1] for name in sdist.getnames()} == SDIST
    venv.create(folder / "venv", symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _check([*pip, "--python", str(folder / "venv"), "install", "--quiet", "--no-deps", str(wheel)])
    for name in ("py.typed", "plugins/page/static/index.html", "plugins/page/static/vendor/uPlot.LICENSE"):
        assert (packages / "airflow_dynamic_tables" / name).is_file()

    def run(program: str, *arguments: str) -> str:
        environ = {**os.environ, "AIRFLOW_HOME": str(folder / "home")}
        return _check([str(folder / "venv" / "bin" / program), *arguments], env=environ)

    return run


def _check(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd="/")
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_airflow_lists_the_provider(installed: Run) -> None:
    assert "airflow-dynamic-tables" in installed("python", "-m", "airflow", "providers", "list", "--output", "plain")


def test_airflow_has_the_commands(installed: Run) -> None:
    told = installed("python", "-m", "airflow", "dynamic-tables", "--help")
    assert all(command in told for command in ("validate", "plan", "refresh", "history"))


def test_the_console_script_works_with_its_migrations(installed: Run) -> None:
    assert "validate" in installed("dynamic-tables", "--help")
    installed("dynamic-tables", "db", "upgrade")
    assert installed("dynamic-tables", "history", "--output", "json").strip() == "[]"


def test_it_is_of_the_version_and_links_to_the_pages_of_the_project(installed: Run) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code = "from importlib.metadata import metadata; found = metadata('airflow-dynamic-tables');"
    told = installed("python", "-c", f"{code} print(found['Version'], *found.get_all('Project-URL'))")
    assert told.startswith(f"{project['version']} ")
    assert all(f"{name}, {url}" in told for name, url in project["urls"].items())


def test_a_new_project_is_sound(installed: Run, tmp_path: Path) -> None:
    installed("dynamic-tables", "init", str(tmp_path / "shop"))
    installed("dynamic-tables", "validate", "--without-spark", "--definitions", str(tmp_path / "shop" / "dags" / "definitions"))


def test_nothing_is_taken_from_the_checkout(installed: Run) -> None:
    code = "import airflow_dynamic_tables.cli.main as main; print(main.__file__)"
    assert str(ROOT) not in installed("python", "-c", code)
