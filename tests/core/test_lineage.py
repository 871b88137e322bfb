"""Names of datasets in OpenLineage."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import DatasetName, asset_dataset, dataset_at, metastore_symlink


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/orders/", "file", "/data/orders"),
        ("file:/data/orders", "file", "/data/orders"),
        ("file:///data/or%20ders/", "file", "/data/or ders"),
        ("s3a://bucket/lake/orders/", "s3://bucket", "lake/orders"),
        ("s3://bucket", "s3://bucket", "/"),
        ("gs://bucket/lake/a#b", "gs://bucket", "lake/a#b"),
        ("abfs://box@account.dfs.core.windows.net/lake", "abfss://box@account.dfs.core.windows.net", "lake"),
        ("hdfs://namenode:8020/lake/orders", "hdfs://namenode:8020", "/lake/orders"),
    ],
)
def test_a_location_has_the_name_that_spark_gives_it(location: str, namespace: str, name: str) -> None:
    assert dataset_at(location) == DatasetName(namespace, name)


def test_symlinks() -> None:
    uri = "thrift://one:9083, thrift://two:9083"
    assert metastore_symlink(uri, "sales", "daily") == DatasetName("hive://one:9083", "sales.daily")
    assert asset_dataset(TableIdentifier("my lake", "sales", "a.b")) == DatasetName("dynamic-table://my%20lake", "sales.`a.b`")
