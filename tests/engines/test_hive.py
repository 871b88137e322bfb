"""Hive's own engine reads our tables, and changes them before, during and after refreshes: both read the same rows afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.services.maintenance.sweeping import expire, recover
from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import Place
from tests.support.hive_engine import HiveEngine, running_hive
from tests.support.metastore import HiveMetastore

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["hive/parquet", "hive/orc"], indirect=True)]

Rows = dict[int, list[int]]


@pytest.fixture(scope="module")
def hive(hive_metastore: HiveMetastore) -> Iterator[HiveEngine]:
    with running_hive(hive_metastore) as engine:
        yield engine


STATEMENTS: dict[str, tuple[tuple[str, ...], Rows]] = {
    "insert": (("INSERT INTO {t} PARTITION (ds = '2024-03-01') VALUES (12)",), {1: [11, 12], 2: [21]}),
    "insert overwrite": (("INSERT OVERWRITE TABLE {t} PARTITION (ds = '2024-03-01') SELECT 13L",), {1: [13], 2: [21]}),
    "insert a partition": (("INSERT INTO {t} PARTITION (ds) SELECT 51L, '2024-03-05'",), {1: [11], 2: [21], 5: [51]}),
    "drop a partition": (("ALTER TABLE {t} DROP PARTITION (ds = '2024-03-01')",), {2: [21]}),
    "add a partition": (("ALTER TABLE {t} ADD PARTITION (ds = '2024-03-05') LOCATION '{others}'",), {1: [11], 2: [21], 5: [77]}),
    "rename a partition": (
        ("ALTER TABLE figures PARTITION (ds = '2024-03-01') RENAME TO PARTITION (ds = '2024-03-05')",),
        {2: [21], 5: [11]},
    ),
    "analyze": (
        ("ANALYZE TABLE {t} PARTITION (ds) COMPUTE STATISTICS",),
        {1: [11], 2: [21]},
    ),
    "analyze columns": (
        (
            "ANALYZE TABLE {t} PARTITION (ds) COMPUTE STATISTICS",
            "ANALYZE TABLE {t} PARTITION (ds) COMPUTE STATISTICS FOR COLUMNS",
        ),
        {1: [11], 2: [21]},
    ),
    "repair": (("MSCK REPAIR TABLE {t}",), {1: [11], 2: [21]}),
    "properties": (("ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'sales')",), {1: [11], 2: [21]}),
}


def name(place: Place) -> str:
    """What Hive calls the table."""
    return f"{place.table.database}.{place.table.table}"


def by_hive(place: Place, hive: HiveEngine) -> Rows:
    """The rows as Hive reads them, and what it counts of them, which it does by statistics where it trusts them."""
    found: Rows = {}
    for n, ds in hive.sql(f"SELECT n, ds FROM {name(place)}"):
        found.setdefault(int(str(ds)[-2:]), []).append(int(n or 0))
    numbers = [number for day in found.values() for number in day]
    counted = hive.sql(f"SELECT count(*), min(n), max(n) FROM {name(place)}")
    assert counted == [(str(len(numbers)), str(min(numbers)), str(max(numbers)))]
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def others(place: Place) -> str:
    """A folder of others with a file of the table's format, whose only row is 77."""
    folder = place.folder / "others"
    if not folder.exists():
        folder.mkdir()
        table = pa.table({"n": pa.array([77], pa.int64())})
        (orc.write_table if place.format == "orc" else pq.write_table)(table, folder / "data")
    return folder.as_uri()


def other(place: Place, hive: HiveEngine, *statements: str) -> Callable[[], None]:
    def run() -> None:
        hive.sql(f"USE {place.table.database}")  # it alters partitions of its current database only
        for statement in statements:
            hive.sql(statement.format(t=name(place), others=others(place)))

    return run


@pytest.mark.parametrize("when", ["before", "between stage and commit"])
@pytest.mark.parametrize("case", STATEMENTS)
def test_what_hive_changed_stays_where_the_next_refresh_replaces_nothing(
    two_days: Place, hive: HiveEngine, case: str, when: str
) -> None:
    statements, expected = STATEMENTS[case]
    happens = other(two_days, hive, *statements)
    if when == "before":
        happens()
        assert two_days.rows() == by_hive(two_days, hive) == expected
    else:
        two_days.at(Step.COMMIT, "d3", happens)
    assert two_days.refresh(3, [31], token="d3").number == 3
    assert two_days.rows() == by_hive(two_days, hive) == {**expected, 3: [31]}
    assert two_days.by_hand(1, [18, 19]).number == 4, "a refresh of a day replaces what others did to it"
    assert two_days.rows() == by_hive(two_days, hive) == dict(sorted({**expected, 1: [18, 19], 3: [31]}.items()))
    history = two_days.history()
    assert {token: history[token] for token in ("d1", "d2", "d3")} == {
        token: ("SUCCEEDED", number) for number, token in enumerate(("d1", "d2", "d3"), 1)
    }
    recover(two_days.workspace, two_days.table)
    expire(two_days.workspace, two_days.table)
    assert two_days.rows() == by_hive(two_days, hive) == dict(sorted({**expected, 1: [18, 19], 3: [31]}.items()))
    assert Path(others(two_days).removeprefix("file://"), "data").exists(), "files of others stay"


