"""Spark with Delta's own library replaces our tables of a ``sql`` catalog: they are refused by name, or made again in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import SchemaEvolutionError, UnsupportedError
from tests.contracts.refreshing.place import Place
from tests.support.spark import PlainSpark

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["sql/delta"], indirect=True)]


def folder(place: Place) -> Path:
    location = place.workspace.table(place.table, "delta").folder()
    assert location is not None
    return Path(location.removeprefix("file://"))


def replace(place: Place, spark: PlainSpark, *statements: str) -> None:
    """Run statements on a name ``t`` of the table, which is the other engine's own."""
    spark.sql(f"CREATE TABLE replaced USING delta LOCATION '{folder(place)}'")
    try:
        for statement in statements:
            spark.sql(statement.format(t="replaced"))
    finally:
        spark.sql("DROP TABLE replaced")


def by_delta(place: Place, spark: PlainSpark) -> list[int]:
    return sorted(row["n"] for row in spark.sql(f"SELECT n FROM delta.`{folder(place)}`"))


def test_other_columns_and_keys_are_refused_until_a_full_refresh(two_days: Place, delta_spark: PlainSpark) -> None:
    replace(two_days, delta_spark, "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 'x' AS b, 1L AS n")
    with pytest.raises(SchemaEvolutionError, match=r"is partitioned by \(\), its definition now by \(ds\).*--full-refresh"):
        two_days.refresh(3, [31])
    assert by_delta(two_days, delta_spark) == [1]
    assert two_days.refresh(3, full_refresh=True).number == 3
    assert two_days.rows() == {1: [11], 2: [21], 3: [31]}
    assert by_delta(two_days, delta_spark) == [11, 21, 31]
    settings = {row["key"]: row["value"] for row in delta_spark.sql(f"SHOW TBLPROPERTIES delta.`{folder(two_days)}`")}
    assert settings["delta.enableExpiredLogCleanup"] == "false"


def test_a_column_that_may_not_be_null_is_refused_until_a_full_refresh(two_days: Place, delta_spark: PlainSpark) -> None:
    statement = "CREATE OR REPLACE TABLE {t} (ds STRING, n BIGINT NOT NULL) USING delta PARTITIONED BY (ds)"
    replace(two_days, delta_spark, statement)
    with pytest.raises(SchemaEvolutionError, match=r"Column 'n' is not nullable, but the query may return nulls.*--full-refresh"):
        two_days.refresh(3, [31])
    assert two_days.refresh(3, full_refresh=True).number == 3
    assert by_delta(two_days, delta_spark) == [11, 21, 31]


def test_a_full_refresh_ends_a_clustering_where_the_table_has_partition_keys(two_days: Place, delta_spark: PlainSpark) -> None:
    replace(
        two_days,
        delta_spark,
        "CREATE OR REPLACE TABLE {t} (ds STRING, n BIGINT) USING delta CLUSTER BY (n)",
        "INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 1)",
        "OPTIMIZE {t}",
    )
    with pytest.raises(SchemaEvolutionError, match=r"is partitioned by \(\), its definition now by \(ds\).*--full-refresh"):
        two_days.refresh(3, [31])
    assert two_days.refresh(3, full_refresh=True).number == 3
    described = delta_spark.sql(f"DESCRIBE DETAIL delta.`{folder(two_days)}`")[0]
    assert (described["partitionColumns"], described["clusteringColumns"]) == (["ds"], [])
    replace(two_days, delta_spark, "INSERT INTO {t} VALUES ('2024-03-02', 22)", "DELETE FROM {t} WHERE n = 21", "OPTIMIZE {t}")
    assert two_days.refresh(4, [41]).number == 4
    assert two_days.rows() == {1: [11], 2: [22], 3: [31], 4: [41]}
    assert by_delta(two_days, delta_spark) == [11, 22, 31, 41]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("ds STRING, n BIGINT, g BIGINT GENERATED ALWAYS AS (n + 1)) USING delta PARTITIONED BY (ds", "has generated columns"),
        ("ds STRING, n BIGINT, i BIGINT GENERATED ALWAYS AS IDENTITY) USING delta PARTITIONED BY (ds", "has identity columns"),
    ],
)
def test_what_cannot_be_taken_off_a_table_again_is_refused_by_name(
    two_days: Place, delta_spark: PlainSpark, columns: str, reason: str
) -> None:
    replace(
        two_days,
        delta_spark,
        f"CREATE OR REPLACE TABLE {{t}} ({columns})",
        "INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 1)",
        "OPTIMIZE {t}",
    )
    with pytest.raises(UnsupportedError, match=f"{reason}.*, or drop the table and refresh it again"):
        two_days.refresh(3, [31], full_refresh=True)
    assert by_delta(two_days, delta_spark) == [1]
