"""The catalog on SQLite: metadata is read once while the catalog names it, and nobody else's change is missed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog

NAME = ("sales", "numbers")


def opened(folder: Path) -> LeanCatalog:
    return LeanCatalog("lake", uri=f"sqlite:///{folder}/state.db", warehouse=f"file://{folder}/warehouse")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LeanCatalog]:
    catalog = opened(tmp_path)
    catalog.create_namespace("sales")
    catalog.create_table(NAME, Schema(NestedField(1, "n", LongType())))
    yield catalog
    catalog.close()


@pytest.fixture
def other(catalog: LeanCatalog, tmp_path: Path) -> Iterator[LeanCatalog]:  # noqa: ARG001 - it makes the table
    """Another process's."""
    other = opened(tmp_path)
    yield other
    other.close()


def file_of(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


def set_comment(catalog: LeanCatalog, comment: str) -> None:
    with catalog.load_table(NAME).transaction() as transaction:
        transaction.set_properties(comment=comment)


def test_a_metadata_file_is_read_once(catalog: LeanCatalog, other: LeanCatalog) -> None:
    read = catalog.load_table(NAME)
    file_of(read).write_text("whoever reads this fails")
    assert catalog.load_table(NAME).metadata == read.metadata
    with pytest.raises(ValidationError):
        other.load_table(NAME)


def test_what_it_wrote_itself_is_not_read_at_all(catalog: LeanCatalog) -> None:
    table = catalog.load_table(NAME)
    with table.transaction() as transaction:
        transaction.set_properties(comment="mine")
    file_of(table).write_text("whoever reads this fails")
    assert catalog.load_table(NAME).properties["comment"] == "mine"


def test_a_metadata_file_that_is_gone_is_told(catalog: LeanCatalog) -> None:
    file_of(catalog.load_table(NAME)).unlink()
    with pytest.raises(FileNotFoundError):
        catalog.load_table(NAME)


def test_what_it_wrote_is_what_others_read(catalog: LeanCatalog, other: LeanCatalog) -> None:
    set_comment(catalog, "mine")
    mine, theirs = catalog.load_table(NAME), other.load_table(NAME)
    assert (mine.metadata_location, mine.metadata) == (theirs.metadata_location, theirs.metadata)
    assert mine.io.properties == theirs.io.properties


def test_what_another_process_committed_is_seen(catalog: LeanCatalog, other: LeanCatalog) -> None:
    catalog.load_table(NAME)
    set_comment(other, "theirs")
    assert catalog.load_table(NAME).properties["comment"] == "theirs"


def test_a_renamed_table_has_its_new_name(catalog: LeanCatalog) -> None:
    before = catalog.load_table(NAME)
    catalog.rename_table(NAME, ("sales", "figures"))
    renamed = catalog.load_table(("sales", "figures"))
    assert (renamed.name(), renamed.metadata) == (("sales", "figures"), before.metadata)


def test_a_change_that_was_not_committed_is_not_seen(catalog: LeanCatalog) -> None:
    transaction = catalog.load_table(NAME).transaction()
    transaction.set_properties(comment="never")
    assert transaction.table_metadata.properties["comment"] == "never"
    assert "comment" not in catalog.load_table(NAME).properties
