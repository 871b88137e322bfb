"""Every format that stages joins here with a factory; the contract suite then runs over it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.formats import FORMATS, TableFormat
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.formats.registry import TABLES, Module
from tests.support.benches.catalogs import sql_catalog_in
from tests.support.benches.delta import DELTA, LACKS, delta_bench
from tests.support.benches.hive import hive_bench
from tests.support.benches.iceberg import ICEBERG, iceberg_catalog
from tests.support.benches.jdbc import jdbc_bench
from tests.support.benches.registering import register_in
from tests.support.benches.staging import REVENUE, Bench
from tests.support.metastore import HiveMetastore


@pytest.fixture
def toy_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two lines that a format adds to the registries."""
    toy = TableFormat("toy", sink=True, file_format="parquet", keys_in_files=True)
    monkeypatch.setitem(FORMATS, "toy", toy)
    monkeypatch.setitem(TABLES, ("toy", FolderStore.kind), Module("tests.support.toy_format.table:ToyTable"))


@pytest.fixture(
    params=[
        pytest.param("toy/folder", marks=pytest.mark.lacks("catalog", "quarantine")),
        "iceberg/sqlite",
        pytest.param("iceberg/hidden", marks=pytest.mark.large),
        DELTA,
        pytest.param("delta/derby", marks=[pytest.mark.metastore, LACKS, pytest.mark.large]),
        pytest.param("iceberg/postgres", marks=[pytest.mark.postgres, pytest.mark.large]),
        pytest.param("parquet/derby", marks=pytest.mark.metastore),
        pytest.param("orc/postgres", marks=[pytest.mark.metastore, pytest.mark.postgres, pytest.mark.large]),
        pytest.param("jdbc/postgres", marks=[pytest.mark.postgres, pytest.mark.lacks("files")]),
        *ICEBERG,
    ]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "toy/folder":
        request.getfixturevalue("toy_format")
        yield Bench(FolderStore("lake", f"file://{tmp_path}/warehouse"), format="toy")
        return
    if request.param == "jdbc/postgres":
        yield jdbc_bench(request.getfixturevalue("tables_url"), tmp_path)
        return
    if request.param.startswith("iceberg on "):
        with iceberg_catalog(request.param, tmp_path, request) as made:
            register_in(made, REVENUE)
            yield Bench(made.stores()[0], names=ObjectPath("sales", "rev_1"))
        return
    if request.param.startswith("delta"):
        yield from _delta_bench(request, tmp_path)
        return
    if not request.param.startswith("iceberg"):
        derby = request.param.endswith("/derby")
        server: HiveMetastore = request.getfixturevalue("hive_metastore" if derby else "hive_metastore_on_postgres")
        with closing(Metastore(server.uri)) as metastore:
            yield hive_bench(metastore, tmp_path, request.param.partition("/")[0])
        return
    if request.param == "iceberg/postgres":
        url = request.getfixturevalue("postgres_state")()
    else:
        url = f"sqlite:///{shutil.copy(request.getfixturevalue('empty_state'), tmp_path)}"
    database = Database(url)
    catalog = SqlCatalog("lake", database, f"file://{tmp_path}/warehouse")
    catalog.open()
    hidden = ("ds", "bucket(4, ds)", "truncate(2, ds)")
    yield Bench(catalog.stores()[0], partition_keys=hidden if request.param == "iceberg/hidden" else ("ds",))
    catalog.close()


def _delta_bench(request: pytest.FixtureRequest, folder: Path) -> Iterator[Bench]:
    if request.param == "delta/sqlite":
        with sql_catalog_in(folder, request.getfixturevalue("empty_state")) as catalog:
            yield delta_bench(catalog)
        return
    server: HiveMetastore = request.getfixturevalue("hive_metastore")
    with closing(Metastore(server.uri)) as metastore:
        yield delta_bench(HiveCatalog("lake", metastore, f"file://{folder}/warehouse"))
