"""The bench on Delta tables: an entry in a catalog says where each lies."""

from __future__ import annotations

from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.stores import EntryStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.benches.staging import Bench

LACKS = pytest.mark.lacks("Iceberg's names of files")
"""What a maintenance keeps there has other names: tests/formats/delta/test_retention.py."""

DELTA = pytest.param("delta/sqlite", marks=LACKS)
"""Parameter of a fixture: Delta tables of a ``sql`` catalog."""


def delta_bench(catalog: ReadableWritableCatalog) -> Bench:
    """A bench for Delta tables of a catalog; every bench has a database of its own."""
    store = next(store for store in catalog.stores() if isinstance(store, EntryStore))
    return Bench(store, ObjectPath(f"sales_{uuid4().hex}", "revenue"), format="delta", catalog=catalog)
