"""Trino, DuckDB and Polars read our Iceberg tables: all types, evolved columns, earlier snapshots, only the files they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import Rebuild
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from tests.contracts.refreshing.place import MARCH
from tests.support.benches.catalogs import sql_catalog_in
from tests.support.iceberg_readers import DuckDbReader, PolarsReader, Reader, TrinoReader
from tests.support.jobs import make_plan, refresh
from tests.support.trino import Trino

pytestmark = [pytest.mark.large, pytest.mark.spark]

TYPES = """
    SELECT true AS flag, cast(1 AS tinyint) AS tiny, cast(2 AS smallint) AS small, 3 AS whole, 4L AS long,
           cast(1.5 AS float) AS single, 2.5D AS double, cast(1.25 AS decimal(20,2)) AS money, 'ä' AS text, X'00FF' AS bytes,
           DATE'2024-02-29' AS day, TIMESTAMP'2024-02-29 12:00:00.123456' AS at, TIMESTAMP_NTZ'2024-02-29 12:00:00' AS local,
           array(1, null) AS list, map('k', 1.5D) AS pairs, named_struct('a b', 1, 'c', array(named_struct('d', 'x'))) AS deep
"""
ROW: dict[str, Any] = {
    "flag": True,
    "tiny": 1,
    "small": 2,
    "whole": 3,
    "long": 4,
    "single": 1.5,
    "double": 2.5,
    "money": "1.25",
    "text": "ä",
    "bytes": "00ff",
    "day": "2024-02-29",
    "at": "2024-02-29 12:00:00.123456+00:00",
    "local": "2024-02-29 12:00:00",
    "list": [1, None],
    "pairs": {"k": 1.5},
    "deep": {"a b": 1, "c": [{"d": "x"}]},
}
OF_TRINO = {
    "bytes": "AP8=",
    "at": "2024-02-29 12:00:00.123456 UTC",
    "local": "2024-02-29 12:00:00.000000",
    "deep": [1, [["x"]]],
}
ROWS = {"trino": ROW | OF_TRINO, "duckdb": ROW, "polars": ROW}
"""The row as each engine shows it."""


@dataclass(frozen=True)
class Lake:
    """Tables that the job of this package writes with Spark."""

    catalog: SqlCatalog
    folder: Path
    spark: SparkSession

    def refresh(self, name: str, query: str, *keys: str, rebuild: bool = False) -> int:
        """Refresh a table, and return the snapshot."""
        table = IcebergTable(self.catalog.stores()[0], ObjectPath("sales", name))
        token, layout = uuid4().hex, table.layout()
        staged = table.stage(token)
        allowed = layout.rebuild if layout is not None and rebuild else Rebuild.NOTHING
        kept = {"partition_keys": keys, "timezone": "UTC", "layout": layout, "rebuild": allowed}
        planned = make_plan(self.folder, query, token=token, stage=staged.begin(), **kept)
        request = CommitRequest(refresh(self.spark, planned), MARCH, partition_keys=keys, rebuild=allowed)
        staged.commit(request, lambda: None)
        current = self.catalog.iceberg.load_table(("sales", name)).current_snapshot()
        assert current is not None
        return current.snapshot_id


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, empty_state: Path, spark: SparkSession) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    with sql_catalog_in(folder, empty_state) as catalog:
        lake = Lake(catalog, folder, spark)
        lake.refresh("kinds", TYPES)
        yield lake


@pytest.fixture(scope="module")
def readers(lake: Lake, trino: Trino) -> dict[str, Reader]:
    by_catalog = TrinoReader(lake.catalog.iceberg, "sales", trino)
    by_catalog.connect()
    of_metadata = lake.catalog.iceberg, "sales"
    return {"trino": by_catalog, "duckdb": DuckDbReader(*of_metadata), "polars": PolarsReader(*of_metadata)}


@pytest.fixture(params=ROWS)
def reader(request: pytest.FixtureRequest, readers: dict[str, Reader], monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return readers[request.param]


@pytest.mark.parametrize("name", ROWS)
def test_every_type_is_read_with_its_values(readers: dict[str, Reader], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    assert readers[name].rows("kinds") == [ROWS[name]]


def test_a_table_is_read_as_it_is_and_as_it_was(lake: Lake, reader: Reader) -> None:
    """Its columns got wider types, another order and a new one."""
    name = f"wide_{uuid4().hex}"
    first = lake.refresh(name, "SELECT 'x' AS ds, 1 AS n, cast(1.5 AS float) AS f, cast(1 AS decimal(5,2)) AS d", "ds")
    wider = "SELECT 'y' AS ds, 'new' AS extra, 5000000000L AS n, 2.5D AS f, cast(10000 AS decimal(9,2)) AS d"
    lake.refresh(name, wider, "ds", rebuild=True)
    now = {"ds": "y", "extra": "new", "n": 5_000_000_000, "f": 2.5, "d": "10000.00"}
    assert reader.rows(name) == reader.rows(name, "WHERE n > 4000000000 AND d > 9999") == [now]
    assert reader.rows(name, "WHERE extra = 'old' OR d < 10000") == []
    assert reader.rows(name, snapshot=first) == [{"ds": "x", "n": 1, "f": 1.5, "d": "1.00"}]


def test_columns_of_other_types_and_a_key_that_is_gone(lake: Lake, reader: Reader) -> None:
    name = f"other_{uuid4().hex}"
    lake.refresh(name, "SELECT 'x' AS ds, 1 AS n, named_struct('a', 1, 'b', 'y') AS deep, array(1) AS list", "ds")
    lake.refresh(name, "SELECT map('q', 'y') AS list, array(2) AS deep, 'z' AS n", rebuild=True)
    (row,) = reader.rows(name)
    assert list(row) == ["list", "deep", "n"]
    assert (row["deep"], row["n"], len(row["list"])) == ([2], "z", 1)


def test_only_the_files_that_a_condition_leaves_are_read(lake: Lake, reader: Reader) -> None:
    """The others are not there, which no engine notices."""
    name = f"days_{uuid4().hex}"
    lake.refresh(name, "SELECT ds, n FROM VALUES ('2024-03-01', 11), ('2024-03-01', 12), ('2024-03-02', 21) AS v(ds, n)", "ds")
    files = lake.catalog.iceberg.load_table(("sales", name)).inspect.data_files()
    (second,) = (path for path in files["file_path"].to_pylist() if "2024-03-02" in path)
    Path(second.removeprefix("file://")).unlink()
    for condition in ("ds = '2024-03-01'", "ds < '2024-03-02'", "n < 20", "n IN (11, 12)"):
        assert sorted(row["n"] for row in reader.rows(name, f"WHERE {condition}")) == [11, 12], condition
    with pytest.raises(Exception, match=r"(?i)no such file|does not exist|error opening|notfound|cannot open|not found"):
        reader.rows(name)


def test_trino_plans_by_our_statistics(lake: Lake, trino: Trino) -> None:
    catalog = lake.catalog.name
    name = f"stats_{uuid4().hex}"
    query = "SELECT ds, n, m FROM VALUES ('a', 1, 1.5D), ('a', 7, null), ('b', null, 2.5D) AS v(ds, n, m)"
    lake.refresh(name, query, "ds")
    shown = {row["column_name"]: row for row in trino.sql(f"SHOW STATS FOR {catalog}.sales.{name}")}
    assert shown[None]["row_count"] == 3
    assert [(shown[key]["low_value"], shown[key]["high_value"]) for key in ("n", "m")] == [("1", "7"), ("1.5", "2.5")]
    assert [round(shown[key]["nulls_fraction"], 2) for key in ("ds", "n", "m")] == [0, 0.33, 0.33]
    files = trino.sql(f'SELECT record_count AS rows, lower_bounds, upper_bounds FROM {catalog}.sales."{name}$files" ORDER BY 1')
    assert [row["rows"] for row in files] == [1, 2]
    assert files[1]["lower_bounds"] == {"1": "a", "2": "1", "3": "1.5"}
    assert files[1]["upper_bounds"] == {"1": "a", "2": "7", "3": "1.5"}
    partitions = trino.sql(
        f'SELECT partition.ds AS ds, record_count AS n, file_count AS f FROM {catalog}.sales."{name}$partitions"'
    )
    assert sorted(map(str, partitions)) == ["{'ds': 'a', 'n': 2, 'f': 1}", "{'ds': 'b', 'n': 1, 'f': 1}"]
    assert trino.sql(f"SELECT count(*) AS n, max(n) AS most FROM {catalog}.sales.{name}") == [{"n": 3, "most": 7}]
