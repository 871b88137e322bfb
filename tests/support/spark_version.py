"""The version of Spark that runs the jobs of the tests, and tests of what only later versions have."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest


def _version() -> tuple[int, ...]:
    package = find_spec("pyspark")
    beside = Path(package.origin).parent if package is not None and package.origin else Path()
    jars = Path(os.environ.get("SPARK_HOME") or beside).glob("jars/spark-core_*.jar")
    return next((tuple(map(int, jar.stem.rpartition("-")[2].split("."))) for jar in jars), ())


SPARK_VERSION = _version()
"""That of ``SPARK_HOME``, as in ``tests/engines/test_spark_versions.py``, or of the installed PySpark."""


def since(*version: int) -> pytest.MarkDecorator:
    """Mark what earlier versions do not have, such as ``since(4, 1)``."""
    return pytest.mark.skipif(version > SPARK_VERSION, reason=f"Spark {'.'.join(map(str, version))} has this first")
