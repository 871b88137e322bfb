"""What every catalog that can be written does with databases."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    TableStatistics,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import DatabaseAlreadyExistsError, DatabaseNotFoundError, NotEmptyError, UnsupportedError
from tests.contracts.catalogs.samples import PATH, TABLE, VIEW, Limits


def test_the_default_database_is_there_from_the_start(catalog: ReadableWritableCatalog) -> None:
    assert catalog.default_database == "default"
    assert catalog.list_databases() == ["default"]
    assert catalog.list_tables("default") == []


def test_opening_again_changes_nothing(sales: ReadableWritableCatalog) -> None:
    sales.open()
    assert sales.list_databases() == ["default", "sales"]


def test_a_database_comes_back_as_it_was_created(catalog: ReadableWritableCatalog) -> None:
    value = CatalogDatabase("Vertrieb & Co.", {"owner": "Zoë", "empty": ""})
    catalog.create_database("sales", value)
    assert catalog.get_database("sales") == value
    assert catalog.database_exists("sales")


def test_databases_of_any_name_are_listed_in_order(catalog: ReadableWritableCatalog, limits: Limits) -> None:
    for name in limits.names:
        catalog.create_database(name, CatalogDatabase(name))
    assert catalog.list_databases() == sorted([*limits.names, "default"])
    assert all(catalog.get_database(name).comment == name for name in limits.names)


def test_a_missing_database(catalog: ReadableWritableCatalog) -> None:
    assert not catalog.database_exists("missing")
    for call in (
        lambda: catalog.get_database("missing"),
        lambda: catalog.list_tables("missing"),
        lambda: catalog.list_dynamic_tables("missing"),
        lambda: catalog.list_views("missing"),
        lambda: catalog.alter_database("missing", CatalogDatabase()),
        lambda: catalog.list_functions("missing"),
        lambda: catalog.drop_database("missing"),
    ):
        with pytest.raises(DatabaseNotFoundError, match=f"^Database missing does not exist in catalog {catalog.name}.$"):
            call()


def test_a_taken_name_is_an_error_or_left_as_it_is(sales: ReadableWritableCatalog) -> None:
    with pytest.raises(DatabaseAlreadyExistsError, match=f"^Database sales already exists in catalog {sales.name}.$"):
        sales.create_database("sales", CatalogDatabase("new"))
    sales.create_database("sales", CatalogDatabase("new"), ignore_if_exists=True)
    assert sales.get_database("sales") == CatalogDatabase()


def test_altering(sales: ReadableWritableCatalog) -> None:
    sales.alter_database("sales", CatalogDatabase("new", {"a": "1"}))
    assert sales.get_database("sales") == CatalogDatabase("new", {"a": "1"})
    sales.alter_database("missing", CatalogDatabase(), ignore_if_not_exists=True)
    assert not sales.database_exists("missing")


def test_dropping_an_empty_one(sales: ReadableWritableCatalog) -> None:
    sales.drop_database("sales")
    assert sales.list_databases() == ["default"]
    sales.drop_database("sales", ignore_if_not_exists=True)


def test_dropping_one_with_a_table_needs_cascade(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    with pytest.raises(NotEmptyError, match=f"^Database sales in catalog {sales.name} is not empty.$"):
        sales.drop_database("sales")
    assert sales.get_table(PATH) == table
    sales.drop_database("sales", cascade=True)
    assert not sales.database_exists("sales")
    sales.create_database("sales", CatalogDatabase())
    assert sales.list_tables("sales") == []


@pytest.mark.needs("details")
def test_dropping_one_with_a_function_needs_cascade(sales: ReadableWritableCatalog) -> None:
    sales.create_function(PATH, CatalogFunction("com.example.Revenue"))
    with pytest.raises(NotEmptyError):
        sales.drop_database("sales")
    assert sales.list_functions("sales") == ["daily_revenue"]
    sales.drop_database("sales", cascade=True)
    sales.create_database("sales", CatalogDatabase())
    assert sales.list_functions("sales") == []


@pytest.mark.needs("details")
def test_cascade_leaves_nothing_that_a_table_of_the_same_name_would_get(sales: ReadableWritableCatalog, limits: Limits) -> None:
    fill(sales, limits)
    sales.drop_database("sales", cascade=True)
    sales.create_database("sales", CatalogDatabase())
    sales.create_table(PATH, limits.kept(TABLE))
    assert sales.list_partitions(PATH) == []
    assert sales.get_table_statistics(PATH) == TableStatistics()
    assert sales.get_column_statistics(PATH) == {}


def fill(catalog: ReadableWritableCatalog, limits: Limits) -> None:
    """Put a table with a partition, a view and a function into the database ``sales``."""
    catalog.create_table(PATH, limits.kept(TABLE))
    catalog.create_partition(PATH, CatalogPartition({"ds": "2024-01-01", "hh": "03"}))
    catalog.create_table(ObjectPath("sales", "one"), limits.kept(VIEW))
    catalog.create_function(ObjectPath("sales", "f"), CatalogFunction("com.example.F"))


def test_renaming_takes_everything_along(sales: ReadableWritableCatalog, limits: Limits, lacks: set[str]) -> None:
    if "renamed databases" in lacks:
        with pytest.raises(UnsupportedError, match="does not support renaming databases"):
            sales.rename_database("sales", "vertrieb")
        return
    sales.alter_database("sales", CatalogDatabase("All we sell"))
    fill(sales, limits)
    sales.rename_database("sales", "vertrieb")
    assert sales.list_databases() == ["default", "vertrieb"]
    assert sales.get_database("vertrieb").comment == "All we sell"
    assert sales.list_tables("vertrieb") == ["daily_revenue", "one"]
    assert sales.list_functions("vertrieb") == ["f"]
    moved = ObjectPath("vertrieb", PATH.name)
    assert sales.list_partitions(moved) == [{"ds": "2024-01-01", "hh": "03"}]


@pytest.mark.needs("renamed databases")
def test_renaming_to_a_taken_name_or_from_a_missing_one(sales: ReadableWritableCatalog) -> None:
    sales.create_database("other", CatalogDatabase())
    for taken in ("other", "sales"):
        with pytest.raises(DatabaseAlreadyExistsError, match=f"Database {taken} already exists"):
            sales.rename_database("sales", taken)
    with pytest.raises(DatabaseNotFoundError, match="Database missing does not exist"):
        sales.rename_database("missing", "new")
    sales.rename_database("missing", "other", ignore_if_not_exists=True)
    assert sales.list_databases() == ["default", "other", "sales"]
