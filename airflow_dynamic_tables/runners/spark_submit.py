"""Runner for spark-submit, and the application files that a job needs on the cluster."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import subprocess
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import airflow_dynamic_tables
from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans, outcomes_location
from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError, JobMisfitError
from airflow_dynamic_tables.runners.base import NO_VARIABLES, Runner, refuse_templates, tasks_done
from airflow_dynamic_tables.runners.spark_home import find_java, find_spark_submit, spark_environment

_PACKAGE = Path(airflow_dynamic_tables.__file__).parent


def application_file() -> Path:
    """The job's main file."""
    return _PACKAGE / "jobs" / "main.py"


def application_zip() -> Path:
    """The zip of the package for ``--py-files``; created once per content, in a private folder."""
    files = sorted(file for part in ("*.py", "core/**/*.py", "jobs/**/*.py") for file in _PACKAGE.glob(part))
    # Only those top-level modules that the job imports: the others may require Airflow.
    files = [file for file in files if file.parent != _PACKAGE or file.name in ("__init__.py", "exceptions.py", "redaction.py")]
    content = {str(file.relative_to(_PACKAGE.parent)): file.read_bytes() for file in files}
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:16]
    target = private_folder() / f"airflow_dynamic_tables-{digest}.zip"
    if not target.exists():
        # By a unique name, also among threads.
        with (
            tempfile.NamedTemporaryFile(dir=target.parent, suffix=".writing", delete=False) as half,
            zipfile.ZipFile(half, "w") as archive,
        ):
            for name, data in content.items():
                archive.writestr(name, data)
        Path(half.name).replace(target)
    return target


def private_folder() -> Path:
    """A private folder of this user in the temporary folder.

    :raises ConfigurationError: when another user owns or can write it: the job would execute that user's files.
    """
    folder = Path(tempfile.gettempdir()) / f"airflow-dynamic-tables-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        mistake = "is no folder, belongs to another user or is writable by others"
        raise ConfigurationError(f"{folder} {mistake}; remove it, or set TMPDIR.")
    return folder


_LOG_TAIL = 40
"""Lines of Spark's log in an error: the last Java stack and the lines before it."""

_BAR = re.compile(r"\[Stage \d+:[=> ]*\((\d+) \+ \d+\) / (\d+)\]")
"""A stage in Spark's progress bar: numbers of finished, running and all tasks."""

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
    return _command(binary, ("--plan", plan_location), settings, master)


def _command(binary: str, job: Sequence[str], settings: SparkSettings, master: str) -> list[str]:
    options = [(flag, getattr(settings, name)) for name, flag in _FLAGS.items()]
    py_files = ",".join(filter(None, (str(application_zip()), settings.py_files)))
    return [
        binary,
        *("--master", master, "--name", "dynamic-tables", "--py-files", py_files, "--conf", "spark.ui.showConsoleProgress=true"),
        *(text for flag, value in options if value is not None for text in (flag, str(value))),
        *(text for key, value in settings.conf.items() for text in ("--conf", f"{key}={value}")),
        *(str(application_file()), *job),
    ]


@dataclass(slots=True)
class SparkSubmitRunner(Runner):
    """spark-submit as a child process on this machine."""

    settings: SparkSettings
    master: str
    on_line: Callable[[str], None] = lambda _line: None
    _process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        """Reject settings that only an Airflow task can render: Spark would use the template itself, for example as a password.

        :raises ConfigurationError: names the setting.
        """
        refuse_templates(self.settings)

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        code, tail = self._submit(("--plan", plan.plan_location), environment)
        if code != 0:
            raise job_failure(plan, tail) or submit_failure(tail, code)

    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:
        """See :meth:`Runner.run_query_tests`. The driver has to run on this machine."""
        with tempfile.TemporaryDirectory() as folder:
            plans = Path(folder, "tests.json")
            plans.write_text(tests.to_json(), encoding="utf-8")
            code, tail = self._submit(("--tests", plans.as_uri()), environment)
            outcomes = Path(outcomes_location(str(plans)))
            if code != 0 or not outcomes.exists():
                raise submit_failure(tail, code)
            return QueryTestOutcomes.from_json(outcomes.read_text(encoding="utf-8"))

    def _submit(self, job: Sequence[str], environment: Mapping[str, str]) -> tuple[int, deque[str]]:
        environ = {**os.environ, **self.settings.env_vars, **environment}
        find_java(environ)
        command = _command(find_spark_submit(environ), job, self.settings, self.master)
        tail: deque[str] = deque(maxlen=_LOG_TAIL)
        with _started(command, spark_environment(environ)) as self._process:
            try:
                for line in map(str.rstrip, self._process.stdout or ()):
                    stages = _BAR.findall(line)
                    if stages:
                        self.on_line(tasks_done(*(sum(map(int, numbers)) for numbers in zip(*stages, strict=True))))
                    elif line:
                        tail.append(line)
                        self.on_line(line)
                code = self._process.wait()
            except BaseException:
                _kill(self._process)
                raise
        return code, tail

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            _kill(self._process)


def _started(command: list[str], environ: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        todo = "check that it may be executed, and the length of 'conf' and 'env_vars'"
        raise ConfigurationError(f"{command[0]} cannot be started: {error.strerror}; {todo}.") from error


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def job_failure(plan: RefreshPlan, log_tail: Iterable[str] = ()) -> JobFailedError | None:
    """The error that the job wrote beside its stage; ``None`` without one."""
    try:
        error = JobError.from_json(read_text(plan.error_location))
    except (OSError, ValueError):
        return None
    kind = JobMisfitError if error.is_misfit else JobFailedError
    return kind(error.message, application_id=error.application_id, log_tail="\n".join(log_tail))


def submit_failure(tail: Iterable[str], code: int) -> JobFailedError:
    """The error of a spark-submit that ended before the job could write its error.

    :param tail: the last lines of its output; the most informative one is the message.
    """
    lines = list(tail)
    java = [line for line in lines if line.startswith("Exception in thread")]
    telling = [line for line in reversed(lines) if "Exception" in line or "Error" in line]
    last_words = [*java, *telling, *reversed(lines), "no output"][0].strip()
    return JobFailedError(f"spark-submit ended with code {code}: {last_words}", log_tail="\n".join(lines))
