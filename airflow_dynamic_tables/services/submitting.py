"""Submitting the Spark job: what is handed to spark-submit, how it is found and run, and why it failed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import airflow_dynamic_tables
from airflow_dynamic_tables.core.plan import JobError, RefreshPlan
from airflow_dynamic_tables.definitions.model import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.storage import read_text

_PACKAGE = Path(airflow_dynamic_tables.__file__).parent
_LOG_TAIL = 40
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


def application_file() -> Path:
    """The job's main file."""
    return _PACKAGE / "jobs" / "main.py"


def application_zip() -> Path:
    """The package as the job needs it on the cluster: ``--py-files``; made once for every content, in a private folder."""
    files = sorted(file for part in ("*.py", "core/*.py", "jobs/*.py") for file in _PACKAGE.glob(part))
    # Of the top level only what the job imports: the rest may want Airflow.
    files = [file for file in files if file.parent != _PACKAGE or file.name in ("__init__.py", "exceptions.py")]
    content = {str(file.relative_to(_PACKAGE.parent)): file.read_bytes() for file in files}
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:16]
    target = _private_folder() / f"airflow_dynamic_tables-{digest}.zip"
    if not target.exists():
        half = target.with_suffix(f".{os.getpid()}.writing")
        with zipfile.ZipFile(half, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        half.replace(target)
    return target


def _private_folder() -> Path:
    """A folder of this user's below the temporary one.

    :raises ConfigurationError: when somebody else made it first: the job would run what they put there.
    """
    folder = Path(tempfile.gettempdir()) / f"airflow-dynamic-tables-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        raise ConfigurationError(f"{folder} belongs to another user or is writable by others; remove it, or set TMPDIR.")
    return folder


def find_spark_submit(environ: Mapping[str, str]) -> str:
    """Path of spark-submit: of ``SPARK_HOME``, beside this Python, or on the path.

    :raises ConfigurationError: when there is none.
    """
    beside = Path(sys.executable).parent / "spark-submit"
    home = environ.get("SPARK_HOME")
    likely = Path(home, "bin", "spark-submit") if home else beside
    found = str(likely) if likely.exists() else shutil.which("spark-submit", path=environ.get("PATH"))
    if found is None:
        raise ConfigurationError(
            "spark-submit was not found; set SPARK_HOME, or run: pip install 'airflow-dynamic-tables[pyspark]'"
        )
    return found


def check_java(environ: Mapping[str, str]) -> None:
    """Spark cannot even say that there is no Java.

    :raises ConfigurationError: when there is none.
    """
    home = environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java", path=environ.get("PATH"))):
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigurationError(f"There is no java {where}; Spark needs Java 17: apt-get install -y openjdk-17-jre-headless")


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of spark-submit: this Python comes first, so that driver and local workers run it."""
    return {**environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"}


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