def test_a_partition_that_hive_moved_elsewhere_is_made_again(two_days: Place, hive: HiveEngine) -> None:
    """The history says so: the rows of that refresh are not those of the table any more."""
    other(two_days, hive, "ALTER TABLE figures PARTITION (ds = '2024-03-01') SET LOCATION '{others}'")()
    assert two_days.rows() == by_hive(two_days, hive) == {1: [77], 2: [21]}
    assert two_days.refresh(3, [31]).number == 3
    assert two_days.rows() == by_hive(two_days, hive) == {1: [11], 2: [21], 3: [31]}
    assert two_days.history()["d1"] == ("UNDONE", 1)
    assert Path(others(two_days).removeprefix("file://"), "data").exists()


def test_a_refresh_of_all_days_replaces_what_hive_wrote(two_days: Place, hive: HiveEngine) -> None:
    for statement in ("insert", "insert a partition", "analyze"):
        other(two_days, hive, *STATEMENTS[statement][0])()
    two_days.refresh(3, [31], full_refresh=True)
    assert two_days.rows() == by_hive(two_days, hive) == {1: [11], 2: [21], 3: [31]}


def test_a_table_that_hive_renames_keeps_its_rows_and_is_refreshed_under_its_new_name(two_days: Place, hive: HiveEngine) -> None:
    other(two_days, hive, f"ALTER TABLE {{t}} RENAME TO {two_days.table.database}.income")()
    renamed = replace(two_days, table=replace(two_days.table, table="income"))
    assert renamed.rows() == by_hive(renamed, hive) == {1: [11], 2: [21]}
    assert renamed.refresh(3, [31]).number == 3
    assert renamed.rows() == by_hive(renamed, hive) == {1: [11], 2: [21], 3: [31]}


def test_a_table_that_hive_drops_leaves_its_files_and_is_another_one_afterwards(two_days: Place, hive: HiveEngine) -> None:
    folder = Path((two_days.workspace.table(two_days.table, two_days.format).folder() or "").removeprefix("file://"))
    before = sorted(file for file in folder.rglob("*") if file.is_file())
    other(two_days, hive, "DROP TABLE {t} PURGE")()
    assert set(before) <= set(folder.rglob("*"))
    assert two_days.refresh(3, [31]).number == 1
    assert two_days.rows() == by_hive(two_days, hive)
    assert 3 in two_days.rows()


def test_a_column_that_hive_added_is_refused_by_name(two_days: Place, hive: HiveEngine) -> None:
    other(two_days, hive, "ALTER TABLE {t} ADD COLUMNS (extra STRING)")()
    with pytest.raises(SchemaEvolutionError, match="The query no longer returns column 'extra'"):
        two_days.refresh(3, [31])
    assert hive.sql(f"SELECT n, extra, ds FROM {name(two_days)} ORDER BY n") == [
        ("11", None, "2024-03-01"),
        ("21", None, "2024-03-02"),
    ]


def test_hive_does_not_truncate_our_tables(two_days: Place, hive: HiveEngine) -> None:
    """They are external ones: only this package deletes their files."""
    with pytest.raises(AssertionError, match=r"Cannot truncate non-managed table"):
        other(two_days, hive, "TRUNCATE TABLE {t}")()
    assert two_days.rows() == by_hive(two_days, hive) == {1: [11], 2: [21]}


def test_after_all_of_it_the_table_says_how_it_is(two_days: Place, hive: HiveEngine) -> None:
    for statements, _ in STATEMENTS.values():
        if not {"RENAME", "DROP", "ADD"} & set(statements[0].split()):
            other(two_days, hive, *statements)()
    two_days.refresh(3, [31])
    details = show_table(two_days.workspace, two_days.table)
    assert (details.status.version, details.status.last_refresh, details.status.last_error) == (3, "SUCCEEDED", None)
