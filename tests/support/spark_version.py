"""The version of Spark that runs the jobs of the tests, and tests of what only later versions have."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest


def spark_of_this_python() -> tuple[int, ...]:
    """Return the version of the PySpark that is imported here; empty without one that has Spark itself."""
    package = find_spec("pyspark")
    return _version(Path(package.origin).parent) if package is not None and package.origin else ()


def _version(home: Path) -> tuple[int, ...]:
    jars = home.glob("jars/spark-core_*.jar")
    return next((tuple(map(int, jar.stem.rpartition("-")[2].split("."))) for jar in jars), ())


PINNED = tuple(map(int, version("pyspark-client").split(".")))
"""That of the project."""

SPARK_VERSION = _version(Path(os.environ["SPARK_HOME"])) if os.environ.get("SPARK_HOME") else spark_of_this_python()
"""That of ``SPARK_HOME``, as in ``tests/engines/test_spark_versions.py``, or of the installed PySpark."""


def since(*first: int) -> pytest.MarkDecorator:
    """Mark what earlier versions do not have, such as ``since(4, 1)``."""
    return pytest.mark.skipif(first > SPARK_VERSION, reason=f"Spark {'.'.join(map(str, first))} has this first")
