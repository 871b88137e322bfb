"""Spark with Delta's own library changes our tables before, during and after refreshes: both read the same rows afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import ConflictError, VersionNotFoundError
from airflow_dynamic_tables.services.maintenance.sweeping import expire, recover
from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import Place
from tests.support.spark import PlainSpark

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["hive/delta"], indirect=True)]

Rows = dict[int, list[int]]

STATEMENTS: dict[str, tuple[tuple[str, ...], Rows]] = {
    "append": (("INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 12)",), {1: [11, 12], 2: [21]}),
    "overwrite a partition": (
        ("INSERT INTO {t} REPLACE WHERE ds = '2024-03-01' SELECT '2024-03-01' AS ds, 13L AS n",),
        {1: [13], 2: [21]},
    ),
    "update": (("UPDATE {t} SET n = n + 1 WHERE ds = '2024-03-02'",), {1: [11], 2: [22]}),
    "delete": (("DELETE FROM {t} WHERE n = 11",), {2: [21]}),
    "merge": (
        (
            (
                "MERGE INTO {t} t USING (SELECT * FROM VALUES ('2024-03-01', 11L), ('2024-03-02', 25L) AS s (ds, n)) s "
                "ON t.ds = s.ds AND t.n = s.n WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
            ),
        ),
        {2: [21, 25]},
    ),
    "optimize": (("INSERT INTO {t} (ds, n) VALUES ('2024-03-02', 23)", "OPTIMIZE {t}"), {1: [11], 2: [21, 23]}),
    "z-order": (("INSERT INTO {t} (ds, n) VALUES ('2024-03-02', 23)", "OPTIMIZE {t} ZORDER BY (n)"), {1: [11], 2: [21, 23]}),
    "vacuum": (("DELETE FROM {t} WHERE n = 11", "VACUUM {t} RETAIN 0 HOURS"), {2: [21]}),
    "checkpoints of version 2": (
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1')",
            "INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 12)",
            "INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 13)",
        ),
        {1: [11, 12, 13], 2: [21]},
    ),
    "checkpoints with parsed statistics": (
        (
            (
                "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpoint.writeStatsAsJson' = 'false', "
                "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpointInterval' = '1')"
            ),
            "INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 12)",
        ),
        {1: [11, 12], 2: [21]},
    ),
    "newer versions of the protocol": (
        ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.minReaderVersion' = '3', 'delta.minWriterVersion' = '7')",),
        {1: [11], 2: [21]},
    ),
}


def name(place: Place) -> str:
    """What the other engine calls the table."""
    return f"{place.table.database}.{place.table.table}"


def by_delta(place: Place, spark: PlainSpark, version: int | None = None) -> Rows:
    """The rows as Delta's own library reads them."""
    found: Rows = {}
    as_of = f" VERSION AS OF {version}" if version is not None else ""
    for row in spark.sql(f"SELECT * FROM {name(place)}{as_of}"):
        found.setdefault(int(row["ds"][-2:]), []).append(row["n"])
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def other(place: Place, spark: PlainSpark, *statements: str) -> Callable[[], None]:
    def run() -> None:
        for statement in statements:
            spark.sql(statement.format(t=name(place)))

    return run


@pytest.mark.parametrize("when", ["before", "between stage and commit"])
@pytest.mark.parametrize("case", STATEMENTS)
def test_what_delta_wrote_stays_where_the_next_refresh_replaces_nothing(
    two_days: Place, delta_spark: PlainSpark, case: str, when: str
) -> None:
    statements, expected = STATEMENTS[case]
    happens = other(two_days, delta_spark, *statements)
    if when == "before":
        happens()
        assert two_days.rows() == by_delta(two_days, delta_spark) == expected
    else:
        two_days.at(Step.COMMIT, "d3", happens)
    assert two_days.refresh(3, [31], token="d3").number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {**expected, 3: [31]}
    assert two_days.by_hand(2, [29]).number == 4, "a refresh of a day replaces what others wrote into it"
    assert two_days.rows() == by_delta(two_days, delta_spark) == {**expected, 2: [29], 3: [31]}
    other(two_days, delta_spark, "INSERT INTO {t} (ds, n) VALUES ('2024-03-04', 41)")()
    assert by_delta(two_days, delta_spark)[4] == [41]
    assert two_days.roll_back(2, "back").number == 5
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21]}
    history = two_days.history()
    assert {token: history[token] for token in ("d1", "d2", "d3", "back")} == {
        **{token: ("SUCCEEDED", number) for token, number in (("d1", 1), ("d2", 2), ("d3", 3))},
        "back": ("SUCCEEDED", 5),
    }
    expire(two_days.workspace, two_days.table)
    recover(two_days.workspace, two_days.table)
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21]}


