"""Catalogs of which tests share a server: a name of its own for each, an empty metastore."""

from __future__ import annotations

from itertools import count

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.metastore import HiveMetastore

_NUMBERS = count(1)


def new_name() -> str:
    """A name that no other catalog of the test run has."""
    return f"lake{next(_NUMBERS)}"


def empty_hive_catalog(name: str, metastore: HiveMetastore) -> HiveCatalog:
    """A catalog in the metastore of the test run, where whatever an earlier test left is dropped."""
    catalog = HiveCatalog(name, Metastore(metastore.uri))
    for database in catalog.list_databases():
        if database != "default":
            catalog.drop_database(database, cascade=True)
    for table in catalog.list_tables("default"):
        catalog.drop_table(ObjectPath("default", table))
    return catalog
