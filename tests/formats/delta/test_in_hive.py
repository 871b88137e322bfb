"""Delta tables in a Hive metastore: what readers of Hive see, and what others do to the entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import CommitRejectedError
from tests.support.benches.delta import delta_bench, root
from tests.support.benches.staging import Bench
from tests.support.spark import PlainSpark

pytestmark = pytest.mark.metastore


@pytest.fixture
def bench(metastore: Metastore, tmp_path: Path) -> Bench:
    return delta_bench(HiveCatalog("lake", metastore, f"file://{tmp_path}/warehouse"))


@pytest.mark.large
@pytest.mark.spark
def test_who_does_not_know_delta_is_told_so_and_reads_no_wrong_rows(
    bench: Bench, metastore: Metastore, plain_spark: PlainSpark
) -> None:
    """Our files lie where Hive does not look, so by its own rules it would find a table without rows."""
    bench.refresh({"1": [1, 2]})
    database, name = bench.path.database, bench.path.name
    assert [row["tableName"] for row in plain_spark.sql(f"SHOW TABLES IN {database}")] == [name]
    with pytest.raises(AssertionError, match="Failed to find the data source: delta"):
        plain_spark.sql(f"SELECT count(*) FROM {database}.{name}")
    as_hive_reads_it = metastore.call("get_table", database, name)
    as_hive_reads_it.tableName = "by_hive"
    as_hive_reads_it.parameters = {"EXTERNAL": "TRUE"}
    metastore.call("create_table", as_hive_reads_it)
    with pytest.raises(AssertionError, match="FileInputFormat"):
        plain_spark.sql(f"SELECT count(*) FROM {database}.by_hive")


def test_a_table_that_others_rename_keeps_its_versions_and_one_that_they_drop_its_files(
    bench: Bench, metastore: Metastore
) -> None:
    bench.refresh({"1": [1]})
    database, name = bench.path.database, bench.path.name
    folder = root(bench)
    staged = bench.stage("late")
    result = bench.write(staged, {"1": [2]})
    renamed = metastore.call("get_table", database, name)
    renamed.tableName = "income"
    metastore.call("alter_table", database, name, renamed)
    with pytest.raises(CommitRejectedError, match="was dropped meanwhile"):
        bench.commit(staged, result)
    income = replace(bench, path=ObjectPath(database, "income"))
    assert (income.table.current(), income.rows()) == (income.table.versions()[0], {"1": [1]})
    assert income.refresh({"1": [3]}).number == 2
    delete_data = True
    metastore.call("drop_table", database, "income", delete_data)
    assert income.table.current() is None
    assert DeltaTable(folder).to_pyarrow_table().column("n").to_pylist() == [3], "nobody but us deletes its files"
    bench.is_registered = False
    assert bench.refresh({"1": [4]}).number == 1
    assert bench.rows() == {"1": [4]}
    assert root(bench) != folder


def test_an_entry_of_an_earlier_release_is_mended_when_its_definition_changes(bench: Bench, metastore: Metastore) -> None:
    """Its classes are in Delta's library for Hive only, and it has no columns: Spark could not alter it."""
    bench.refresh({"1": [1]})
    database, name = bench.path.database, bench.path.name
    earlier = metastore.call("get_table", database, name)
    mended = (earlier.sd.inputFormat, earlier.sd.outputFormat, earlier.sd.cols)
    earlier.sd.inputFormat, earlier.sd.outputFormat = "io.delta.hive.DeltaInputFormat", "io.delta.hive.DeltaOutputFormat"
    earlier.sd.cols = []
    metastore.call("alter_table", database, name, earlier)
    assert bench.refresh({"1": [2]}).number == 2
    assert bench.catalog is not None
    known = bench.catalog.get_table(bench.path)
    assert isinstance(known, CatalogDynamicTable)
    bench.catalog.alter_table(bench.path, replace(known, comment="another"))
    now = metastore.call("get_table", database, name).sd
    assert (now.inputFormat, now.outputFormat, now.cols) == mended
    assert bench.rows() == {"1": [2]}
    assert bench.catalog.get_table(bench.path).columns == known.columns
