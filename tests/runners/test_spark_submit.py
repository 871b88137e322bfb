"""spark-submit as a child process: what its job is given, how it is stopped, what it says when it fails."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner


@pytest.fixture
def plan(tmp_path: Path) -> RefreshPlan:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    stage = (tmp_path / "stage").as_uri()
    return RefreshPlan("t1", "a.b.c", now, RefreshAction.FULL, "why", "SELECT 1", "SELECT 1", stage, "parquet", True)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for spark-submit, to be written by the test; a java is there, too."""
    for program in ("java/bin/java", "spark/bin/spark-submit"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return tmp_path / "spark/bin/spark-submit"


def test_the_environment_is_the_jobs_alone(plan: RefreshPlan, submit: Path) -> None:
    submit.write_text('#!/bin/sh\necho "$OF_THE_DEFINITION $OF_THE_JOB"\n')
    lines: list[str] = []
    runner = SparkSubmitRunner(SparkSettings(env_vars={"OF_THE_DEFINITION": "a"}), "local[1]", lines.append)
    runner.run(plan, {"OF_THE_JOB": "b"})
    assert lines == ["a b"]
    assert not {"OF_THE_DEFINITION", "OF_THE_JOB"} & set(os.environ)


def test_a_job_is_stopped_with_everything_it_started(plan: RefreshPlan, submit: Path) -> None:
    submit.write_text("#!/bin/sh\nsleep 600 &\necho started\nwait\n")
    runner = SparkSubmitRunner(SparkSettings(), "local[1]", lambda _line: runner.stop())
    with pytest.raises(JobFailedError, match="spark-submit ended with code -9: started"):
        runner.run(plan, {})
    runner.stop()


def test_the_jobs_own_words_come_first(plan: RefreshPlan, submit: Path, tmp_path: Path) -> None:
    (tmp_path / "stage").mkdir()
    Path(plan.error_location.removeprefix("file://")).write_text(JobError("no such column", "app-1").to_json())
    submit.write_text("#!/bin/sh\necho SomeException: at length\nexit 1\n")
    with pytest.raises(JobFailedError, match=r"^no such column$") as raised:
        SparkSubmitRunner(SparkSettings(), "local[1]").run(plan, {})
    assert (raised.value.application_id, raised.value.log_tail) == ("app-1", "SomeException: at length")


def test_a_program_that_cannot_be_started(plan: RefreshPlan, submit: Path) -> None:
    submit.chmod(0o600)
    with pytest.raises(ConfigurationError, match="/spark-submit cannot be started: Permission denied; check that it may be exec"):
        SparkSubmitRunner(SparkSettings(), "local").run(plan, {})
    submit.chmod(0o700)
    settings = SparkSettings(conf={"spark.long": "x" * 10**7})
    with pytest.raises(
        ConfigurationError, match=r"/spark-submit cannot be started: Argument list too long; .* the length of 'conf'"
    ):
        SparkSubmitRunner(settings, "local").run(plan, {})


@pytest.mark.parametrize(
    "settings",
    [
        SparkSettings(conf={"spark.x": "{{ conn.lake.password }}"}),
        SparkSettings(env_vars={"X": "{{ var.value.x }}"}),
        SparkSettings(jars="{{var.json.jars[0]}}"),
    ],
)
def test_what_only_a_task_of_airflow_can_look_up_is_refused(settings: SparkSettings) -> None:
    with pytest.raises(ConfigurationError, match=r"asks Airflow for a variable, connection or param.*airflow dags trigger"):
        SparkSubmitRunner(settings, "local[1]")
