"""The archive of Spark's classes: where it is looked for, whose it must be, and how it is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_home import OPTIONS, archive_file, class_data_options, spark_environment, store

Environ = dict[str, str]


@pytest.fixture
def environ(tmp_path: Path) -> Environ:
    for program in ("java/bin/java", "spark/bin/spark-submit"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / program).chmod(0o755)
    (tmp_path / "spark/jars").mkdir()
    homes = {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark")}
    return {**homes, "XDG_CACHE_HOME": str(tmp_path / "caches of me"), "PATH": os.environ["PATH"]}


def written(environ: Environ) -> None:
    Path(environ[OPTIONS].split("-XX:ArchiveClassesAtExit=")[1].rstrip('"')).write_text("classes")


def test_every_start_uses_the_archive_of_its_java_and_spark(environ: Environ, tmp_path: Path) -> None:
    assert class_data_options(environ) == {}
    archive = store(environ, written)
    assert class_data_options(environ) == {OPTIONS: f'"-XX:SharedArchiveFile={archive}"'}
    assert class_data_options({**environ, OPTIONS: "-Da=b"}) == {OPTIONS: f'-Da=b "-XX:SharedArchiveFile={archive}"'}
    (tmp_path / "spark/jars/updated.jar").touch()
    os.utime(tmp_path / "spark/jars", (1, 1))
    assert class_data_options(environ) == {}


def test_an_archive_that_the_user_names_stays(environ: Environ) -> None:
    store(environ, written)
    assert class_data_options({**environ, OPTIONS: "-XX:SharedArchiveFile=/mine.jsa"}) == {}


def test_an_archive_that_others_may_write_is_not_run(environ: Environ) -> None:
    store(environ, written).chmod(0o664)
    assert class_data_options(environ) == {}


@pytest.mark.parametrize("missing", ["java/bin/java", "spark/jars"])
def test_without_java_or_spark_it_is_theirs_to_complain(environ: Environ, tmp_path: Path, missing: str) -> None:
    store(environ, written)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    assert class_data_options({**environ, "PATH": ""}) == {}


def test_a_half_archive_is_none(environ: Environ, tmp_path: Path) -> None:
    def killed(given: Environ) -> None:
        written(given)
        raise KeyboardInterrupt

    def refused(given: Environ) -> None:
        written(given)
        (tmp_path / "spark/bin/spark-submit").write_text("#!/bin/sh\necho Unable to use shared archive. >&2\nexit 1\n")

    cases: list[tuple[Callable[[Environ], None], type[BaseException], str | None]] = [
        (killed, KeyboardInterrupt, None),
        (lambda _: None, JobFailedError, "Java wrote no archive of classes to .*; is there space, and is it Java 13 or later"),
        (refused, JobFailedError, "Java does not take the archive of classes that it wrote: Unable to use shared archive"),
    ]
    for refresh, error, words in cases:
        with pytest.raises(error, match=words):
            store(environ, refresh)
    assert list(archive_file(environ).parent.iterdir()) == []


def test_no_spark_is_an_error(environ: Environ, tmp_path: Path) -> None:
    (tmp_path / "spark/bin/spark-submit").unlink()
    with pytest.raises(ConfigurationError, match="spark-submit was not found"):
        store({**environ, "SPARK_HOME": str(tmp_path), "PATH": ""}, written)


@pytest.mark.spark
@pytest.mark.long  # Java takes a minute to store its classes
def test_java_maps_what_it_stored(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = (sys.executable, "-m", "airflow_dynamic_tables.cli.main", "spark", "archive", "--output", "json")
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout)["archive"] == str(archive_file(environ))
    options = class_data_options(environ)[OPTIONS]
    shown = subprocess.run(
        [Path(sys.executable).parent / "spark-submit", "--version"],
        env={**spark_environment(environ), OPTIONS: f"{options} -Xlog:class+load"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in shown.stdout
