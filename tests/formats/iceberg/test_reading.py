"""The first rows of a table: a null is no empty list, and what others did to the table is heeded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import IntegerType, StringType

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.iceberg.reading import first_rows
from airflow_dynamic_tables.formats.iceberg.snapshots import content
from tests.support.iceberg_tables import forget_history

STRUCT = pa.struct([("x", pa.int32())])
SCHEMA = pa.schema([("items", pa.list_(STRUCT)), ("pairs", pa.map_(pa.string(), STRUCT)), ("n", pa.int32())])
LARGE = pa.schema([("items", pa.large_list(STRUCT)), *list(SCHEMA)[1:]])
ROWS = [
    {"items": None, "pairs": None, "n": 1},
    {"items": [{"x": 1}], "pairs": [("k", {"x": 1})], "n": 2},
    {"items": [], "pairs": [], "n": 3},
]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """A table of one file that Spark might have written."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("sales")
    made = catalog.create_table("sales.t", schema=SCHEMA)
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "a.parquet")
    made.add_files([f"file://{tmp_path}/a.parquet"])
    yield made
    catalog.close()


def test_a_null_list_is_no_empty_one(table: Table) -> None:
    assert first_rows(table, None, 9) == ROWS
    assert first_rows(table, None, 2) == ROWS[:2]


def test_an_appended_column_is_null(table: Table) -> None:
    before = table.current_snapshot()
    assert before is not None
    with table.update_schema() as update:
        update.add_column("more", StringType())
    assert first_rows(table, None, 1) == [ROWS[0] | {"more": None}]
    assert first_rows(table, before.snapshot_id, 1) == ROWS[:1]


def test_a_renamed_column_has_its_values(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("n", "m")
    assert [row["m"] for row in first_rows(table, None, 9)] == [1, 2, 3]


def test_rows_are_read_by_name_also_without_a_name_mapping(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    assert [row["n"] for row in first_rows(table, None, 9)] == [1, 2, 3]


def forgotten(table: Table) -> Table:
    """The table once its metadata knows nothing of earlier columns."""
    forget_history(table.refresh())
    return StaticTable.from_metadata(table.metadata_location)


@pytest.mark.parametrize("numbered", [None, SCHEMA, LARGE], ids=["unnumbered", "numbered", "large"])
@pytest.mark.parametrize(
    ("name", "new", "why"),
    [("n", "m", "had column n renamed"), ("items.element.x", "y", "had column items.element.x renamed")],
)
def test_a_column_that_was_renamed_and_forgotten_is_not_read_as_nulls(
    table: Table, name: str, new: str, why: str, numbered: pa.Schema | None
) -> None:
    if numbered is not None:  # as every engine but Spark without Iceberg's runtime writes files
        table.overwrite(pa.Table.from_pylist(ROWS, numbered))
    with table.update_schema() as update:
        update.rename_column(name, new)
    table.append(pa.Table.from_pylist([], table.schema().as_arrow()))
    with pytest.raises(UnsupportedError, match=f"{why}.*add the Iceberg Spark runtime jar"):
        content(forgotten(table), ObjectPath("sales", "t"))


@pytest.mark.parametrize("numbered", [False, True])
def test_columns_that_were_only_added_are_read_whatever_is_forgotten(table: Table, numbered: bool) -> None:
    if numbered:
        table.overwrite(pa.Table.from_pylist(ROWS, SCHEMA))
    with table.update_schema() as update:
        update.add_column("more", StringType())
    table.append(pa.Table.from_pylist([{"more": "x"}], table.schema().as_arrow()))
    assert len(content(forgotten(table), ObjectPath("sales", "t")).files) == 2


def test_a_column_that_was_dropped_made_anew_and_forgotten_is_not_read(table: Table) -> None:
    table.overwrite(pa.Table.from_pylist(ROWS, SCHEMA))
    with table.update_schema() as update:
        update.delete_column("n")
    with table.update_schema() as update:
        update.add_column("n", IntegerType())
    table.append(pa.Table.from_pylist([], table.schema().as_arrow()))
    with pytest.raises(UnsupportedError, match="had column n dropped and recreated"):
        content(forgotten(table), ObjectPath("sales", "t"))


def test_deleted_rows_are_gone(table: Table) -> None:
    table.delete("n = 2")
    assert [row["n"] for row in first_rows(table, None, 9)] == [1, 3]
