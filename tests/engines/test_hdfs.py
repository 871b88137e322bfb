"""Refreshes that Spark writes to HDFS, as tables of every format; those on YARN are in ``tests/faults/test_yarn.py``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.delta.log import put_if_absent
from airflow_dynamic_tables.clients.files import list_entries, plain_path, read_text
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from tests.support.benches.catalogs import empty_hive_catalog
from tests.support.faults.stores import KINDS, check_refreshes, site_of
from tests.support.faults.victims import Site
from tests.support.metastore import HiveMetastore
from tests.support.spark import SMALL
from tests.support.yarn import YarnCluster, running_hdfs

pytestmark = [pytest.mark.large, pytest.mark.spark, pytest.mark.metastore, pytest.mark.timeout(1200)]

SETTINGS = SparkSettings(conf={**SMALL, "spark.driver.memory": "1g"})


@pytest.fixture(scope="module")
def hdfs(java: None) -> Iterator[YarnCluster]:  # noqa: ARG001 - it must be there
    with running_hdfs() as started, pytest.MonkeyPatch.context() as environment:
        for name, value in started.environment.items():
            environment.setenv(name, value)
        yield started


@pytest.fixture
def site(request: pytest.FixtureRequest, hdfs: YarnCluster, tmp_path: Path, empty_state: Path) -> Site:
    uri = ""
    if request.param == "hive":
        metastore: HiveMetastore = request.getfixturevalue("hive_metastore")
        empty_hive_catalog("lake", metastore).close()
        uri = metastore.uri
    return site_of(request.param, f"{hdfs.hdfs}/{tmp_path.name}", tmp_path, empty_state, uri)


@pytest.mark.parametrize("site", [*KINDS, "orc"], indirect=True)
def test_a_table_in_hdfs(site: Site) -> None:
    check_refreshes(site, SETTINGS)


def test_one_of_many_writers_of_a_delta_entry_wins(hdfs: YarnCluster, tmp_path: Path) -> None:
    entry = f"{hdfs.hdfs}/{tmp_path.name}/_delta_log/{0:020d}.json"
    with ThreadPoolExecutor(8) as threads:
        have_won = list(threads.map(lambda number: put_if_absent(entry, str(number).encode()), range(16)))
    assert have_won.count(True) == 1
    assert read_text(entry) == str(have_won.index(True))
    assert [one.path for one in list_entries(entry.rpartition("/")[0])] == [plain_path(entry)], "no half file is left"
