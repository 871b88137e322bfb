"""Features of Delta that others switch on in our tables: refreshes are refused by name, nothing breaks, and a remedy works."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.maintenance.sweeping import expire, recover
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.contracts.refreshing.place import Place
from tests.engines.test_delta_beside_refreshes import by_delta, name, other
from tests.support.spark import PlainSpark

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["hive/delta"], indirect=True)]

SET = "ALTER TABLE {{t}} SET TBLPROPERTIES ('{}' = '{}')"

FEATURES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "deletion vectors": (
        (SET.format("delta.enableDeletionVectors", "true"),),
        "has the feature deletionVectors",
        (SET.format("delta.enableDeletionVectors", "false"), "ALTER TABLE {t} DROP FEATURE deletionVectors"),
    ),
    "column mapping by name": (
        (
            SET.format("delta.columnMapping.mode", "name"),
            "ALTER TABLE {t} RENAME COLUMN n TO m",
            "ALTER TABLE {t} RENAME COLUMN m TO n",
        ),
        r"maps its columns by name \(delta.columnMapping.mode\)",
        ("ALTER TABLE {t} DROP FEATURE columnMapping",),
    ),
    "in-commit timestamps": (
        (SET.format("delta.enableInCommitTimestamps", "true"),),
        "has the feature inCommitTimestamp",
        ("ALTER TABLE {t} DROP FEATURE inCommitTimestamp",),
    ),
    "row tracking": (
        (SET.format("delta.enableRowTracking", "true"),),
        "has the feature rowTracking",
        (SET.format("delta.enableRowTracking", "false"), "ALTER TABLE {t} DROP FEATURE rowTracking"),
    ),
    "wider types": (
        (SET.format("delta.enableTypeWidening", "true"),),
        "has the feature typeWidening",
        ("ALTER TABLE {t} DROP FEATURE typeWidening",),
    ),
    "change data feed": (
        (SET.format("delta.enableChangeDataFeed", "true"),),
        "has the property delta.enableChangeDataFeed",
        (SET.format("delta.enableChangeDataFeed", "false"),),
    ),
    "check": (
        ("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (n > 0)",),
        "has the constraint positive",
        ("ALTER TABLE {t} DROP CONSTRAINT positive",),
    ),
    "default": (
        (SET.format("delta.feature.allowColumnDefaults", "supported"), "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 5"),
        "has defaults of columns",
        ("ALTER TABLE {t} ALTER COLUMN n DROP DEFAULT",),
    ),
    "append only": (
        (SET.format("delta.appendOnly", "true"),),
        "has the property delta.appendOnly: it may only be appended to",
        (SET.format("delta.appendOnly", "false"),),
    ),
}


@pytest.mark.parametrize("case", FEATURES)
def test_a_feature_is_refused_by_name_and_refreshes_go_on_without_it(two_days: Place, delta_spark: PlainSpark, case: str) -> None:
    statements, why, remedy = FEATURES[case]
    two_days.at(Step.COMMIT, "d3", other(two_days, delta_spark, *statements))
    with pytest.raises(UnsupportedError, match=f"{why}.*, so its rows cannot be replaced here; take that off the table"):
        two_days.refresh(3, [31], token="d3")
    if case != "append only":
        other(two_days, delta_spark, "DELETE FROM {t} WHERE n = 11")()
    expected = {2: [21]} if case != "append only" else {1: [11], 2: [21]}
    assert by_delta(two_days, delta_spark) == expected
    with pytest.raises(UnsupportedError, match=why):
        two_days.refresh(3, token="again")
    with pytest.raises(UnsupportedError, match=why):
        two_days.roll_back(1, "back")

    maintain(two_days)
    other(two_days, delta_spark, "INSERT INTO {t} (ds, n) VALUES ('2024-03-02', 22)")()
    assert by_delta(two_days, delta_spark) == {**expected, 2: [21, 22]}, "its engine still reads and writes"

    other(two_days, delta_spark, *remedy)()
    assert two_days.refresh(3, token="then").number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {**expected, 2: [21, 22], 3: [31]}
    maintain(two_days)
    assert two_days.roll_back(2, "back").number == 4
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21]}


def maintain(place: Place) -> None:
    """What the maintenance does months later, when everything that may go goes."""
    place.clock.time += 2 * LEASE
    recover(place.workspace, place.table)
    expire(place.workspace, place.table)


def test_rows_below_deletion_vectors_are_neither_read_nor_counted(two_days: Place, delta_spark: PlainSpark) -> None:
    two_days.by_hand(1, [11, 12])
    other(two_days, delta_spark, SET.format("delta.enableDeletionVectors", "true"), "DELETE FROM {t} WHERE n = 11")()
    assert by_delta(two_days, delta_spark) == {1: [12], 2: [21]}
    with pytest.raises(UnsupportedError, match=r"holds deletion vectors.*read it with a Delta reader that knows this"):
        two_days.rows()
    catalog = two_days.workspace.catalog(two_days.table.catalog)
    assert catalog.get_table_statistics(two_days.table.path).rows is None
    assert {partition.statistics.rows for partition in catalog.get_partitions(two_days.table.path)} == {None}


def test_a_shallow_clone_of_ours_reads_its_version_whatever_we_do_next(two_days: Place, delta_spark: PlainSpark) -> None:
    clone = f"{name(two_days)}_clone"
    delta_spark.sql(f"CREATE TABLE {clone} SHALLOW CLONE {name(two_days)}")
    two_days.by_hand(1, [19])
    assert sorted(row["n"] for row in delta_spark.sql(f"SELECT * FROM {clone}")) == [11, 21]
    delta_spark.sql(f"UPDATE {clone} SET n = 5 WHERE n = 11")
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [19], 2: [21]}
    delta_spark.sql(f"DROP TABLE {clone}")
