"""The tables that both a refresh and another engine change, and what else the tests beside other engines share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.refreshing.conftest import place
from tests.contracts.refreshing.place import Place
from tests.services.conftest import clock, workspace
from tests.support.iceberg_shared import SharedTable, shared_table
from tests.support.iceberg_spark import IcebergSpark
from tests.support.trino import Trino

__all__ = ["clock", "place", "shared", "workspace"]


@pytest.fixture
def shared(
    request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path, iceberg_spark: IcebergSpark
) -> Iterator[SharedTable]:
    """A table that was never refreshed, and Spark with Iceberg's own library on its catalog, by default in the ``sql`` one."""
    with shared_table(getattr(request, "param", "sql"), tmp_path, empty_state, request, iceberg_spark) as opened:
        yield opened


@pytest.fixture
def trino_table(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path, trino: Trino) -> Iterator[SharedTable]:
    """A table that was never refreshed, and Trino on its catalog, by default in the ``sql`` one."""
    with shared_table(getattr(request, "param", "sql"), tmp_path, empty_state, request, trino) as opened:
        yield opened


@pytest.fixture
def two_days(place: Place) -> Place:
    """A table with two days, each of which a refresh made."""
    place.refresh(1, [11], token="d1")
    place.refresh(2, [21], token="d2")
    return place
