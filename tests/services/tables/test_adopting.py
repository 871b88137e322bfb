"""A Hive table that is there already becomes a dynamic table in place."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.cli.main import main
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.services.lifecycle.registration import Registration, adopt, ensure
from airflow_dynamic_tables.services.maintenance.sweeping import upgrade
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.jobs import refresh
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark

DATABASE = "adopted"
MARCH = datetime(2024, 3, 2, tzinfo=UTC)
QUERY = "SELECT CAST(id AS INT) AS id, ds FROM VALUES (10, '2024-03-01'), (11, '2024-02-29') AS v (id, ds)"


@pytest.fixture(autouse=True)
def database(plain_spark: PlainSpark) -> Iterator[None]:
    plain_spark.sql(f"CREATE DATABASE {DATABASE}")
    plain_spark.sql(f"USE {DATABASE}")
    yield
    plain_spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


@pytest.fixture
def settings(tmp_path: Path, hive_metastore: HiveMetastore) -> WorkspaceSettings:
    file = tmp_path / "catalogs.yaml"
    file.write_text(
        f"catalogs: [{{name: hms, type: hive, connection-params: {{uri: '{hive_metastore.uri}'}}}}, {{name: lake, type: sql}}]"
    )
    return WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse", file)


@pytest.fixture
def workspace(settings: WorkspaceSettings) -> Iterator[Workspace]:
    with open_workspace(settings) as opened:
        upgrade(opened)
        yield opened


def definition(tmp_path: Path, partitioned: bool = True, **fields: str) -> DynamicTable:
    values = {"name": f"hms.{DATABASE}.t", "format": "parquet", "freshness": "1 day", "query": f'"{QUERY}"', **fields}
    if partitioned:
        values |= {"partitioned_by": "[ds]", "options": "{partition.fields.ds.date-formatter: yyyy-MM-dd}"}
    path = tmp_path / "definitions.yaml"
    path.write_text("dynamic_tables:\n- " + "\n  ".join(f"{key}: {value}" for key, value in values.items()))
    (table,) = load_definitions(path).tables.values()
    return table


def request_(table: DynamicTable) -> RefreshRequest:
    return RefreshRequest(table, {}, MARCH, token=uuid4().hex, owner="test")


def rows(plain_spark: PlainSpark) -> list[tuple[int, str]]:
    plain_spark.sql("REFRESH TABLE t")
    return sorted((row["id"], row["ds"]) for row in plain_spark.sql("SELECT * FROM t"))


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE t (id int) PARTITIONED BY (ds string) STORED AS PARQUET TBLPROPERTIES ('team'='crm')",
        "CREATE TABLE t (id int, ds string) USING parquet PARTITIONED BY (ds) TBLPROPERTIES ('team'='crm')",
    ],
    ids=["of Hive", "of Spark"],
)
def test_the_first_refresh_replaces_what_it_planned_and_nothing_else(
    made: str, workspace: Workspace, plain_spark: PlainSpark, spark: SparkSession, tmp_path: Path
) -> None:
    plain_spark.sql(made)
    plain_spark.sql("INSERT INTO t VALUES (1, '2024-02-29'), (2, '2024-03-01'), (3, '2024-03-02')")
    table, catalog = definition(tmp_path), workspace.catalog("hms")
    assert isinstance(catalog, HiveCatalog)
    files = {one.values[0]: one.sd.location for one in catalog.metastore.call("get_partitions", DATABASE, "t", -1)}
    assert adopt(workspace, table) is Registration.ADOPTED
    assert adopt(workspace, table) is Registration.UNCHANGED
    found = catalog.get_table(ObjectPath(DATABASE, "t"))
    assert isinstance(found, CatalogDynamicTable)
    assert (found.freshness, found.properties, found.snapshot) == ("1 day", {"team": "crm"}, None)
    assert rows(plain_spark) == [(1, "2024-02-29"), (2, "2024-03-01"), (3, "2024-03-02")]
    version = run(workspace, request_(table), lambda plan: refresh(spark, plan))
    assert version.number == 1
    assert rows(plain_spark) == [(1, "2024-02-29"), (3, "2024-03-02"), (10, "2024-03-01")]
    now = {one.values[0]: one.sd.location for one in catalog.metastore.call("get_partitions", DATABASE, "t", -1)}
    assert {day for day, place in files.items() if now[day] != place} == {"2024-03-01"}


@pytest.mark.spark
def test_a_table_without_partitions_is_read_as_it_was_until_the_first_refresh(
    settings: WorkspaceSettings, workspace: Workspace, plain_spark: PlainSpark, spark: SparkSession, tmp_path: Path
) -> None:
    plain_spark.sql("CREATE TABLE t USING orc AS SELECT 1 AS id, 'x' AS ds")
    table = definition(tmp_path, partitioned=False, format="orc")
    state = ["--definitions", str(tmp_path / "definitions.yaml"), "--catalogs", str(settings.catalogs_file)]
    assert main(["adopt", "t", *state, "--database-url", settings.database_url]) == 0
    assert rows(plain_spark) == [(1, "x")]
    run(workspace, request_(table), lambda plan: refresh(spark, plan))
    assert rows(plain_spark) == [(10, "2024-03-01"), (11, "2024-02-29")]


def test_what_does_not_fit_is_refused_and_left_alone(workspace: Workspace, plain_spark: PlainSpark, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        adopt(workspace, definition(tmp_path))
    for statement, words in (
        ("CREATE VIEW t AS SELECT 1 AS id, '' AS ds", "it is a view"),
        ("CREATE TABLE t (id int) PARTITIONED BY (ds string) STORED AS ORC", "its format is orc and not parquet"),
        ("CREATE TABLE t (id int, ds string) STORED AS PARQUET", "its partition keys are none and not"),
        ("CREATE TABLE t (id int, ds string) USING csv PARTITIONED BY (ds)", "its format is csv and not parquet"),
        (
            "CREATE TABLE t (id int, ds string) USING parquet PARTITIONED BY (ds) CLUSTERED BY (id) INTO 2 BUCKETS",
            "its files are in buckets",
        ),
    ):
        plain_spark.sql(statement)
        with pytest.raises(UnsupportedError, match=words):
            adopt(workspace, definition(tmp_path))
        assert workspace.catalog("hms").list_dynamic_tables(DATABASE) == []
        plain_spark.sql("DROP VIEW IF EXISTS t" if "VIEW" in statement else "DROP TABLE t")
    with pytest.raises(UnsupportedError, match="does not support adopting tables"):
        adopt(workspace, definition(tmp_path, name="lake.sales.t"))
    plain_spark.sql("CREATE TABLE t (id int) PARTITIONED BY (ds string) STORED AS PARQUET")
    with pytest.raises(Exception, match="exists and is no dynamic table; adopt it"):
        ensure(workspace, definition(tmp_path))
