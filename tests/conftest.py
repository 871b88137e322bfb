"""Fixtures that several folders share, and an Airflow home of the test run's own."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

# Airflow reads its environment when it is imported: before that of any test module.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


def pytest_unconfigure(config: pytest.Config) -> None:  # noqa: ARG001 - pytest's signature
    """Remove the Airflow home."""
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)
