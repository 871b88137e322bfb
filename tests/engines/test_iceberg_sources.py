"""Tables of Spark with Iceberg's own library as sources: types, rows, and which partitions changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import polars
import pytest

from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.formats.base import LakeTable
from tests.engines.test_iceberg_changes import DELETE, INSERT, MERGE, REWRITE, UPDATE
from tests.support.iceberg_shared import SharedTable
from tests.support.source_states import difference

pytestmark = [pytest.mark.large, pytest.mark.spark]

DAYS = {1: [11, 12], 2: [21]}
EVERY_TYPE = {
    "i INT": 1,
    "l BIGINT": 2**40,
    "f FLOAT": 1.5,
    "d DOUBLE": 2.5,
    "de DECIMAL(20, 5)": Decimal("12345.67891"),
    "s STRING": "é",
    "b BINARY": b"\x00\xff",
    "bo BOOLEAN": True,
    "dt DATE": date(1, 1, 1),
    "ts TIMESTAMP": datetime(2024, 3, 1, 12, 0, 0, 123456, UTC),
    "tn TIMESTAMP_NTZ": datetime(2024, 3, 1, 12, 0, 0, 123456, UTC).replace(tzinfo=None),
    "st STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>": {"a": 1, "b": [{"c": "x"}, None]},
    "m MAP<STRING, DECIMAL(9, 2)>": [("k", Decimal("1.25"))],
}
VALUES = (
    f"1, {2**40}, 1.5, 2.5, 12345.67891, 'é', X'00ff', true, DATE '0001-01-01', TIMESTAMP '2024-03-01 12:00:00.123456', "
    "TIMESTAMP_NTZ '2024-03-01 12:00:00.123456', named_struct('a', 1, 'b', array(named_struct('c', 'x'), null)), map('k', 1.25)"
)


def table_of(shared: SharedTable) -> LakeTable:
    return shared.place.workspace.table(shared.place.table, "iceberg")


def state(shared: SharedTable) -> SourceState:
    found = table_of(shared).read().state
    assert found is not None
    return found


@pytest.mark.parametrize("keys", ["", "PARTITIONED BY (days(ts), bucket(4, s), truncate(3, de))"])
def test_every_type_is_read_with_its_values(shared: SharedTable, keys: str) -> None:
    place = shared.place
    kinds = replace(shared, place=replace(place, table=replace(place.table, table="kinds")))
    place.refresh(1, [11])  # which makes the database
    kinds.sql(
        f"CREATE TABLE {{t}} ({', '.join(EVERY_TYPE)}) USING iceberg {keys}",
        f"INSERT INTO {{t}} VALUES ({VALUES}), ({', '.join(['null'] * len(EVERY_TYPE))})",
    )
    names = [column.partition(" ")[0] for column in EVERY_TYPE]
    rows = sorted(table_of(kinds).sample(10), key=lambda row: row["i"] is None)
    assert rows == [dict(zip(names, EVERY_TYPE.values(), strict=True)), dict.fromkeys(names)]
    columns = place.workspace.readable(place.table.catalog).get_table(kinds.place.table.path).columns
    assert [f"{column.name} {column.type}".lower() for column in columns] == [
        column.lower().replace(", ", ",").replace(": ", ":") if "<" in column else column.lower().replace(", ", ",")
        for column in EVERY_TYPE
    ]


@pytest.fixture
def source(shared: SharedTable) -> SharedTable:
    """A table of two days."""
    for day, numbers in DAYS.items():
        shared.place.refresh(day, numbers)
    return shared


CHANGED = {
    "insert": (INSERT,),
    "delete": (DELETE,),
    "delete on read": ("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')", DELETE),
    "deletion vectors": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
        DELETE,
    ),
    "update on read": ("ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'merge-on-read')", UPDATE),
}
"""Statements that change the rows of the first day only."""


@pytest.mark.parametrize("name", CHANGED)
def test_only_the_changed_partition_is_seen_as_changed(source: SharedTable, name: str) -> None:
    before = state(source)
    source.sql(*CHANGED[name])
    found = difference(before, state(source))
    assert found is not None
    assert found.partitions == frozenset({"ds=2024-03-01"})


def test_a_merge_changes_what_it_meets(source: SharedTable) -> None:
    before = state(source)
    source.sql(MERGE)
    found = difference(before, state(source))
    assert found is not None
    assert found.partitions == frozenset({"ds=2024-03-01", "ds=2024-03-09"})


UNCHANGED = {
    "rewritten manifests": ("CALL {c}.system.rewrite_manifests('{d}.figures')",),
    "statistics": ("CALL {c}.system.compute_table_stats('{d}.figures')",),
    "compacted files": (REWRITE,),
    "files that were compacted twice": (REWRITE, REWRITE),
    "sort order": ("ALTER TABLE {t} WRITE ORDERED BY n",),
    "properties": ("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'orc')",),
    "a branch and a tag": (
        "ALTER TABLE {t} CREATE BRANCH b",
        "INSERT INTO {t}.branch_b VALUES ('2024-03-01', 13)",
        "ALTER TABLE {t} CREATE TAG v",
    ),
    "expired": (
        "CALL {c}.system.expire_snapshots(table => '{d}.figures', older_than => timestamp '2100-01-01', retain_last => 1)",
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_changes_no_rows_is_no_change(source: SharedTable, name: str) -> None:
    before = state(source)
    source.sql(*UNCHANGED[name])
    assert difference(before, state(source)) is None


def test_rows_changed_before_a_compaction_are_seen(source: SharedTable) -> None:
    before = state(source)
    source.sql(INSERT, REWRITE)
    found = difference(before, state(source))
    assert found is not None
    assert "ds=2024-03-01" in (found.partitions or ())


def test_only_the_asked_partition_is_read(source: SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the other day is not there, which none of the engines notices."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    (second,) = (file for file in source.folder.rglob("*.parquet") if "2024-03-02" in str(file))
    second.unlink()
    query = "SELECT n FROM {t} WHERE ds = '2024-03-01' ORDER BY n"
    assert [row["n"] for row in source.sql(query)] == DAYS[1]
    metadata = source.sql("SELECT file FROM {t}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1")[0]["file"]
    scanned = polars.scan_iceberg(metadata).filter(polars.col("ds") == "2024-03-01").sort("n").collect()
    assert scanned["n"].to_list() == DAYS[1]
    with pytest.raises(AssertionError, match=r"does not exist|NotFound"):
        source.sql("SELECT n FROM {t} WHERE ds = '2024-03-02'")
