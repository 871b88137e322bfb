"""A table of ours without partition keys that Spark with Delta's own library clusters: refreshes go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.core.schema import Column
from tests.support.benches.catalogs import sql_catalog_in
from tests.support.benches.delta import delta_bench, root
from tests.support.benches.staging import Bench
from tests.support.spark import PlainSpark

pytestmark = pytest.mark.large


@pytest.fixture
def bench(tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with sql_catalog_in(tmp_path, empty_state) as catalog:
        yield replace(delta_bench(catalog), partition_keys=())


def details(bench: Bench, spark: PlainSpark) -> dict[str, Any]:
    return spark.sql(f"DESCRIBE DETAIL delta.`{root(bench)}`")[0]


def numbers(bench: Bench, spark: PlainSpark) -> list[int]:
    return sorted(row["n"] for row in spark.sql(f"SELECT n FROM delta.`{root(bench)}`"))


def test_a_clustered_table_is_refreshed(bench: Bench, delta_spark: PlainSpark) -> None:
    bench.refresh({"1": [11]})
    delta_spark.sql(f"ALTER TABLE delta.`{root(bench)}` CLUSTER BY (n)")
    delta_spark.sql(f"INSERT INTO delta.`{root(bench)}` VALUES ('1', 12)")
    delta_spark.sql(f"OPTIMIZE delta.`{root(bench)}`")
    assert bench.rows() == {"1": [11, 12]}
    bench.refresh({"1": [13], "2": [21, 22]})
    assert bench.rows() == {"1": [13], "2": [21, 22]}
    assert numbers(bench, delta_spark) == [13, 21, 22]
    snapshot = open_snapshot(f"file://{root(bench)}")
    assert snapshot is not None
    snapshot.create_checkpoint()
    delta_spark.sql(f"OPTIMIZE delta.`{root(bench)}` FULL")
    assert numbers(bench, delta_spark) == [13, 21, 22]
    assert bench.rows() == {"1": [13], "2": [21, 22]}
    assert details(bench, delta_spark)["clusteringColumns"] == ["n"], "neither a refresh nor a checkpoint of ours ends it"
    assert [version.number for version in bench.table.versions()] == [1, 2]


def test_other_columns_end_the_clustering(bench: Bench, delta_spark: PlainSpark) -> None:
    bench.refresh({"1": [11]})
    delta_spark.sql(f"ALTER TABLE delta.`{root(bench)}` CLUSTER BY (n)")
    bench.rebuild({"1": [12]}, Column("ds", "string"), Column("m", "bigint"))
    assert details(bench, delta_spark)["clusteringColumns"] == []
    delta_spark.sql(f"INSERT INTO delta.`{root(bench)}` VALUES ('1', 13)")
    delta_spark.sql(f"ALTER TABLE delta.`{root(bench)}` CLUSTER BY (m)")
    delta_spark.sql(f"OPTIMIZE delta.`{root(bench)}`")
    assert [row["m"] for row in delta_spark.sql(f"SELECT m FROM delta.`{root(bench)}` ORDER BY m")] == [12, 13]
