"""Iceberg catalogs of every kind that tests work on: a name for each in ``KINDS``, and what its client is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from tests.support.benches.catalogs import empty_hive_catalog, new_name
from tests.support.iceberg_rest.apache import ApacheRest
from tests.support.iceberg_rest.server import IcebergRest
from tests.support.object_store import ObjectStore, running_object_store

_MARKS: dict[str, list[pytest.MarkDecorator]] = {
    "rest": [],
    "apache rest": [pytest.mark.large],
    "sql": [pytest.mark.large],
    "postgres": [pytest.mark.postgres, pytest.mark.large],
    "hive": [pytest.mark.metastore, pytest.mark.postgres, pytest.mark.large],
    "glue": [pytest.mark.large],
}
"""The stand-in for a REST catalog is always tried; the others differ in what PyIceberg does for them, or are other servers."""

_LACKS = pytest.mark.lacks("details", "dots in names", "renamed databases")

ICEBERG = [pytest.param(f"iceberg on {kind}", marks=[*marks, _LACKS]) for kind, marks in _MARKS.items()]
"""Parameters of a fixture: every kind."""


@contextmanager
def iceberg_server(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[IcebergServer]:
    """An empty Iceberg catalog of a kind; its warehouse is a folder here."""
    kind = kind.removeprefix("iceberg on ")
    warehouse = {"warehouse": f"file://{folder}/warehouse"}
    name = new_name()
    if kind == "rest":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        rest.empty()
        yield IcebergServer(name, "rest", {"uri": rest.uri, **warehouse})
    elif kind == "apache rest":
        apache: ApacheRest = request.getfixturevalue("apache_rest")
        apache.empty()
        yield IcebergServer(name, "rest", {"uri": apache.uri, **warehouse})
    elif kind == "hive":
        metastore = request.getfixturevalue("hive_metastore_on_postgres")  # which lets columns have any types
        with closing(empty_hive_catalog(name, metastore)):
            yield IcebergServer(name, "hive", {"uri": metastore.uri, **warehouse})
    elif kind == "glue":
        with running_object_store() as store:
            yield IcebergServer(name, "glue", {**glue_properties(store), **warehouse})
    else:
        url = request.getfixturevalue("postgres_state")() if kind == "postgres" else f"sqlite:///{folder}/iceberg.db"
        yield IcebergServer(name, "sql", {"uri": url, **warehouse})


def glue_properties(store: ObjectStore) -> dict[str, str]:
    keys = {"glue.access-key-id": "tests", "glue.secret-access-key": "tests"}
    return {"glue.endpoint": store.url, "glue.region": "us-east-1", **keys}


@contextmanager
def iceberg_catalog(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[IcebergCatalog]:
    with iceberg_server(kind, folder, request) as server, closing(IcebergCatalog(server.name, server)) as catalog:
        catalog.open()
        yield catalog
