"""Every type of catalog joins here; the contract suite then runs over it: in memory, SQLite, PostgreSQL, Hive metastores."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.catalog.sql.catalog import MemoryCatalog, SqlCatalog
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import Column
from tests.contracts.catalogs.samples import KINDS, NAMES, TABLE, Contract, Filled, Limits
from tests.support.benches.catalogs import empty_hive_catalog, new_name
from tests.support.benches.iceberg import ICEBERG, iceberg_server
from tests.support.metastore import HiveMetastore
from tests.support.suite import lacking

SQL = ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large])]


def _in_temporary_folder(table: AnyTable) -> AnyTable:
    """A table whose folder a metastore can make."""
    if isinstance(table, CatalogTable) and table.location is not None:
        return replace(table, location=f"file://{tempfile.gettempdir()}/dynamic-tables-contract-{os.getpid()}")
    return table


HIVE_LIMITS = Limits(
    names=("orders", "select", "a_b", "1", "_", "x" * 120),
    case_sensitive=False,
    tables=20,
    partitions=60,
    kept=_in_temporary_folder,
)


def _as_iceberg(table: AnyTable) -> AnyTable:
    """A table as an Iceberg catalog holds it, with its partition keys among its columns; in place of a view another table."""
    if isinstance(table, CatalogDynamicTable):
        return table
    if isinstance(table, CatalogView):
        return CatalogTable(table.columns and (replace(table.columns[0], nullable=True),), comment=table.comment)
    keys = tuple(Column(key, "string") for key in table.partition_keys)
    columns = tuple(replace(column, nullable=True) for column in table.columns)
    return replace(table, columns=(*columns, *keys), format="iceberg", location=None, options={})


def iceberg_limits(kind: str) -> Limits:
    """What an Iceberg catalog of a kind does differently."""
    is_folding = kind in ("hive", "glue")
    names = HIVE_LIMITS.names if is_folding else tuple(name for name in NAMES if "." not in name)
    return Limits(names, not is_folding, tables=20, partitions=0, kept=_as_iceberg)


HIVE_LACKS = pytest.mark.lacks("dots in names", "renamed databases")
HIVE = {"hive": "hive_metastore", "hive on postgres": "hive_metastore_on_postgres"}


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.lacks("several writers")),
        *SQL,
        pytest.param("hive", marks=[pytest.mark.metastore, HIVE_LACKS]),
        pytest.param("hive on postgres", marks=[pytest.mark.metastore, pytest.mark.postgres, pytest.mark.large, HIVE_LACKS]),
        *ICEBERG,
    ]
)
def contract(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[Contract]:
    """Every type of catalog that can be written; one more joins by a parameter here."""
    name, made = new_name(), list[ReadableWritableCatalog]()
    if request.param == "memory":
        only = MemoryCatalog(name)
        yield Contract(lambda: only)
        return
    if request.param.startswith("iceberg"):
        with iceberg_server(request.param, tmp_path, request) as server:

            def iceberg_client() -> ReadableWritableCatalog:
                made.append(IcebergCatalog(server.name, server))
                return made[-1]

            yield Contract(iceberg_client, iceberg_limits(server.kind))
            for catalog in made:
                catalog.close()
        return
    metastore: HiveMetastore | None = None
    if request.param in HIVE:
        metastore = request.getfixturevalue(HIVE[request.param])
        empty_hive_catalog(name, metastore).close()
    elif request.param == "sqlite":
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    else:
        url = str(request.getfixturevalue("catalogs_url"))

    def client() -> ReadableWritableCatalog:
        if metastore is not None:
            made.append(HiveCatalog(name, Metastore(metastore.uri)))
        else:
            made.append(SqlCatalog(name, Database(url), f"file://{tmp_path}/warehouse"))
        return made[-1]

    yield Contract(client, HIVE_LIMITS if metastore is not None else Limits())
    for catalog in made:
        catalog.close()


@pytest.fixture
def limits(contract: Contract) -> Limits:
    """What the catalog does differently."""
    return contract.limits


@pytest.fixture
def lacks(request: pytest.FixtureRequest) -> set[str]:
    """What the catalog does not have, where a test looks at that, too."""
    return lacking(request.node)


@pytest.fixture
def catalog(contract: Contract) -> ReadableWritableCatalog:
    """An empty catalog of every type, opened."""
    made = contract.client()
    made.open()
    return made


@pytest.fixture
def sales(catalog: ReadableWritableCatalog) -> ReadableWritableCatalog:
    """A catalog with an empty database ``sales``."""
    catalog.create_database("sales", CatalogDatabase())
    return catalog


@pytest.fixture(params=["table", "dynamic table", pytest.param("view", marks=pytest.mark.needs("details"))])
def table(request: pytest.FixtureRequest, limits: Limits) -> AnyTable:
    """A table of every kind, as the catalog keeps it."""
    return limits.kept(KINDS[request.param])


@pytest.fixture
def filled(sales: ReadableWritableCatalog, limits: Limits) -> Filled:
    """A catalog to be read; one that cannot be written joins by overriding this."""
    for name in ("customers", "orders"):
        sales.create_table(ObjectPath("sales", name), limits.kept(TABLE))
    kept = limits.kept(TABLE)
    return Filled(sales, "sales", ("customers", "orders"), tuple(column.name for column in kept.columns))
