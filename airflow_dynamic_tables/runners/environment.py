"""What spark-submit needs on this machine: Java, Spark and an environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError

_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables by which PySpark makes every session one of Spark Connect."""


def find_spark_submit(environ: Mapping[str, str]) -> str:
    """Path of spark-submit: of ``SPARK_HOME``, beside this Python, or on the path.

    :raises ConfigurationError: when there is none.
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


def check_java(environ: Mapping[str, str]) -> None:
    """Spark cannot even say that there is no Java.

    :raises ConfigurationError: when there is none.
    """
    home = environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java", path=environ.get("PATH"))):
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigurationError(f"There is no java {where}; Spark needs Java 17: apt-get install -y openjdk-17-jre-headless")


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of this process while the body runs; afterwards they are again what they were."""
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
    """The environment of spark-submit: this Python comes first, so that driver and local workers run it.

    Nothing in it leads the job to a Spark Connect server: its session would be one there.
    """
    others = {name: value for name, value in environ.items() if name not in _OF_CONNECT}
    return {**others, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"}
