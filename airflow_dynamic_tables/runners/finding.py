"""Where Java and spark-submit are on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError


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


def find_java(environ: Mapping[str, str]) -> str:
    """Path of the Java that Spark will run: of ``JAVA_HOME``, or on the path. Spark cannot even say that there is none.

    :raises ConfigurationError: when there is none.
    """
    home = environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
    if program is None or not Path(program).exists():
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigurationError(f"There is no java {where}; Spark needs Java 17: apt-get install -y openjdk-17-jre-headless")
    return str(program)


def search_path(environ: Mapping[str, str]) -> str:
    """``PATH`` of spark-submit: this Python comes first, so that Spark's scripts, its driver and local workers run it."""
    return f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
