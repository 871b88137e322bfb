"""Who decides which of Spark's settings: whatever is not known to say only how a query is run is the definition's."""

import pytest

from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, decides_rows


@pytest.mark.parametrize("name", [*DEFAULTS, TIME_ZONE, "spark.sql.legacy.sizeOfNull", "spark.sql.files.ignoreCorruptFiles"])
def test_what_a_query_means_is_the_definitions(name: str) -> None:
    assert decides_rows(name)


def test_what_nobody_knows_yet_is_too() -> None:
    assert decides_rows("spark.sql.something.that.a.later.spark.has")


@pytest.mark.parametrize(
    "name",
    [
        "spark.executor.memory",
        "spark.sql.shuffle.partitions",
        "spark.sql.catalog.lake.jdbc.password",
        "spark.hadoop.fs.s3a.endpoint",
    ],
)
def test_how_it_is_run_is_the_clusters(name: str) -> None:
    assert not decides_rows(name)


def test_nothing_is_both_fixed_and_free() -> None:
    assert FIXED.keys().isdisjoint({*DEFAULTS, TIME_ZONE})
