"""What Trino does to a table of ours, between two refreshes and while one is about to commit."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.exceptions import DynamicTableError, StageRejectedError
from tests.support.iceberg_shared import BEFORE, SharedTable, check_that_a_commit_lands_in_no_other_table

pytestmark = [pytest.mark.large]

ONE_MORE = BEFORE | {1: [11, 12, 13]}
INSERT = "INSERT INTO {t} VALUES ('2024-03-01', 13)"
DELETE = "DELETE FROM {t} WHERE n = 11"
MERGE = (
    "MERGE INTO {t} AS t USING (VALUES ('2024-03-01', 11), ('2024-03-09', 91)) AS s (ds, n) ON t.ds = s.ds AND t.n = s.n "
    "WHEN MATCHED THEN UPDATE SET n = 99 WHEN NOT MATCHED THEN INSERT VALUES (s.ds, s.n)"
)
ORPHANS = "ALTER TABLE {t} EXECUTE remove_orphan_files(retention_threshold => '0s')"

KEPT: dict[str, tuple[tuple[str, ...], dict[int, list[int]]]] = {
    "insert": ((INSERT,), ONE_MORE),
    "delete": ((DELETE,), BEFORE | {1: [12]}),
    "delete a partition": (("DELETE FROM {t} WHERE ds = '2024-03-01'",), {2: [21, 22]}),
    "truncate": (("TRUNCATE TABLE {t}",), {}),
    "update": (("UPDATE {t} SET n = n + 100 WHERE n = 11",), BEFORE | {1: [12, 111]}),
    "merge": ((MERGE,), BEFORE | {1: [12, 99], 9: [91]}),
    "optimize": ((INSERT, "ALTER TABLE {t} EXECUTE optimize"), ONE_MORE),
    "optimize after deletes": ((DELETE, "ALTER TABLE {t} EXECUTE optimize"), BEFORE | {1: [12]}),
    "optimize manifests": (("ALTER TABLE {t} EXECUTE optimize_manifests",), BEFORE),
    "expire": ((INSERT, "ALTER TABLE {t} EXECUTE expire_snapshots(retention_threshold => '0s')"), ONE_MORE),
    "orphans": ((ORPHANS,), BEFORE),
    "analyze": (("ANALYZE {t}",), BEFORE),
    "orc": (("ALTER TABLE {t} SET PROPERTIES format = 'ORC'", INSERT), ONE_MORE),
    "sorted": (("ALTER TABLE {t} SET PROPERTIES sorted_by = ARRAY['n']", INSERT), ONE_MORE),
    "comment": (("COMMENT ON TABLE {t} IS 'of Trino'",), BEFORE),
    "a column for a time": (
        (
            "ALTER TABLE {t} ADD COLUMN extra VARCHAR",
            "INSERT INTO {t} VALUES ('2024-03-01', 13, 'x')",
            "ALTER TABLE {t} DROP COLUMN extra",
        ),
        ONE_MORE,
    ),
}
"""Changes that a refresh of another day keeps as they are."""


@pytest.fixture
def filled(trino_table: SharedTable) -> SharedTable:
    """The table with two days."""
    trino_table.fill()
    return trino_table


@pytest.mark.parametrize("name", KEPT)
def test_a_refresh_keeps_what_trino_wrote_elsewhere(filled: SharedTable, name: str) -> None:
    place, (statements, rows) = filled.place, KEPT[name]
    filled.sql(*statements)
    assert filled.theirs() == rows
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == place.rows() == rows | {3: [31]}
    assert place.history() == {"d1": ("SUCCEEDED", 1), "d2": ("SUCCEEDED", 2), "d3": ("SUCCEEDED", 3)}
    if name != "expire":
        place.roll_back(2, "back")
        assert filled.theirs() == place.rows() == BEFORE


@pytest.mark.parametrize("name", ["insert", "delete", "merge", "truncate", "optimize", "expire"])
def test_a_commit_lands_on_what_trino_wrote_meanwhile(filled: SharedTable, name: str) -> None:
    place, (statements, rows) = filled.place, KEPT[name]
    filled.at_commit("d3", *statements)
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == place.rows() == rows | {3: [31]}
    assert place.history()["d3"] == ("SUCCEEDED", 3)


def test_orphans_that_are_not_left_time_take_the_stage_with_them(filled: SharedTable) -> None:
    """Trino removes files of the last week only where its configuration lets it."""
    place = filled.place
    filled.at_commit("d3", ORPHANS)
    with pytest.raises(StageRejectedError, match="nothing was committed"):
        place.refresh(3, [31], token="d3")
    assert filled.theirs() == place.rows() == BEFORE
    place.refresh(3)
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "added column": (("ALTER TABLE {t} ADD COLUMN extra VARCHAR",), "no longer returns column 'extra'"),
    "renamed column": (("ALTER TABLE {t} RENAME COLUMN n TO m",), "Column 2 was m bigint, but the query returns n bigint"),
    "one more key": (
        ("ALTER TABLE {t} SET PROPERTIES partitioning = ARRAY['ds', 'bucket(n, 4)']", INSERT),
        r"partitioned by \(ds, bucket\(4, n\)\)",
    ),
    "no key": (("ALTER TABLE {t} SET PROPERTIES partitioning = ARRAY[]", INSERT), r"partitioned by \(\)"),
    "replaced by another": (("CREATE OR REPLACE TABLE {t} AS SELECT '2024-03-07' AS ds, 1 AS x",), r"partitioned by \(\)"),
}
"""Changes after which only a refresh of the complete table is possible, and why."""


def _everything(shared: SharedTable) -> list[str]:
    return sorted(map(str, shared.sql("SELECT * FROM {t}")))


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_no_partition_survives_is_refused_and_replaced_by_all(filled: SharedTable, name: str) -> None:
    place, (statements, why) = filled.place, REFUSED[name]
    filled.sql(*statements)
    before = _everything(filled)
    with pytest.raises(DynamicTableError, match=rf"{why}.* Refresh all of it with --full-refresh"):
        place.refresh(3, [31])
    assert _everything(filled) == before
    filled.full_refresh(3)
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}


REPLACED = (
    "CREATE OR REPLACE TABLE {t} WITH (partitioning = ARRAY['ds']) AS SELECT CAST('2024-03-07' AS VARCHAR) AS ds, "
    "CAST(71 AS BIGINT) AS n"
)


def test_a_replaced_table_goes_on_with_its_numbers(filled: SharedTable) -> None:
    place = filled.place
    filled.sql(REPLACED)
    assert place.refresh(3, [31]).number == 3
    assert filled.theirs() == place.rows() == {3: [31], 7: [71]}
    place.roll_back(2, "back")
    assert filled.theirs() == place.rows() == BEFORE


def test_days_that_trino_took_back_are_refreshed_again(filled: SharedTable) -> None:
    place = filled.place
    (first,) = filled.sql('SELECT snapshot_id FROM {c}.{d}."figures$snapshots" ORDER BY committed_at LIMIT 1')
    filled.sql(f"ALTER TABLE {{t}} EXECUTE rollback_to_snapshot({first['snapshot_id']})")
    assert filled.theirs() == place.rows() == {1: BEFORE[1]}
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}
    assert place.history() == {"d1": ("SUCCEEDED", 1), "d2": ("UNDONE", 2), "d3": ("SUCCEEDED", 3)}


GONE: dict[str, tuple[str, ...]] = {
    "dropped": ("DROP TABLE {t}",),
    "renamed": ("ALTER TABLE {t} RENAME TO {d}.other",),
    "recreated": ("DROP TABLE {t}", REPLACED.replace("OR REPLACE ", "")),
}


@pytest.mark.parametrize("how", GONE)
def test_a_commit_never_lands_in_another_table(filled: SharedTable, how: str) -> None:
    check_that_a_commit_lands_in_no_other_table(filled, *GONE[how])
