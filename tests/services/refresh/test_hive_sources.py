"""Hive tables of others as sources: our job reads what a plain Spark reads, and that Spark reads what the catalog made."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.values import CatalogPartition, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.readers import bind
from airflow_dynamic_tables.services.refresh.planning import bind_sources
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.jobs import refresh
from tests.support.spark import PlainSpark

DATABASE = "others"
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def database(plain_spark: PlainSpark) -> Iterator[None]:
    plain_spark.sql(f"CREATE DATABASE {DATABASE}")
    yield
    plain_spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


@pytest.fixture
def catalog(hive_workspace: Workspace) -> HiveCatalog:
    found = hive_workspace.catalogs.get("hms")
    assert isinstance(found, HiveCatalog)
    return found


def request_(tmp_path: Path, query: str, catalog: str = "hms") -> RefreshRequest:
    path = tmp_path / "definitions.yaml"
    path.write_text(
        f"sources: [{{name: {catalog}.{DATABASE}.t, format: hive}}]\n"
        f"dynamic_tables: [{{name: lake.sales.copy, freshness: 1 day, query: '{query}'}}]\n"
    )
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    return RefreshRequest(table, definitions.sources, MARCH, token=uuid4().hex, owner="test")


def bound(workspace: Workspace, tmp_path: Path, catalog: str = "hms") -> SourceBinding:
    made = request_(tmp_path, f"SELECT * FROM {catalog}.{DATABASE}.t", catalog)
    (binding,) = bind_sources(workspace, made.table, made.sources)
    return binding


def read(spark: SparkSession, binding: SourceBinding) -> Rows:
    bind(spark, binding, JvmDriver(spark))
    return [row.asDict(True) for row in spark.table(binding.view).collect()]


def ordered(rows: Rows) -> list[str]:
    return sorted(str({key: str(value) for key, value in row.items()}) for row in rows)


DATA = "Id bigint, `Name` string, n decimal(10,2)"
HIVE = f"CREATE TABLE t ({DATA}) PARTITIONED BY (ds string, hh int) STORED AS"
SPARK = f"CREATE TABLE t ({DATA}, ds string, hh int) USING"
TABLES = {
    "Hive Parquet": f"{HIVE} PARQUET",
    "Hive ORC": f"{HIVE} ORC",
    "Hive text": f"{HIVE} TEXTFILE",
    "Spark Parquet": f"{SPARK} parquet PARTITIONED BY (ds, hh)",
    "Spark CSV": f"{SPARK} csv OPTIONS (header true, sep ';') PARTITIONED BY (ds, hh)",
}


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("kind", TABLES)
def test_our_job_reads_what_plain_spark_reads(
    kind: str, hive_workspace: Workspace, spark: SparkSession, plain_spark: PlainSpark, tmp_path: Path
) -> None:
    plain_spark.sql(f"USE {DATABASE}")
    plain_spark.sql(TABLES[kind])
    assert read(spark, bound(hive_workspace, tmp_path)) == []
    plain_spark.sql(
        "INSERT INTO t VALUES (1, 'a;b', 1.50, '2024-01-01', 3), (2, NULL, NULL, '2024-01-01', 4), (3, 'ü', -2, 'a/b=c d%', 3)"
    )
    if kind != "Hive text":  # where Spark takes Hive's name of null for a text
        plain_spark.sql("INSERT INTO t VALUES (4, 'null key', 0, NULL, 5)")
    binding = bound(hive_workspace, tmp_path)
    found = read(spark, binding)
    assert ordered(found) == ordered(plain_spark.sql("SELECT * FROM t"))
    assert [*found[0]] == [*plain_spark.sql("SELECT * FROM t LIMIT 1")[0]]
    assert found[0]["hh"].__class__ is int
    assert (binding.parts, binding.base_path) == ((), f"{binding.files[0].partition('/ds=')[0]}")
    assert bound(hive_workspace, tmp_path).version == binding.version
    plain_spark.sql("INSERT INTO t VALUES (5, 'new', 0, '2024-01-01', 3)")
    assert bound(hive_workspace, tmp_path).version != binding.version


@pytest.mark.large
@pytest.mark.spark
def test_partitions_may_lie_anywhere(
    hive_workspace: Workspace, spark: SparkSession, plain_spark: PlainSpark, tmp_path: Path
) -> None:
    plain_spark.sql(f"USE {DATABASE}")
    plain_spark.sql("CREATE TABLE t (id int) PARTITIONED BY (ds string, n int) STORED AS PARQUET")
    plain_spark.sql("INSERT INTO t VALUES (1, '1', 1), (2, '2', 1)")
    for number, place in enumerate(("odd place/[x]", "v2/ds=4/n=1"), 3):
        plain_spark.sql(f"ALTER TABLE t ADD PARTITION (ds='{number}', n=1) LOCATION '{tmp_path}/{place}'")
        plain_spark.sql(f"INSERT INTO t PARTITION (ds='{number}', n=1) VALUES ({number})")
    plain_spark.sql(f"ALTER TABLE t ADD PARTITION (ds='5', n=2) LOCATION '{tmp_path}/missing'")
    binding = bound(hive_workspace, tmp_path)
    assert len(binding.parts) == 3
    assert (
        binding
        == RefreshPlan.from_json(
            RefreshPlan("t", "i", MARCH, RefreshAction.FULL, "r", "s", "q", "s", "parquet", True, sources=(binding,)).to_json()
        ).sources[0]
    )
    found = read(spark, binding)
    assert ordered(found) == ordered(plain_spark.sql("SELECT * FROM t"))
    assert len(found) == 4


@pytest.mark.spark
def test_a_refresh_reads_from_the_metastore(
    hive_workspace: Workspace, spark: SparkSession, plain_spark: PlainSpark, tmp_path: Path
) -> None:
    plain_spark.sql(f"CREATE TABLE {DATABASE}.t STORED AS ORC AS SELECT id, id * 2 AS twice FROM range(5)")
    made = request_(tmp_path, f"SELECT id, twice FROM hms.{DATABASE}.t WHERE id < 3")
    version = run(hive_workspace, made, lambda plan: refresh(spark, plan))
    assert version.sources[f"hms.{DATABASE}.t"].startswith("files:")
    rows = sample(hive_workspace, made.table.identifier, 10)
    assert sorted(row["twice"] for row in rows) == [0, 2, 4]


def test_what_cannot_be_read_as_files_is_refused(
    hive_workspace: Workspace, catalog: HiveCatalog, plain_spark: PlainSpark, tmp_path: Path
) -> None:
    with pytest.raises(TableNotFoundError, match=rf"{DATABASE}\.t does not exist in catalog hms"):
        bound(hive_workspace, tmp_path)
    with pytest.raises(ConfigurationError, match="catalog lake is not of type hive"):
        bound(hive_workspace, tmp_path, "lake")
    for statement, words in (
        ("CREATE VIEW t AS SELECT 1 AS one", "is a view"),
        ("CREATE TABLE t (a map<int,int>) STORED AS TEXTFILE", "column 'a' of a text table is nested"),
        ("CREATE TABLE t (a int) STORED AS AVRO", "a hive source has one of parquet, orc, csv, json or text"),
        ("CREATE TABLE t (a int) STORED AS TEXTFILE TBLPROPERTIES ('skip.header.line.count'='2')", "skips 2 lines"),
    ):
        plain_spark.sql(f"USE {DATABASE}")
        plain_spark.sql(statement)
        with pytest.raises(UnsupportedError, match=words):
            bound(hive_workspace, tmp_path)
        catalog.drop_table(ObjectPath(DATABASE, "t"))


@pytest.mark.large
@pytest.mark.spark
def test_plain_spark_reads_what_the_catalog_made(catalog: HiveCatalog, plain_spark: PlainSpark) -> None:
    plain_spark.sql(f"USE {DATABASE}")
    for file_format in ("parquet", "orc"):
        name = f"made_{file_format}"
        plain_spark.sql(f"CREATE TABLE source_{file_format} STORED AS {file_format} AS SELECT 7 AS customerid, 'x' AS name")
        place = catalog.load(ObjectPath(DATABASE, f"source_{file_format}")).sd.location
        columns = (
            Column("customerId", "int", nullable=False),
            Column("name", "string", comment="in full"),
            Column("day", "date"),
        )
        catalog.create_table(ObjectPath(DATABASE, name), CatalogTable(columns, partition_keys=("day",), format=file_format))
        catalog.create_partition(ObjectPath(DATABASE, name), CatalogPartition({"day": "2024-02-29"}, place))
        assert plain_spark.sql(f"SELECT * FROM {name}") == [{"customerId": 7, "name": "x", "day": "2024-02-29"}]
        assert plain_spark.sql(f"SELECT count(*) AS n FROM {name} WHERE day > '2024-03-01'") == [{"n": 0}]
        assert plain_spark.sql(f"SHOW PARTITIONS {name}") == [{"partition": "day=2024-02-29"}]
        described = {row["col_name"]: row for row in plain_spark.sql(f"DESCRIBE TABLE {name}")}
        assert (described["customerId"]["data_type"], described["name"]["comment"]) == ("int", "in full")


@pytest.mark.large
@pytest.mark.spark
def test_views_are_read_both_ways(catalog: HiveCatalog, plain_spark: PlainSpark) -> None:
    plain_spark.sql(f"USE {DATABASE}")
    plain_spark.sql("CREATE TABLE t STORED AS PARQUET AS SELECT 7 AS id")
    query = f"SELECT `t`.`id` AS `Id`, 'of `hms`.`a`.`b`' AS `text` FROM `hms`.`{DATABASE}`.`t` AS `t`"
    view = CatalogView("SELECT id AS Id, ...", query, (Column("Id", "int"), Column("text", "string")), "A view")
    catalog.create_table(ObjectPath(DATABASE, "ours"), view)
    assert plain_spark.sql("SELECT * FROM ours") == [{"Id": 7, "text": "of `hms`.`a`.`b`"}]
    assert catalog.get_table(ObjectPath(DATABASE, "ours")) == view
    plain_spark.sql("CREATE VIEW theirs (Nr COMMENT 'a number') COMMENT 'made by Spark' AS SELECT id FROM t")
    theirs = catalog.get_table(ObjectPath(DATABASE, "theirs"))
    assert isinstance(theirs, CatalogView)
    assert (theirs.columns, theirs.comment, theirs.properties) == (
        (Column("Nr", "int", comment="a number"),),
        "made by Spark",
        {},
    )
    assert "SELECT id FROM t" in theirs.original_query
    plain_spark.sql("ALTER VIEW ours AS SELECT id FROM t")
    altered = catalog.get_table(ObjectPath(DATABASE, "ours"))
    assert isinstance(altered, CatalogView)
    assert [column.name for column in altered.columns] == ["id"]


@pytest.mark.large
@pytest.mark.spark
def test_tables_that_spark_made_come_with_the_case_of_their_columns(catalog: HiveCatalog, plain_spark: PlainSpark) -> None:
    plain_spark.sql(f"USE {DATABASE}")
    for name, storage in (("serde", "STORED AS PARQUET"), ("source", "USING parquet"), ("json", "USING json")):
        plain_spark.sql(
            f"CREATE TABLE {name} (customerId bigint COMMENT 'who', `Odd Name` array<struct<Aa:int>>, v varchar(5)) {storage}"
            " COMMENT 'a table' TBLPROPERTIES ('team'='crm')"
        )
        found = catalog.get_table(ObjectPath(DATABASE, name))
        assert isinstance(found, CatalogTable)
        assert found.columns == (
            Column("customerId", "bigint", comment="who"),
            Column("Odd Name", "array<struct<Aa:int>>"),
            Column("v", "varchar(5)"),
        )
        assert (found.comment, found.properties) == ("a table", {"team": "crm"})
        assert found.format == ("json" if name == "json" else "parquet")
        assert found.location is not None
        assert found.location.startswith("file:///")
