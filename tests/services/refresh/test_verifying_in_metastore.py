"""Verification of tables whose catalog is a Hive metastore: in each of its formats, equal rows and drift are told apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.verifying import RandomSample, VerifyRequest, verify
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.jobs import refresh
from tests.support.metastore import HiveMetastore

pytestmark = [pytest.mark.spark, pytest.mark.large]

YAML = """
defaults: {{catalog: lake, database: {database}, freshness: 1 day}}
sources:
- {{name: raw.facts, format: csv, path: {folder}/facts, schema: "n bigint, ds string", partitioned_by: [ds]}}
dynamic_tables:
- {{name: days, format: {format}, partitioned_by: [ds], query: "SELECT n, upper(ds) AS day, ds FROM raw.facts"}}
"""


@pytest.fixture
def database() -> str:
    return f"verified_{uuid4().hex}"


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


def remove_rows(workspace: Workspace, name: TableIdentifier, table_format: str) -> None:
    """Remove rows of day 2 as another engine does."""
    location = Path(urlsplit(workspace.existing_table(name).folder() or "").path)
    if table_format == "delta":
        DeltaTable(location).delete("ds = '2'")
    else:
        (file,) = (file for file in location.rglob("*.parquet") if "ds=2" in str(file))
        file.with_name(f".{file.name}.crc").unlink()
        pq.write_table(pq.read_table(file, partitioning=None).slice(0, 1), file)


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_equal_rows_and_drift(
    workspace: Workspace, tmp_path: Path, database: str, spark: SparkSession, table_format: str
) -> None:
    for day in (1, 2):
        file = tmp_path / "facts" / f"ds={day}" / "facts.csv"
        file.parent.mkdir(parents=True)
        file.write_text(f"{day}\n{10 * day}\n")
        an_hour_ago = datetime.now(UTC).timestamp() - 3600
        os.utime(file, (an_hour_ago, an_hour_ago))
    path = tmp_path / "sales.yaml"
    path.write_text(YAML.format(database=database, folder=tmp_path, format=table_format))
    definitions, token = load_definitions(path), uuid4().hex
    name = TableIdentifier("lake", database, "days")
    table = definitions.tables[name]
    run(
        workspace,
        RefreshRequest(table, definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), token, token),
        lambda plan: refresh(spark, plan),
    )

    def found() -> dict[str, str]:
        request = VerifyRequest(table, definitions.sources, RandomSample(None, seed=7))
        verified = verify(workspace, request, lambda plan: refresh(spark, plan))
        return {one.partition: one.reason or f"{one.verdict} {one.rows} -{one.missing} +{one.extra}" for one in verified}

    assert found() == {"ds=1": "EQUAL 2 -0 +0", "ds=2": "EQUAL 2 -0 +0"}
    remove_rows(workspace, name, table_format)
    left = 1 if table_format == "parquet" else 0
    assert found() == {"ds=1": "EQUAL 2 -0 +0", "ds=2": f"DRIFT {left} -{2 - left} +0"}
