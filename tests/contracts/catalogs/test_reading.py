"""What every catalog does, also one that can only be read."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.catalog.values import CatalogTable
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import (
    DatabaseNotFoundError,
    FunctionNotFoundError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from tests.contracts.catalogs.samples import Filled


def test_databases_are_listed_and_read(filled: Filled) -> None:
    names = filled.catalog.list_databases()
    assert filled.database in names
    assert names == sorted(names)
    assert filled.catalog.database_exists(filled.database)
    assert filled.catalog.get_database(filled.database).properties == {}


def test_tables_are_listed_and_read(filled: Filled) -> None:
    assert filled.catalog.list_tables(filled.database) == list(filled.tables)
    for name in filled.tables:
        assert filled.catalog.table_exists(ObjectPath(filled.database, name))
    found = filled.catalog.get_table(ObjectPath(filled.database, filled.tables[0]))
    assert isinstance(found, CatalogTable)
    assert tuple(column.name for column in found.columns) == filled.columns
    assert all(column.type for column in found.columns)


def test_there_are_no_dynamic_tables_views_or_functions(filled: Filled) -> None:
    assert filled.catalog.list_dynamic_tables(filled.database) == []
    assert filled.catalog.get_dynamic_tables(filled.database) == {}
    assert filled.catalog.list_views(filled.database) == []
    assert filled.catalog.list_functions(filled.database) == []
    path = ObjectPath(filled.database, "f")
    assert not filled.catalog.function_exists(path)
    with pytest.raises(FunctionNotFoundError, match=f"Function {path} does not exist"):
        filled.catalog.get_function(path)


def test_statistics_of_columns_are_those_of_known_columns(filled: Filled) -> None:
    path = ObjectPath(filled.database, filled.tables[0])
    filled.catalog.get_table_statistics(path)
    assert set(filled.catalog.get_column_statistics(path)) <= set(filled.columns)


def test_what_is_missing(filled: Filled) -> None:
    catalog, path = filled.catalog, ObjectPath(filled.database, "missing")
    assert not catalog.database_exists("missing")
    for call in (
        lambda: catalog.get_database("missing"),
        lambda: catalog.list_tables("missing"),
        lambda: catalog.list_dynamic_tables("missing"),
        lambda: catalog.get_dynamic_tables("missing"),
        lambda: catalog.list_views("missing"),
        lambda: catalog.list_functions("missing"),
    ):
        with pytest.raises(DatabaseNotFoundError, match=f"^Database missing does not exist in catalog {catalog.name}.$"):
            call()
    for missing in (path, ObjectPath("missing", "missing")):
        assert not catalog.table_exists(missing)
        assert not catalog.partition_exists(missing, {"ds": "1"})
        for look in (catalog.get_table, catalog.get_partitions, catalog.get_table_statistics, catalog.get_column_statistics):
            with pytest.raises(
                TableNotFoundError, match=rf"^Table \(or view\) {missing} does not exist in catalog {catalog.name}.$"
            ):
                look(missing)
        with pytest.raises(PartitionNotFoundError):
            catalog.get_partition(missing, {"ds": "1"})


def test_it_can_be_closed_and_opened_again(filled: Filled) -> None:
    filled.catalog.close()
    filled.catalog.close()
    filled.catalog.open()
    filled.catalog.open()
    assert filled.catalog.list_tables(filled.database) == list(filled.tables)
