"""The bench on Delta tables: an entry in a catalog says where each lies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import EntryStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.benches.staging import Bench

LACKS = pytest.mark.lacks("Iceberg's names of files")
"""What a maintenance keeps there has other names: tests/formats/delta/test_retention.py."""

DELTA = pytest.param("delta/sqlite", marks=LACKS)
"""Parameter of a fixture: Delta tables of a ``sql`` catalog."""


@contextmanager
def sql_catalog_in(folder: Path, empty_state: Path) -> Iterator[SqlCatalog]:
    """A catalog with a warehouse in a folder.

    :param empty_state: a database that is migrated already.
    """
    database = Database(f"sqlite:///{shutil.copy(empty_state, folder)}")
    catalog = SqlCatalog("lake", database, f"file://{folder}/warehouse")
    catalog.open()
    try:
        yield catalog
    finally:
        catalog.close()


def delta_bench(catalog: ReadableWritableCatalog) -> Bench:
    """A bench for Delta tables of a catalog; every bench has a database of its own."""
    store = next(store for store in catalog.stores() if isinstance(store, EntryStore))
    return Bench(store, ObjectPath(f"sales_{uuid4().hex}", "revenue"), format="delta", catalog=catalog)
