"""Delta Kernel writes compacted entries into the log of a table of ours; nothing here reads them, and nothing trips over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import Place
from tests.engines.test_delta_features import maintain
from tests.engines.test_delta_replaced import folder
from tests.support.delta_kernel import DeltaKernel, running_delta_kernel

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["sql/delta"], indirect=True)]


@pytest.fixture(scope="module")
def kernel(java: None) -> Iterator[DeltaKernel]:  # noqa: ARG001 - it must be there
    with running_delta_kernel() as opened:
        yield opened


def compact(place: Place, kernel: DeltaKernel, first: int = 1) -> Path:
    """Compact the log from an entry to the last one, and return the file."""
    root = folder(place)
    snapshot = open_snapshot(f"file://{root}")
    assert snapshot is not None
    kernel.compact_log(root, first, snapshot.version)
    return root / "_delta_log" / f"{first:020}.{snapshot.version:020}.compacted.json"


def test_refreshes_and_rollbacks_go_on(two_days: Place, kernel: DeltaKernel) -> None:
    two_days.by_hand(1, [12])
    assert compact(two_days, kernel).exists()
    assert two_days.rows() == {1: [12], 2: [21]}
    assert two_days.refresh(3, [31], token="d3").number == 4
    compact(two_days, kernel, first=2)
    assert two_days.rows() == {1: [12], 2: [21], 3: [31]}
    assert two_days.roll_back(2, "back").number == 5
    assert two_days.rows() == {1: [11], 2: [21]}
    assert show_table(two_days.workspace, two_days.table).status.version == 5


def test_a_commit_lands_beside_a_compaction(two_days: Place, kernel: DeltaKernel) -> None:
    two_days.at(Step.COMMIT, "d3", lambda: _compact(two_days, kernel))
    assert two_days.refresh(3, [31], token="d3").number == 3
    assert two_days.rows() == {1: [11], 2: [21], 3: [31]}
    assert two_days.history()["d3"] == ("SUCCEEDED", 3)


def _compact(place: Place, kernel: DeltaKernel) -> None:
    compact(place, kernel)


def test_the_maintenance_keeps_the_current_version(two_days: Place, kernel: DeltaKernel) -> None:
    compact(two_days, kernel)
    for number in range(12):
        two_days.by_hand(1, [number])
    compact(two_days, kernel, first=3)
    maintain(two_days)
    assert two_days.rows() == {1: [11], 2: [21]}
    assert two_days.refresh(3, [31]).number == 15
    assert two_days.rows() == {1: [11], 2: [21], 3: [31]}