@pytest.mark.parametrize("to", ["VERSION AS OF {version}", "TIMESTAMP AS OF '{time}'"])
def test_after_a_restore_the_days_are_made_again_under_new_numbers(two_days: Place, delta_spark: PlainSpark, to: str) -> None:
    """Delta's library writes a checkpoint then, from which everything that it deems expired is left out."""
    first, *_ = delta_spark.sql(f"DESCRIBE HISTORY {name(two_days)}")[::-1]
    target = to.format(version=first["version"], time=first["timestamp"])
    delta_spark.sql(f"RESTORE TABLE {name(two_days)} TO {target}")
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11]}
    details = show_table(two_days.workspace, two_days.table)
    assert details.status.version == 1
    assert two_days.refresh(3, [31], token="d3").number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21], 3: [31]}
    assert two_days.history()["d2"] == ("UNDONE", 2)


def test_a_restore_during_a_commit_lets_nothing_land_on_top_of_it(two_days: Place, delta_spark: PlainSpark) -> None:
    two_days.at(Step.COMMIT, "d3", other(two_days, delta_spark, "RESTORE TABLE {t} TO VERSION AS OF 0"))
    with pytest.raises(ConflictError, match=r"[Nn]othing was committed"):
        two_days.refresh(3, [31], token="d3")
    assert two_days.refresh(3, [31]).number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21], 3: [31]}


def test_numbers_go_on_after_checkpoints_of_delta(two_days: Place, delta_spark: PlainSpark) -> None:
    other(
        two_days,
        delta_spark,
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')",
        *("INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 12)",) * 2,
    )()
    assert two_days.refresh(3, [31]).number == 3


def test_vacuum_by_the_folder_leaves_our_files_and_vacuum_by_the_log_takes_those_of_old_versions(
    two_days: Place, delta_spark: PlainSpark
) -> None:
    """What it took is said when such a version is to come back. It never takes the files of a stage."""
    two_days.by_hand(1, [19])
    other(two_days, delta_spark, "VACUUM {t} RETAIN 0 HOURS")()
    assert two_days.roll_back(2, "back").number == 4
    assert two_days.by_hand(1, [18]).number == 5
    two_days.at(Step.COMMIT, "d3", other(two_days, delta_spark, "VACUUM {t} LITE RETAIN 0 HOURS"))
    assert two_days.refresh(3, [31], token="d3").number == 6
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [18], 2: [21], 3: [31]}
    with pytest.raises(VersionNotFoundError, match=r"cannot be restored: .* was deleted, maybe by another engine's VACUUM"):
        two_days.roll_back(2, "again")
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [18], 2: [21], 3: [31]}


def test_delta_reads_every_version_by_its_number(two_days: Place, delta_spark: PlainSpark) -> None:
    two_days.by_hand(1, [19])
    versions = two_days.workspace.table(two_days.table, "delta").versions()
    read = [by_delta(two_days, delta_spark, int(version.snapshot)) for version in versions]
    assert read == [{1: [11]}, {1: [11], 2: [21]}, {1: [19], 2: [21]}]
    said = delta_spark.sql(f"DESCRIBE HISTORY {name(two_days)}")
    assert [(row["operation"], row["engineInfo"]) for row in said] == [("WRITE", "airflow-dynamic-tables")] * 3
