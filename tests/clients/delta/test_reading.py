"""Reading many entries of a log."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path

from airflow_dynamic_tables.clients.delta.log import DeltaLog

FILES = 500


def test_the_entries_of_many_versions_are_not_in_memory_at_once(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path.as_uri())
    for version in range(64):
        log.put(version, [{"add": {"path": f"{version}/{number}.parquet"}} for number in range(FILES)])
    few, many = (_peak(log, versions) for versions in (8, 64))
    # How many entries wait for their reader depends on the threads; eight times as many would be all of them.
    assert many < 3 * few


def _peak(log: DeltaLog, versions: int) -> int:
    """Bytes of memory at the most while so many entries are read."""
    tracemalloc.start()
    try:
        deque(log.entries(range(versions)), maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_entries_come_in_the_order_of_their_versions(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path.as_uri())
    for version in range(20):
        log.put(version, [{"commitInfo": {"timestamp": version}}])
    assert [actions and actions[0]["commitInfo"]["timestamp"] for actions in log.entries([*range(20), 99])] == [*range(20), None]
