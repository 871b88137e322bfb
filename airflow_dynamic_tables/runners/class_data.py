"""Spark's classes as Java has them in memory, stored once per machine: the next start maps them instead of reading jars.

It is Java's class-data sharing (JEP 350). Java itself refuses an archive of another Java or other jars, and starts without it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.finding import find_java, find_spark_submit, search_path

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable from which spark-submit takes options of the Java that it starts on this machine, and of no other."""

_ARCHIVE = "-XX:SharedArchiveFile="


def archive_file(environ: Mapping[str, str]) -> Path:
    """Where the archive of this Java and this Spark lies, below the user's folder of caches.

    :raises ConfigurationError: when there is no Java or no Spark.
    """
    java, jars = Path(find_java(environ)).resolve(), _jars(environ)
    identity = [(str(path), path.stat().st_mtime_ns) for path in (java, jars)]
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    caches = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "airflow-dynamic-tables" / f"spark-classes-{digest}.jsa"


def class_data_options(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable of spark-submit that names the archive; nothing where there is none, or the user names another one."""
    options = environ.get(OPTIONS, "")
    try:
        archive = archive_file(environ)
        status = archive.stat()
    except (ConfigurationError, OSError, RuntimeError):  # the last: this user has no home
        return {}
    # Java runs what is in it, so nobody else may have written it.
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or _ARCHIVE in options:
        return {}
    return {OPTIONS: f"{options} {_quoted(_ARCHIVE, archive)}".strip()}


def store(environ: Mapping[str, str], refresh: Callable[[dict[str, str]], None]) -> Path:
    """Make the archive, anew if there is one: what Java loads for a refresh.

    :param refresh: refreshes a table by spark-submit with the environment that it is given.
    :return: where it is.
    :raises ConfigurationError: when there is no Java or no Spark.
    :raises JobFailedError: when Java wrote none, or one that it does not take.
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
    """An option as Spark's launcher reads it: apart by blanks, unless in quotation marks."""
    return f'"{option}{file}"'


def _jars(environ: Mapping[str, str]) -> Path:
    """The folder of Spark's jars, of the spark-submit that is run."""
    homes = [Path(find_spark_submit(environ)).resolve().parent.parent]
    if (spec := find_spec("pyspark")) is not None and spec.origin is not None:
        homes.append(Path(spec.origin).parent)
    for home in homes:
        if (jars := home / "jars").is_dir():
            return jars
    raise ConfigurationError(f"Spark's jars were not found in {homes[0]}; set SPARK_HOME.")
