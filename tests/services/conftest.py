"""The bench of versions, on both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.benches.versions import VersionBench


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def version_bench(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[VersionBench]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_state")()
    else:
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}"
    bench = VersionBench(tmp_path, url)
    yield bench
    bench.workspace.close()
