"""Location of Java and spark-submit on this machine, and the class data sharing archive that speeds up their start."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError


def find_spark_submit(environ: Mapping[str, str]) -> str:
    """Path of spark-submit: in ``SPARK_HOME``, beside this Python, or on the path.

    :raises ConfigurationError: when it is not found.
    """
    beside = Path(sys.executable).parent / "spark-submit"
    home = environ.get("SPARK_HOME")
    likely = Path(home, "bin", "spark-submit") if home else beside
    program = str(likely) if likely.exists() else shutil.which("spark-submit", path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError(
            "spark-submit was not found; set SPARK_HOME, or run: pip install 'airflow-dynamic-tables[pyspark]'"
        )
    return program


def find_java(environ: Mapping[str, str]) -> str:
    """Path of the Java that Spark will run: in ``JAVA_HOME``, or on the path. Spark itself does not report its absence.

    :raises ConfigurationError: when it is not found.
    """
    home = environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
    if program is None or not Path(program).exists():
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigurationError(f"There is no java {where}; Spark needs Java 17: apt-get install -y openjdk-17-jre-headless")
    return str(program)


def search_path(environ: Mapping[str, str]) -> str:
    """``PATH`` of spark-submit: this Python is first, so that Spark's scripts, driver and local workers use it."""
    return f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"


OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options of the Java process that spark-submit starts on this machine only."""

_ARCHIVE = "-XX:SharedArchiveFile="


def archive_file(environ: Mapping[str, str]) -> Path:
    """Path of the archive for this Java and this Spark, in the user's cache folder.

    :raises ConfigurationError: when Java or Spark is not found.
    """
    java, jars = Path(find_java(environ)).resolve(), _jars(environ)
    identity = [(str(path), path.stat().st_mtime_ns) for path in (java, jars)]
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    caches = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "airflow-dynamic-tables" / f"spark-classes-{digest}.jsa"


def class_data_options(environ: Mapping[str, str]) -> dict[str, str]:
    """The spark-submit variable that names the archive; empty when it does not exist, or the user configured another one."""
    options = environ.get(OPTIONS, "")
    try:
        archive = archive_file(environ)
        status = archive.stat()
    except (ConfigurationError, OSError, RuntimeError):  # RuntimeError: this user has no home
        return {}
    # Java executes the archive's classes, so no other user may be able to write it.
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or _ARCHIVE in options:
        return {}
    return {OPTIONS: f"{options} {_quoted(_ARCHIVE, archive)}".strip()}


def store(environ: Mapping[str, str], refresh: Callable[[dict[str, str]], None]) -> Path:
    """Create or replace the archive with the classes that Java loads for a refresh.

    :param refresh: refreshes a table by spark-submit with the given environment.
    :raises ConfigurationError: when Java or Spark is not found.
    :raises JobFailedError: when Java wrote no archive, or cannot load it.
    """
    archive = archive_file(environ)
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = archive.with_suffix(f".{os.getpid()}.writing")
    others = " ".join(option for option in environ.get(OPTIONS, "").split() if not option.startswith(_ARCHIVE))
    try:
        refresh({**environ, OPTIONS: f"{others} {_quoted('-XX:ArchiveClassesAtExit=', half)}".strip()})
        if not half.exists():
            todo = "is there space, and is it Java 13 or later?"
            raise JobFailedError(f"Java wrote no archive of classes to {archive.parent}; {todo}")
        tried = {**environ, "PATH": search_path(environ), OPTIONS: f"{others} -Xshare:on {_quoted(_ARCHIVE, half)}".strip()}
        command = [find_spark_submit(environ), "--version"]
        answer = subprocess.run(command, env=tried, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise JobFailedError(f"Java does not take the archive of classes that it wrote: {answer.stderr.strip()}")
        half.chmod(0o600)
        half.replace(archive)
    finally:
        half.unlink(missing_ok=True)
    return archive


def _quoted(option: str, file: Path) -> str:
    """An option in the quoting of Spark's launcher, which splits at blanks outside quotation marks."""
    return f'"{option}{file}"'


def _jars(environ: Mapping[str, str]) -> Path:
    """The folder of Spark's jars that belongs to the spark-submit found."""
    homes = [Path(find_spark_submit(environ)).resolve().parent.parent]
    if (spec := find_spec("pyspark")) is not None and spec.origin is not None:
        homes.append(Path(spec.origin).parent)
    for home in homes:
        if (jars := home / "jars").is_dir():
            return jars
    raise ConfigurationError(f"Spark's jars were not found in {homes[0]}; set SPARK_HOME.")


_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables by which PySpark makes every session a Spark Connect session."""


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process during the body, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of spark-submit.

    Variables of Spark Connect are removed, because the job's session would otherwise be a Spark Connect session.
    """
    others = {name: value for name, value in environ.items() if name not in _OF_CONNECT}
    return others | spark_variables(environ)


def spark_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The differences to ``environ``: this Python is first on the path, and Java uses the class archive."""
    return {"PATH": search_path(environ), **class_data_options(environ)}
