"""Other engines refuse a table whose snapshots or metadata files are not in the order of their times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.core.versions import Retention
from tests.support.benches.staging import Bench


@contextmanager
def clock_ahead(seconds: float) -> Iterator[None]:
    """The clock of this machine, for a while."""
    right = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + seconds)
        yield


@pytest.mark.parametrize("change", ["commit", "fence", "restore", "expire"])
def test_times_never_go_back(catalog: SqlCatalog, change: str) -> None:
    bench = Bench(catalog.stores()[0])
    with clock_ahead(3600):
        bench.refresh({"1": [1]})
        bench.refresh({"1": [2]})
    match change:
        case "commit":
            bench.refresh({"1": [3]})
        case "fence":
            bench.stage("zombie").fence()
        case "restore":
            bench.stage("back").restore(1, lambda: None)
        case "expire":
            retention = Retention(1, timedelta(hours=1))
            assert bench.table.expire(retention, datetime.now(UTC) + timedelta(days=30), tuple) == 1
    bench.refresh({"1": [4]})
    metadata = catalog.iceberg.load_table(("sales", "revenue")).metadata
    for times in (
        [snapshot.timestamp_ms for snapshot in metadata.snapshots],
        [entry.timestamp_ms for entry in metadata.snapshot_log],
        [*(entry.timestamp_ms for entry in metadata.metadata_log), metadata.last_updated_ms],
    ):
        assert times == sorted(set(times))
