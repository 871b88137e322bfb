"""Refreshes into Hive tables by a real spark-submit, read by a Spark that knows nothing of this package."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark

pytestmark = pytest.mark.spark

MARCH = datetime(2024, 3, 2, tzinfo=UTC)
YAML = """
defaults: {{catalog: lake, database: {database}, freshness: 1 day, refresh_mode: full}}
sources:
- {{name: raw.numbers, format: csv, path: {folder}/numbers, schema: "n BIGINT, ds STRING"}}
dynamic_tables:
- name: days
  format: parquet
  partitioned_by: [ds, n]
  options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
  query: SELECT n, 'a b/c %' AS Text, cast(n AS decimal(10,2)) AS amount, ds FROM raw.numbers
- {{name: totals, format: orc, query: "SELECT ds, sum(amount) AS amount, count(*) AS how_many FROM days GROUP BY ds"}}
"""
SETTINGS = SparkSettings(
    conf={
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)


@pytest.fixture
def database() -> str:
    return f"sales_{uuid4().hex}"


@pytest.fixture
def workspace(tmp_path: Path, empty_state: Path, hive_metastore: HiveMetastore, database: str) -> Iterator[Workspace]:
    catalogs = tmp_path / "catalogs.yaml"
    catalogs.write_text(
        f"catalogs: [{{name: lake, type: hive, default-database: {database}, "
        f"connection-params: {{uri: '{hive_metastore.uri}', warehouse: 'file://{tmp_path}/warehouse'}}}}]"
    )
    state = shutil.copy(empty_state, tmp_path / "state.db")
    with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/unused", catalogs)) as workspace:
        yield workspace


def write_numbers(folder: Path, numbers: dict[str, int]) -> None:
    (folder / "numbers").mkdir(exist_ok=True)
    (folder / "numbers" / "all.csv").write_text("".join(f"{n},{ds}\n" for ds, n in numbers.items()))


@pytest.mark.large
def test_a_plain_spark_reads_what_was_refreshed(
    workspace: Workspace, tmp_path: Path, database: str, plain_spark: PlainSpark
) -> None:
    (tmp_path / "sales.yaml").write_text(YAML.format(database=database, folder=tmp_path))
    definitions = load_definitions(tmp_path / "sales.yaml")

    def refresh(name: str, at: datetime, *, full: bool = False) -> Version:
        token = str(uuid4())
        table = definitions.tables[TableIdentifier("lake", database, name)]
        request = RefreshRequest(table, definitions.sources, at, token=token, owner=token, full_refresh=full)

        def job(plan: RefreshPlan) -> None:
            SparkSubmitRunner(SETTINGS, "local[2]").run(plan, {})

        version = run(workspace, request, job)
        assert isinstance(version, Version)
        return version

    def read(name: str) -> list[list[str]]:
        return [list(map(str, row.values())) for row in plain_spark.sql(f"SELECT * FROM {database}.{name} ORDER BY ds")]

    write_numbers(tmp_path, {"2024-02-29": 29, "2024-03-01": 1})
    assert refresh("days", MARCH, full=True).number == 1
    assert read("days") == [["a b/c %", "29.00", "2024-02-29", "29"], ["a b/c %", "1.00", "2024-03-01", "1"]]
    write_numbers(tmp_path, {"2024-02-29": 666, "2024-03-01": 100, "2024-03-02": 2})
    second = refresh("days", MARCH)
    assert (second.number, second.data_timestamp) == (2, MARCH)
    assert read("days") == [["a b/c %", "29.00", "2024-02-29", "29"], ["a b/c %", "100.00", "2024-03-01", "100"]]
    refresh("totals", MARCH)
    assert read("totals") == [["2024-02-29", "29.00", "1"], ["2024-03-01", "100.00", "1"]]
    columns = plain_spark.sql(f"DESCRIBE {database}.days")
    assert [(row["col_name"], row["data_type"]) for row in columns][:4] == [
        ("Text", "string"),
        ("amount", "decimal(10,2)"),
        ("ds", "string"),
        ("n", "bigint"),
    ]
