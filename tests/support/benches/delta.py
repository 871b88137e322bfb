"""The bench on Delta tables: an entry in a catalog says where each lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.clients.files import create_file
from airflow_dynamic_tables.clients.stores import EntryStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.formats.delta.table import DeltaLakeTable
from tests.support.benches.staging import COLUMNS, NOON, Bench

LACKS = pytest.mark.lacks("Iceberg's names of files")
"""What a maintenance keeps there has other names: tests/formats/delta/test_retention.py."""

DELTA = pytest.param("delta/sqlite", marks=LACKS)
"""Parameter of a fixture: Delta tables of a ``sql`` catalog."""


def delta_bench(catalog: ReadableWritableCatalog) -> Bench:
    """A bench for Delta tables of a catalog; every bench has a database of its own."""
    store = next(store for store in catalog.stores() if isinstance(store, EntryStore))
    return Bench(store, ObjectPath(f"sales_{uuid4().hex}", "revenue"), format="delta", catalog=catalog)


def root(bench: Bench) -> Path:
    """The folder of a bench's table on this disk, whose URI may be a metastore's, with one slash."""
    location = bench.table.folder()
    assert location is not None
    return Path(location.removeprefix("file:").removeprefix("//"))


def table_at(location: str) -> DeltaLakeTable:
    return DeltaLakeTable(EntryStore("lake", lambda *_: location), ObjectPath("sales", "revenue"))


def staged_at(location: str, token: str, rows: dict[str, list[int]], *days: str) -> tuple[StagedTable, CommitRequest]:
    """A stage with these rows by day, and what its commit is asked for; no day is the whole table."""
    stage = table_at(location).stage(token)
    folder, files = stage.begin(), []
    for day, numbers in rows.items():
        uri = f"{folder}/data/ds={day}/part-0.parquet"
        with create_file(uri) as stream:
            pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), stream)
            size = stream.tell()
        files.append(StagedFile(uri, size))
    touched = tuple({"ds": day} for day in rows)
    result = RefreshResult(token, "job", sum(map(len, rows.values())), tuple(files), COLUMNS, touched)
    planned = PartitionSet.of({"ds": day} for day in days) if days else WHOLE_TABLE
    return stage, CommitRequest(result, NOON, {}, ("ds",), planned)


def refresh_at(location: str, rows: dict[str, list[int]], *days: str, before: Callable[[], None] = lambda: None) -> Version:
    """A refresh of such a table, as :func:`staged_at`."""
    stage, request = staged_at(location, uuid4().hex, rows, *days)
    return stage.commit(request, before)
