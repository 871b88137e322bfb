"""spark-submit on this machine: its command line, its process, and why it failed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.runners.environment import check_java, find_spark_submit, spark_environment
from airflow_dynamic_tables.runners.package import application_file, application_zip

_LOG_TAIL = 40
"""Lines of Spark's log that an error shows: its last Java stack, and what led to it."""


_FLAGS = {
    "deploy_mode": "--deploy-mode",
    "yarn_queue": "--queue",
    "num_executors": "--num-executors",
    "executor_cores": "--executor-cores",
    "executor_memory": "--executor-memory",
    "total_executor_cores": "--total-executor-cores",
    "driver_memory": "--driver-memory",
    "packages": "--packages",
    "exclude_packages": "--exclude-packages",
    "repositories": "--repositories",
    "jars": "--jars",
    "files": "--files",
    "archives": "--archives",
    "driver_class_path": "--driver-class-path",
    "properties_file": "--properties-file",
    "proxy_user": "--proxy-user",
    "principal": "--principal",
    "keytab": "--keytab",
}


def spark_submit_command(binary: str, plan_location: str, settings: SparkSettings, master: str) -> list[str]:
    """The command line that runs the job of a plan."""
    options = [(flag, getattr(settings, name)) for name, flag in _FLAGS.items()]
    py_files = ",".join(filter(None, (str(application_zip()), settings.py_files)))
    return [
        binary,
        *("--master", master, "--name", "dynamic-tables", "--py-files", py_files),
        *(text for flag, value in options if value is not None for text in (flag, str(value))),
        *(text for key, value in settings.conf.items() for text in ("--conf", f"{key}={value}")),
        *(str(application_file()), "--plan", plan_location),
    ]


def submit(plan: RefreshPlan, settings: SparkSettings, master: str, on_line: Callable[[str], None]) -> None:
    """Run the job with spark-submit on this machine and wait for it; an exception in the caller kills it.

    :param on_line: gets every line of its output.
    :raises ConfigurationError: when spark-submit or Java is missing.
    :raises JobFailedError: when the job failed, in Spark's own words.
    """
    environ = {**os.environ, **settings.env_vars}
    check_java(environ)
    command = spark_submit_command(find_spark_submit(environ), plan.plan_location, settings, master)

    tail: list[str] = []
    with subprocess.Popen(
        command,
        env=spark_environment(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                tail = [*tail, line.rstrip("\n")][-_LOG_TAIL:]
                on_line(tail[-1])
            code = process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise

    if code != 0:
        raise job_failure(plan, tail) or JobFailedError(last_words(tail, code), log_tail="\n".join(tail))


def job_failure(plan: RefreshPlan, log_tail: Sequence[str] = ()) -> JobFailedError | None:
    """The error that the job left beside its stage; ``None`` when it did not get so far."""
    try:
        error = JobError.from_json(read_text(plan.error_location))
    except (OSError, ValueError):
        return None
    return JobFailedError(error.message, application_id=error.application_id, log_tail="\n".join(log_tail))


def last_words(tail: Sequence[str], code: int) -> str:
    """The line that says most when Spark died before the job could speak."""
    java = [line for line in tail if line.startswith("Exception in thread")]
    telling = [line for line in reversed(tail) if "Exception" in line or "Error" in line]
    return f"spark-submit ended with code {code}: {[*java, *telling, *reversed(tail), 'no output'][0].strip()}"
