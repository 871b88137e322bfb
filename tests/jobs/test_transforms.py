"""What Spark computes of a column is what Iceberg computes of it, for every type and whatever the time zone of the session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.types import IcebergType
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.iceberg.schemas import to_iceberg, transform_of
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partition_transforms import TRANSFORMS, HiddenKey
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.jobs.writers import transformed
from tests.jobs.conftest import Plan
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

NUMBERS = (16, 1_000_003)

MICROS = st.one_of(st.integers(-(10**7), 10**7), st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
"""Microseconds since 1970: about then, and of all years that PyIceberg knows."""


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(1 - 10**precision, 10**precision - 1).map(lambda digits: Decimal(f"{digits}E-{scale}"))


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**62), 2**63 - 1)),
    "string": (pa.string(), st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.integers(-719_162, 2_932_896)),
    "timestamp": (pa.timestamp("us", "UTC"), MICROS),
    "timestamp_ntz": (pa.timestamp("us"), MICROS),
    "decimal(4,2)": (pa.decimal128(4, 2), _decimals(4, 2)),
    "decimal(18,6)": (pa.decimal128(18, 6), _decimals(18, 6)),
    "decimal(30,29)": (pa.decimal128(30, 29), _decimals(30, 29)),
    "decimal(36,35)": (pa.decimal128(36, 35), _decimals(36, 35)),
    "decimal(38,0)": (pa.decimal128(38, 0), st.integers(1 - 10**37, 10**38 - 1).map(Decimal)),
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", VALUES)
def test_spark_and_iceberg_compute_the_same(session: SparkSession, tmp_path: Path, kind: str) -> None:
    arrow, values = VALUES[kind]
    keys = [
        key
        for name in TRANSFORMS
        for number in (NUMBERS if TRANSFORMS[name].number else (None,))
        if (key := HiddenKey(name, "c", number)).type_problem(kind) is None
    ]
    iceberg = to_iceberg(kind)

    # An example is a job of Spark: one of many values, and none to make a smaller one of another.
    @settings(max_examples=1, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(values, min_size=100, max_size=200))
    def compare(column: list[Any]) -> None:
        file = tmp_path / f"{uuid4()}.parquet"
        pq.write_table(pa.table({"c": pa.array([None, *column], arrow)}), file)
        frame = session.read.parquet(str(file))
        source = frame.schema["c"].dataType
        assert source.simpleString() == kind
        found = frame.select([transformed(key, source).alias(str(key)) for key in keys]).collect()
        for key in keys:
            wanted = [_wanted(key, iceberg, value) for value in (None, *column)]
            assert [row[str(key)] for row in found] == wanted, key

    compare()


def _wanted(key: HiddenKey, kind: IcebergType, value: Any) -> Any:
    computed = transform_of(key).transform(kind)(value)
    return computed.hex().upper() if isinstance(computed, bytes) else computed


@pytest.mark.large
def test_a_refresh_partitions_by_what_is_computed(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    table = IcebergTable(catalog.stores()[0], ObjectPath("sales", "t"))
    staged = table.stage("t1")
    keys = ("country", "hour(ts)", "year(d)", "month(local)", "bucket(3, id)", "truncate(2, name)", "truncate(10, price)")
    query = """
        SELECT if(id % 2 = 0, 'DE', 'FR') AS country, timestamp_micros(-5000000000 + id * 1000000000) AS ts,
               DATE'1969-12-30' + CAST(id AS INT) AS d, TIMESTAMP_NTZ'1969-12-31 23:00:00' + INTERVAL '1' HOUR * id AS local,
               if(id = 7, NULL, id) AS id, CASE id WHEN 3 THEN '' WHEN 4 THEN NULL WHEN 5 THEN '__HIVE_DEFAULT_PARTITION__'
               ELSE concat('ä/=', id) END AS name, CAST(id / 3 AS DECIMAL(9,2)) AS price
        FROM range(20)
    """
    result = refresh(spark, plan(query, stage=staged.begin(), partition_keys=keys, timezone="Asia/Kolkata"))
    staged.commit(CommitRequest(result, datetime(2026, 1, 1, tzinfo=UTC), partition_keys=keys), lambda: None)
    assert result.partitions == ({"country": "DE"}, {"country": "FR"})
    rows = table.sample(100)
    assert sorted(row["id"] for row in rows if row["id"] is not None) == [number for number in range(20) if number != 7]
    start = datetime(1969, 12, 31, 22, 36, 40, tzinfo=UTC)
    assert sorted(row["ts"] for row in rows) == [start + timedelta(seconds=1000 * number) for number in range(20)]
    assert min(row["d"] for row in rows) == date(1969, 12, 30)
    counted = table.count(plan("SELECT 1").partitions)
    assert counted is not None
    assert counted.total == 20
    catalog.close()


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("day(x)", "partition key day(x) is of a column of type double, and day takes date | timestamp | timestamp_ntz"),
        ("day(y)", "the query does not return partition key 'y'"),
    ],
)
def test_a_key_that_cannot_be_computed_is_refused(spark: SparkSession, plan: Plan, key: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        refresh(spark, plan("SELECT 1.5D AS x", partition_keys=(key,)))
