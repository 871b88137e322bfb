"""Our Delta tables in a Hive metastore, whose entries Spark with Delta's own library renames, moves and drops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import Place
from tests.engines.test_delta_beside_refreshes import by_delta, name, other
from tests.support.spark import PlainSpark

pytestmark = [pytest.mark.large, pytest.mark.parametrize("place", ["hive/delta"], indirect=True)]


def test_a_table_that_delta_renames_keeps_its_versions_and_is_refreshed_under_its_new_name(
    two_days: Place, delta_spark: PlainSpark
) -> None:
    other(two_days, delta_spark, f"ALTER TABLE {{t}} RENAME TO {two_days.table.database}.income")()
    renamed = replace(two_days, table=replace(two_days.table, table="income"))
    assert renamed.rows() == by_delta(renamed, delta_spark) == {1: [11], 2: [21]}
    details = show_table(renamed.workspace, renamed.table)
    assert (details.status.version, len(renamed.workspace.table(renamed.table, "delta").versions())) == (2, 2)
    assert renamed.refresh(3, [31]).number == 3
    assert renamed.rows() == by_delta(renamed, delta_spark) == {1: [11], 2: [21], 3: [31]}
    assert two_days.refresh(3).number == 1, "the former name is another table"
    assert renamed.rows() == {1: [11], 2: [21], 3: [31]}


def test_a_table_that_delta_drops_leaves_its_files_and_is_another_one_afterwards(
    two_days: Place, delta_spark: PlainSpark
) -> None:
    folder = two_days.workspace.table(two_days.table, "delta").folder()
    assert folder is not None
    other(two_days, delta_spark, "DROP TABLE {t} PURGE")()
    left = Path(folder.removeprefix("file:").removeprefix("//"))
    assert len([*left.rglob("*.parquet")]) == 2
    assert two_days.refresh(3, [31]).number == 1
    assert two_days.workspace.table(two_days.table, "delta").folder() != folder
    assert by_delta(two_days, delta_spark) == two_days.rows()
    assert sorted(row["n"] for row in delta_spark.sql(f"SELECT n FROM delta.`{left}`")) == [11, 21]


def test_what_delta_alters_in_the_entry_leaves_it_a_dynamic_table(two_days: Place, delta_spark: PlainSpark) -> None:
    """Columns and properties are those of the log. The entry says which table it is and where it lies."""
    other(
        two_days,
        delta_spark,
        "ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'sales')",
        "COMMENT ON TABLE {t} IS 'figures of a day'",
        "ALTER TABLE {t} ALTER COLUMN n COMMENT 'how many'",
    )()
    assert two_days.refresh(3, [31]).number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21], 3: [31]}
    described = {row["col_name"]: row["comment"] for row in delta_spark.sql(f"DESCRIBE TABLE {name(two_days)}")}
    assert described["n"] == "how many"
    details = show_table(two_days.workspace, two_days.table)
    assert (details.status.version, details.status.last_refresh) == (3, "SUCCEEDED")


def test_a_partitioned_table_that_delta_replaced_stays_ours_and_is_made_again_in_full(
    two_days: Place, delta_spark: PlainSpark
) -> None:
    """The metastore refuses other partition keys, after the log has the other table."""
    with pytest.raises(AssertionError, match="partition keys can not be changed"):
        other(two_days, delta_spark, "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS a")()
    assert delta_spark.sql(f"SELECT * FROM {name(two_days)}") == [{"a": 1}]
    with pytest.raises(SchemaEvolutionError, match="--full-refresh"):
        two_days.refresh(3, [31])
    assert two_days.refresh(3, full_refresh=True).number == 3
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21], 3: [31]}


def test_a_table_with_a_column_that_delta_added_is_refreshed_in_full_only(two_days: Place, delta_spark: PlainSpark) -> None:
    other(two_days, delta_spark, "ALTER TABLE {t} ADD COLUMNS (extra STRING)")()
    with pytest.raises(SchemaEvolutionError, match=r"The query no longer returns column 'extra'.*--full-refresh"):
        two_days.refresh(3, [31])
    assert two_days.refresh(3, full_refresh=True).number == 3
    assert delta_spark.sql(f"SELECT * FROM {name(two_days)} WHERE n = 31") == [{"ds": "2024-03-03", "n": 31}]
    assert two_days.rows() == by_delta(two_days, delta_spark) == {1: [11], 2: [21], 3: [31]}
