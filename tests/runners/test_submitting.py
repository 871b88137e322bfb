"""What is handed to spark-submit, and where it is kept."""

from __future__ import annotations

import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.runners.spark_home import find_spark_submit
from airflow_dynamic_tables.runners.spark_submit import application_zip, spark_submit_command


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_zip_is_made_once_in_a_private_folder(temporary: Path) -> None:
    first = application_zip()
    made = first.stat().st_mtime_ns
    assert application_zip() == first
    assert first.stat().st_mtime_ns == made
    assert first.parent.parent == temporary
    assert first.parent.stat().st_mode & 0o077 == 0
    names = zipfile.ZipFile(first).namelist()
    assert "airflow_dynamic_tables/jobs/main.py" in names
    assert not [name for name in names if "dag_factory" in name or "operators" in name]


@pytest.mark.usefixtures("temporary")
def test_threads_that_need_it_at_once_get_the_same_one() -> None:
    together = threading.Barrier(8)

    def need(_: int) -> Path:
        together.wait(120)
        return application_zip()

    with ThreadPoolExecutor(8) as threads:
        (made,) = set(threads.map(need, range(8)))
    assert list(made.parent.iterdir()) == [made]
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None


@pytest.mark.usefixtures("temporary")
def test_a_folder_that_others_can_write_to_is_refused() -> None:
    folder = application_zip().parent
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="writable by others"):
        application_zip()


def test_a_link_is_refused(temporary: Path) -> None:
    folder = application_zip().parent
    folder.rename(temporary / "elsewhere")
    folder.symlink_to(temporary / "elsewhere")
    with pytest.raises(ConfigurationError, match="belongs to another user or is writable by others"):
        application_zip()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_no_folder_is_refused(temporary: Path, is_link: bool) -> None:
    folder = application_zip().parent
    folder.rename(temporary / "elsewhere")
    folder.symlink_to(temporary / "nowhere") if is_link else folder.touch(mode=0o600)
    with pytest.raises(ConfigurationError, match=r"is no folder, .*; remove it, or set TMPDIR\.$"):
        application_zip()


def test_the_settings_of_a_definition_become_options() -> None:
    settings = SparkSettings(conf={"spark.executor.memory": "4g"}, deploy_mode="cluster", num_executors=3, py_files="extra.zip")
    command = spark_submit_command("spark-submit", "s3a://lake/stage/_plan.json", settings, "yarn")
    pairs = list(pairwise(command))
    assert {("--master", "yarn"), ("--deploy-mode", "cluster"), ("--num-executors", "3")} <= set(pairs)
    assert ("--conf", "spark.executor.memory=4g") in pairs
    assert dict(pairs)["--py-files"].endswith(".zip,extra.zip")
    assert command[-2:] == ["--plan", "s3a://lake/stage/_plan.json"]


def test_a_missing_spark_submit_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spark-submit was not found; set SPARK_HOME, or run: pip install"):
        find_spark_submit({"SPARK_HOME": str(tmp_path), "PATH": str(tmp_path)})
