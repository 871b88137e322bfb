"""The version of Airflow that runs the tests, and tests of what only later versions have."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.version_compat import get_base_airflow_version_tuple

AIRFLOW_VERSION = get_base_airflow_version_tuple()


def since(*first: int) -> pytest.MarkDecorator:
    """Mark what earlier versions do not have, such as ``since(3, 3)``."""
    return pytest.mark.skipif(first > AIRFLOW_VERSION, reason=f"Airflow {'.'.join(map(str, first))} has this first")
