"""The names of our tables in OpenLineage are those that Spark's listener gives them when it reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from airflow_dynamic_tables.core.lineage import ASSET_SCHEME, DatasetName
from airflow_dynamic_tables.services.lineage import refresh_lineages
from tests.contracts.refreshing.place import Place
from tests.engines.test_delta_beside_refreshes import name
from tests.support.delta_spark import delta_library
from tests.support.downloads import jars, spark_home
from tests.support.iceberg_shared import shared_table
from tests.support.iceberg_spark import IcebergSpark, iceberg_library
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark, running_session

pytestmark = [pytest.mark.large, pytest.mark.spark]


@dataclass(frozen=True)
class Listened:
    """A Spark with the listener, and the file of its events."""

    spark: PlainSpark
    events: Path

    def names_of_input(self, table: str, database: str, made_by: str = "parquet") -> set[DatasetName]:
        """Copy a table into a new table of a database, and return the names that the listener gives the first one.

        :param made_by: the format of the new table.
        """
        copy = f"copy_{uuid4().hex}"
        unlocked = "TBLPROPERTIES ('engine.hive.lock-enabled' = 'false')"  # the metastore of tests has no locks
        self.spark.sql(f"CREATE TABLE {database}.{copy} USING {made_by} {unlocked} AS SELECT * FROM {table}")
        waiting = Retrying(retry=retry_if_result(lambda found: not found), wait=wait_fixed(0.2), stop=stop_after_delay(120))
        return waiting(self._inputs_into, copy)

    def _inputs_into(self, copy: str) -> set[DatasetName]:
        """Return the names of the inputs of the completed job that wrote a table; empty if it is not completed."""
        *events, _ = self.events.read_text().split("\n") if self.events.exists() else [""]
        completed = [event for event in map(json.loads, events) if event["eventType"] == "COMPLETE"]
        found = [each for event in completed if copy in json.dumps(event["outputs"]) for each in event["inputs"]]
        symlinks = [one for each in found for one in each.get("facets", {}).get("symlinks", {}).get("identifiers", ())]
        return {DatasetName(each["namespace"], each["name"]) for each in (*found, *symlinks)}


@contextmanager
def _listened(settings: Mapping[str, str], folder: Path, home: Path | None = None) -> Iterator[Listened]:
    events = folder / "events.ndjson"
    listener = {
        "spark.jars": ",".join([settings["spark.jars"], *map(str, jars("openlineage-spark"))]),
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(events),
    }
    with running_session({**settings, **listener}, home) as spark:
        yield Listened(spark, events)


@pytest.fixture(scope="module")
def with_iceberg(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listened]:  # noqa: ARG001 - it must be there
    with _listened(iceberg_library(), tmp_path_factory.mktemp("iceberg"), spark_home("4.1")) as opened:
        yield opened


@pytest.fixture(scope="module")
def with_delta(
    hive_metastore: HiveMetastore, postgres_driver: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listened]:
    library = delta_library()
    settings = {
        **library,
        "spark.jars": f"{library['spark.jars']},{postgres_driver}",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": hive_metastore.uri,
        "spark.sql.warehouse.dir": hive_metastore.warehouse,
    }
    with _listened(settings, tmp_path_factory.mktemp("delta")) as opened:
        yield opened


def _ours(place: Place) -> set[DatasetName]:
    """Return the names that we give a table, without that of its asset."""
    (lineage,) = refresh_lineages(place.workspace, ["d1"])
    assert lineage.output is not None
    return {each for each in lineage.output.names if not each.namespace.startswith(ASSET_SCHEME)}


@pytest.mark.parametrize("kind", ["apache rest", pytest.param("hive", marks=pytest.mark.metastore)])
def test_iceberg(kind: str, tmp_path: Path, empty_state: Path, request: pytest.FixtureRequest, with_iceberg: Listened) -> None:
    """The listener has no names for catalogs in a database."""
    with shared_table(kind, tmp_path, empty_state, request, IcebergSpark(with_iceberg.spark)) as shared:
        table = shared.place.table
        shared.place.refresh(1, [11], token="d1")
        found = with_iceberg.names_of_input(str(table), f"{table.catalog}.{table.database}", "iceberg")
        assert found == _ours(shared.place)


@pytest.mark.parametrize("place", ["hive/delta", "hive/parquet", "hive/orc"], indirect=True)
def test_a_hive_metastore(place: Place, with_delta: Listened) -> None:
    place.refresh(1, [11], token="d1")
    assert with_delta.names_of_input(name(place), place.table.database) == _ours(place)


@pytest.mark.parametrize("place", ["sql/delta"], indirect=True)
def test_delta(place: Place, with_delta: Listened) -> None:
    place.refresh(1, [11], token="d1")
    folder = place.workspace.table(place.table, "delta").folder()
    assert with_delta.names_of_input(f"delta.`{folder}`", "default") == _ours(place)


@pytest.mark.parametrize("place", ["postgres/jdbc"], indirect=True)
def test_postgres(place: Place, with_delta: Listened) -> None:
    place.refresh(1, [11], token="d1")
    url = f"jdbc:{place.server_url.replace('postgres@', '')}"
    options = f"url '{url}', dbtable 'public.{place.table.table}', user 'postgres', driver 'org.postgresql.Driver'"
    with_delta.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW figures USING jdbc OPTIONS ({options})")
    assert with_delta.names_of_input("figures", "default") == _ours(place)
