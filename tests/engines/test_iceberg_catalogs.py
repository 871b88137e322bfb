"""Spark with Iceberg's own library on our tables, in every kind of catalog that both know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.status import list_tables, show_table
from tests.contracts.refreshing.place import MARCH
from tests.support.iceberg_shared import CATALOGS, SharedTable

pytestmark = [pytest.mark.large, pytest.mark.spark]

IN_EVERY_CATALOG = pytest.mark.parametrize("shared", CATALOGS, indirect=True)


@IN_EVERY_CATALOG
def test_both_read_what_the_other_wrote(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11, 12])
    place.refresh(2, [21])
    assert shared.theirs() == place.rows() == {1: [11, 12], 2: [21]}
    shared.sql("INSERT INTO {t} VALUES ('2024-03-01', 13), ('2024-03-09', 91)", "DELETE FROM {t} WHERE n = 11")
    assert shared.theirs() == place.rows() == {1: [12, 13], 2: [21], 9: [91]}
    status = show_table(place.workspace, place.table).status
    assert (status.version, status.data_timestamp) == (2, MARCH + timedelta(days=2)), "what others write is no version"
    place.by_hand(1, [14])
    assert shared.theirs() == place.rows() == {1: [14], 2: [21], 9: [91]}
    place.roll_back(2, "back")
    assert shared.theirs() == place.rows() == {1: [11, 12], 2: [21]}


@IN_EVERY_CATALOG
def test_the_snapshots_say_which_version_they_are(shared: SharedTable) -> None:
    shared.place.refresh(1, [11], token="first")
    shared.place.refresh(2, [21], token="second")
    told = shared.sql("SELECT summary FROM {t}.snapshots ORDER BY committed_at")
    summaries = [row["summary"] for row in told if "dynamic-tables.version" in row["summary"]]
    assert [(one["dynamic-tables.version"], one["dynamic-tables.token"]) for one in summaries] == [
        ("1", "first"),
        ("2", "second"),
    ]
    assert [(one["added-records"], one["total-records"]) for one in summaries] == [("1", "1"), ("1", "2")]
    assert shared.sql("SELECT partition.ds AS ds, record_count AS n FROM {t}.partitions ORDER BY ds") == [
        {"ds": "2024-03-01", "n": 1},
        {"ds": "2024-03-02", "n": 1},
    ]


@IN_EVERY_CATALOG
def test_nothing_is_lost_when_both_write_at_once(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [10])
    shared.sql("ALTER TABLE {t} SET TBLPROPERTIES ('commit.retry.num-retries' = '100', 'commit.retry.max-wait-ms' = '500')")
    ninth = [900 + number for number in range(12)]

    def insert() -> None:
        for number in ninth:
            shared.sql(f"INSERT INTO {{t}} VALUES ('2024-03-09', {number})")

    with ThreadPoolExecutor(1) as thread:
        theirs = thread.submit(insert)
        written = 10
        while written < 13 or not theirs.done():
            written += 1
            place.by_hand(1, [written])
        theirs.result()
    assert shared.theirs() == place.rows() == {1: [written], 9: ninth}
    assert {state for state, _ in place.history().values()} == {"SUCCEEDED"}


@IN_EVERY_CATALOG
def test_a_dropped_table_is_recreated_by_its_refresh(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11], token="d1")
    shared.sql("DROP TABLE {t}")
    place.refresh(2, [21], token="d2")
    assert shared.theirs() == place.rows()
    assert place.rows()[2] == [21]


@pytest.mark.parametrize("shared", ["sql", "apache rest"], indirect=True)  # a metastore cannot have such a table
def test_a_table_with_a_type_that_is_unknown_here_hides_no_other(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])
    shared.sql("CREATE TABLE {c}.{d}.events (v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    listed = list_tables(place.workspace, {}, complete=True)
    assert [one.identifier for one in listed.tables] == [str(place.table)]
    events = replace(place.table, table="events")
    with pytest.raises(UnsupportedError, match=r"events in catalog \S+ has a column of type variant, which cannot be read"):
        place.workspace.readable(events.catalog).get_table(events.path)
    place.refresh(2, [21])
    assert place.rows() == {1: [11], 2: [21]}


@pytest.mark.parametrize("shared", ["sql", pytest.param("sql on postgres", marks=pytest.mark.postgres)], indirect=True)
def test_a_view_of_spark_is_no_table(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])
    shared.sql("CREATE VIEW {c}.{d}.newest AS SELECT * FROM {t}")
    listed = list_tables(place.workspace, {}, complete=True)
    assert [one.identifier for one in listed.tables] == [str(place.table)]
    newest = replace(place.table, table="newest")
    catalog = place.workspace.catalog(newest.catalog)
    for refused in (
        lambda: catalog.get_table(newest.path),
        lambda: catalog.drop_table(newest.path),
        lambda: catalog.rename_table(newest.path, "latest"),
    ):
        with pytest.raises(UnsupportedError, match=r"sales.newest in catalog \S+ is a view of another engine"):
            refused()
    place.refresh(2, [21])
    assert shared.sql("SELECT n FROM {c}.{d}.newest ORDER BY n") == [{"n": 11}, {"n": 21}]
