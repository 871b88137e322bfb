"""Iceberg tables in a Hive metastore: what that alone refuses or can break."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CommitRejectedError
from tests.support.benches.catalogs import empty_hive_catalog, new_name
from tests.support.benches.registering import register_in
from tests.support.benches.staging import REVENUE, Bench
from tests.support.metastore import HiveMetastore

pytestmark = [pytest.mark.metastore, pytest.mark.long]


def test_a_metastore_that_keeps_types_refuses_a_commit_and_says_what_to_set(
    hive_metastore: HiveMetastore, tmp_path: Path
) -> None:
    name = new_name()
    empty_hive_catalog(name, hive_metastore).close()
    server = IcebergServer(name, "hive", {"uri": hive_metastore.uri, "warehouse": f"file://{tmp_path}/warehouse"})
    with closing(IcebergCatalog(name, server)) as catalog:
        catalog.open()
        register_in(catalog, REVENUE)
        bench = Bench(catalog.stores()[0])
        bench.refresh({"1": [1]})
        with ThreadPoolExecutor(4) as threads:  # of which each has a connection
            assert [*threads.map(lambda _: catalog.list_tables("sales"), range(8))] == [["revenue"]] * 8
        with pytest.raises(CommitRejectedError, match=r"set hive\.metastore\.disallow\..*changes to false"):
            bench.rebuild({"1": [7]}, Column("n", "bigint"), Column("ds", "string"))
        assert bench.rows() == {"1": [1]}
