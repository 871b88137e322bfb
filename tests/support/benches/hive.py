"""The bench on a Hive metastore: every test has a database of its own, below the test's folder."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from hive_metastore.ttypes import Database

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.benches.staging import Bench


def hive_bench(metastore: Metastore, folder: Path, file_format: str = "parquet") -> Bench:
    database = f"sales_{uuid4().hex}"
    metastore.call("create_database", Database(database, None, f"file://{folder}/warehouse/{database}.db", {}))
    return Bench(MetastoreStore("lake", metastore), ObjectPath(database, "revenue"), hive_format=file_format)


def uri_of(bench: Bench) -> str:
    assert isinstance(bench.store, MetastoreStore)
    return bench.store.metastore.uri
