"""What Spark with Iceberg's own library does to a table of ours, between two refreshes and while one is about to commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, DynamicTableError, UnsupportedError
from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import MARCH
from tests.support.iceberg_shared import BEFORE, SharedTable, check_that_a_commit_lands_in_no_other_table

pytestmark = [pytest.mark.large, pytest.mark.spark]


@dataclass(frozen=True)
class Change:
    """Statements, and the rows by day after them."""

    statements: tuple[str, ...]
    rows: dict[int, list[int]]


def _on_read(what: str, *statements: str, **rows: list[int]) -> Change:
    mode = f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.{what}.mode' = 'merge-on-read')"
    return Change((mode, *statements), BEFORE | {int(day[1:]): numbers for day, numbers in rows.items()})


INSERT = "INSERT INTO {t} VALUES ('2024-03-01', 13)"
UPDATE = "UPDATE {t} SET n = n + 100 WHERE n = 11"
DELETE = "DELETE FROM {t} WHERE n = 11"
MERGE = (
    "MERGE INTO {t} USING (SELECT '2024-03-01' AS ds, 11 AS n UNION ALL SELECT '2024-03-09', 91) AS s "
    "ON {t}.ds = s.ds AND {t}.n = s.n WHEN MATCHED THEN UPDATE SET n = 99 WHEN NOT MATCHED THEN INSERT *"
)
REWRITE = "CALL {c}.system.rewrite_data_files(table => '{d}.figures', options => map('rewrite-all', 'true'))"
REWRITE_DELETES = "CALL {c}.system.rewrite_position_delete_files(table => '{d}.figures', options => map('rewrite-all', 'true'))"
ONE_MORE = BEFORE | {1: [11, 12, 13]}

KEPT: dict[str, Change] = {
    "insert": Change((INSERT,), ONE_MORE),
    "insert avro": Change(("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'avro')", INSERT), ONE_MORE),
    "insert overwrite": Change(("INSERT OVERWRITE {t} VALUES ('2024-03-01', 14)",), {1: [14]}),
    "truncate": Change(("TRUNCATE TABLE {t}",), {}),
    "delete": Change((DELETE,), BEFORE | {1: [12]}),
    "delete on read": _on_read("delete", DELETE, _1=[12]),
    "update": Change((UPDATE,), BEFORE | {1: [12, 111]}),
    "update on read": _on_read("update", UPDATE, _1=[12, 111]),
    "merge": Change((MERGE,), BEFORE | {1: [12, 99], 9: [91]}),
    "merge on read": _on_read("merge", MERGE, _1=[12, 99], _9=[91]),
    "rewritten files": Change((REWRITE,), BEFORE),
    "rewritten deletes": _on_read("delete", DELETE, REWRITE_DELETES, _1=[12]),
    "deletes rewritten into files": _on_read("delete", DELETE, REWRITE, _1=[12]),
    "rewritten manifests": Change(("CALL {c}.system.rewrite_manifests('{d}.figures')",), BEFORE),
    "statistics": Change(("CALL {c}.system.compute_table_stats('{d}.figures')",), BEFORE),
    "partition statistics": Change(("CALL {c}.system.compute_partition_stats('{d}.figures')",), BEFORE),
    "sort order": Change(("ALTER TABLE {t} WRITE ORDERED BY n", INSERT), ONE_MORE),
    "compressed metadata": Change(
        ("ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')", INSERT), ONE_MORE
    ),
    "object storage": Change(("ALTER TABLE {t} SET TBLPROPERTIES ('write.object-storage.enabled' = 'true')", INSERT), ONE_MORE),
    "no properties of ours": Change(
        ("ALTER TABLE {t} UNSET TBLPROPERTIES ('dynamic-tables.latest', 'schema.name-mapping.default')",), BEFORE
    ),
    "a branch and a tag": Change(
        (
            "ALTER TABLE {t} CREATE BRANCH b",
            "INSERT INTO {t}.branch_b VALUES ('2024-03-01', 13)",
            "ALTER TABLE {t} CREATE TAG v RETAIN 90 DAYS",
        ),
        BEFORE,
    ),
    "a branch that became the table": Change(
        (
            "ALTER TABLE {t} CREATE BRANCH b",
            "INSERT INTO {t}.branch_b VALUES ('2024-03-01', 13)",
            "CALL {c}.system.fast_forward('{d}.figures', 'main', 'b')",
        ),
        ONE_MORE,
    ),
    "an audited branch": Change(
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')",
            "ALTER TABLE {t} CREATE BRANCH audit",
            "SET spark.wap.branch = audit",
            INSERT,
            "RESET spark.wap.branch",
        ),
        BEFORE,
    ),
    "a column for a time": Change(
        (
            "ALTER TABLE {t} ADD COLUMN extra STRING",
            "INSERT INTO {t} VALUES ('2024-03-01', 13, 'x')",
            "ALTER TABLE {t} DROP COLUMN extra",
        ),
        ONE_MORE,
    ),
    "expired": Change(
        (
            INSERT,
            "CALL {c}.system.expire_snapshots(table => '{d}.figures', older_than => timestamp '2100-01-01', retain_last => 1)",
        ),
        ONE_MORE,
    ),
}
"""Changes that a refresh of another day keeps as they are."""

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "added column": (("ALTER TABLE {t} ADD COLUMN extra STRING",), "no longer returns column 'extra'"),
    "renamed column": (("ALTER TABLE {t} RENAME COLUMN n TO m",), "Column 2 was m bigint, but the query returns n bigint"),
    "other order": (("ALTER TABLE {t} ALTER COLUMN n FIRST",), "Column 1 was n bigint, but the query returns ds string"),
    "one more key": (("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, n)", INSERT), r"partitioned by \(ds, bucket\(4, n\)\)"),
    "one key less": (("ALTER TABLE {t} DROP PARTITION FIELD ds", INSERT), r"partitioned by \(\)"),
    "another key": (
        ("ALTER TABLE {t} REPLACE PARTITION FIELD ds WITH truncate(7, ds)", INSERT),
        r"partitioned by \(truncate\(7, ds\)\)",
    ),
    "replaced by another": (("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 1 AS x",), r"partitioned by \(\)"),
}
"""Changes after which only a refresh of the complete table is possible, and why."""


@pytest.fixture
def filled(shared: SharedTable) -> SharedTable:
    """The table with two days."""
    shared.fill()
    return shared


def _everything(shared: SharedTable) -> list[str]:
    return sorted(map(str, shared.sql("SELECT * FROM {t}")))


def is_readable(name: str) -> bool:
    return name != "insert avro"  # which PyIceberg does not read


@pytest.mark.parametrize("name", KEPT)
def test_a_refresh_keeps_what_others_wrote_elsewhere(filled: SharedTable, name: str) -> None:
    place, change = filled.place, KEPT[name]
    filled.sql(*change.statements)
    assert filled.theirs() == change.rows
    status = show_table(place.workspace, place.table).status
    assert (status.version, status.data_timestamp) == (2, MARCH + timedelta(days=2))
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == change.rows | {3: [31]}
    if is_readable(name):
        assert place.rows() == change.rows | {3: [31]}
    else:
        with pytest.raises(UnsupportedError, match="holds AVRO files of another engine, so its rows cannot be shown"):
            place.rows()
    assert place.history() == {"d1": ("SUCCEEDED", 1), "d2": ("SUCCEEDED", 2), "d3": ("SUCCEEDED", 3)}
    if name != "expired":
        place.roll_back(2, "back")
        assert filled.theirs() == place.rows() == BEFORE


@pytest.mark.parametrize("name", KEPT)
def test_a_commit_lands_on_what_others_wrote_meanwhile(filled: SharedTable, name: str) -> None:
    place, change = filled.place, KEPT[name]
    filled.at_commit("d3", *change.statements)
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == change.rows | {3: [31]}
    assert place.history()["d3"] == ("SUCCEEDED", 3)


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


@pytest.mark.parametrize("name", REFUSED)
def test_a_commit_is_refused_when_such_a_change_came_meanwhile(filled: SharedTable, name: str) -> None:
    place, (statements, why) = filled.place, REFUSED[name]
    before: list[object] = []

    def change() -> None:
        filled.sql(*statements)
        before.append(_everything(filled))

    place.at(Step.COMMIT, "d3", change)
    with pytest.raises(DynamicTableError, match=why):
        place.refresh(3, [31], token="d3")
    assert [_everything(filled)] == before
    assert not [*filled.folder.rglob("d3-part-*")], "nothing of the stage is left"
    filled.full_refresh(3)
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}


def test_a_dropped_column_returns_with_its_values(filled: SharedTable) -> None:
    filled.sql(REWRITE, "ALTER TABLE {t} DROP COLUMN n")
    filled.place.refresh(3, [31])
    assert filled.theirs() == filled.place.rows() == BEFORE | {3: [31]}


@pytest.mark.parametrize("deletes", [(), (DELETE,)], ids=["without deletes", "with deletion vectors"])
def test_a_table_of_a_later_format_is_read_and_not_written(filled: SharedTable, deletes: tuple[str, ...]) -> None:
    place = filled.place
    modes = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    filled.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})", *deletes)
    rows = BEFORE | ({1: [12]} if deletes else {})
    with pytest.raises(CommitRejectedError, match=r"has Iceberg's format version 3, .* Drop it and refresh it again"):
        place.refresh(3, [31])
    assert filled.theirs() == place.rows() == rows
    filled.sql("DROP TABLE {t}")
    place.refresh(4, [41], token="d4")
    assert filled.theirs() == place.rows()
    assert place.rows()[4] == [41]


GOES_BACK = {
    "rollback_to_snapshot": "CALL {c}.system.rollback_to_snapshot('{d}.figures', %d)",
    "set_current_snapshot": "CALL {c}.system.set_current_snapshot('{d}.figures', %d)",
    "replace branch": "ALTER TABLE {t} CREATE OR REPLACE BRANCH main AS OF VERSION %d",
}


@pytest.mark.parametrize("how", GOES_BACK)
def test_days_that_others_took_back_are_refreshed_again(filled: SharedTable, how: str) -> None:
    place = filled.place
    filled.sql(GOES_BACK[how] % filled.snapshots()[0])
    assert filled.theirs() == place.rows() == {1: BEFORE[1]}
    place.refresh(3, [31], token="d3")
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}
    assert place.history() == {"d1": ("SUCCEEDED", 1), "d2": ("UNDONE", 2), "d3": ("SUCCEEDED", 3)}
    assert "another engine took the table back to version 1" in place.error("d2")


def test_a_commit_is_refused_when_others_went_back_meanwhile(filled: SharedTable) -> None:
    place = filled.place
    first = filled.snapshots()[0]
    filled.at_commit("d3", GOES_BACK["rollback_to_snapshot"] % first)
    with pytest.raises(ConflictError, match=r"[Nn]othing was committed"):
        place.refresh(3, [31], token="d3")
    place.refresh(3)
    assert filled.theirs() == place.rows() == BEFORE | {3: [31]}


def test_going_back_and_forth_changes_nothing(filled: SharedTable) -> None:
    first, second = filled.snapshots()[:2]
    filled.sql(GOES_BACK["set_current_snapshot"] % first, GOES_BACK["set_current_snapshot"] % second)
    filled.place.refresh(3, [31], token="d3")
    assert filled.place.history() == {"d1": ("SUCCEEDED", 1), "d2": ("SUCCEEDED", 2), "d3": ("SUCCEEDED", 3)}
    assert filled.theirs() == filled.place.rows() == BEFORE | {3: [31]}


REPLACED = "CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (ds) AS SELECT '2024-03-07' AS ds, 71L AS n"


def test_a_replaced_table_goes_on_with_its_numbers(filled: SharedTable) -> None:
    place = filled.place
    filled.sql(REPLACED)
    assert place.refresh(3, [31]).number == 3
    assert filled.theirs() == place.rows() == {3: [31], 7: [71]}
    place.roll_back(2, "back")
    assert filled.theirs() == place.rows() == BEFORE


GONE: dict[str, tuple[str, ...]] = {
    "dropped": ("DROP TABLE {t}",),
    "purged": ("DROP TABLE {t} PURGE",),
    "renamed": ("ALTER TABLE {t} RENAME TO {d}.other",),
    "recreated": ("DROP TABLE {t}", REPLACED.replace("OR REPLACE ", "")),
}


@pytest.mark.parametrize("how", GONE)
def test_a_commit_never_lands_in_another_table(filled: SharedTable, how: str) -> None:
    place = filled.place
    check_that_a_commit_lands_in_no_other_table(filled, *GONE[how])
    assert {state for token, (state, _) in place.history().items() if token in ("d1", "d2")} == {"UNDONE"}
    if how == "renamed":
        other = replace(filled, place=replace(place, table=replace(place.table, table="other")))
        assert other.theirs() == BEFORE, "the renamed table keeps its rows"
