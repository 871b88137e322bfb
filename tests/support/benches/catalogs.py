"""Catalogs of which tests share a server: a name of its own for each, an empty metastore."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.metastore import HiveMetastore

_NUMBERS = count(1)


def new_name() -> str:
    return f"lake{next(_NUMBERS)}"


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


def empty_hive_catalog(name: str, metastore: HiveMetastore) -> HiveCatalog:
    """A catalog in the metastore of the test run, where whatever an earlier test left is dropped."""
    catalog = HiveCatalog(name, Metastore(metastore.uri))
    for database in catalog.list_databases():
        if database != "default":
            catalog.drop_database(database, cascade=True)
    for table in catalog.list_tables("default"):
        catalog.drop_table(ObjectPath("default", table))
    return catalog
