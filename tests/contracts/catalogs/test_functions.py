"""What every catalog that can be written does with functions."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError, FunctionAlreadyExistsError, FunctionNotFoundError
from tests.contracts.catalogs.samples import Limits

pytestmark = pytest.mark.needs("details")

NET = ObjectPath("sales", "net")
JAVA = CatalogFunction("com.example.Net", "java", {"jars": "s3://jars/a.jar,s3://jars/b.jar"})
PYTHON = CatalogFunction("shop.money:net", "python", {"returns": "decimal(10,2)", "py_files": "s3://py/shop.zip"})


@pytest.mark.parametrize("function", [JAVA, PYTHON, CatalogFunction("com.example.Plain")], ids=["java", "python", "plain"])
def test_it_comes_back_as_it_was_created(sales: ReadableWritableCatalog, function: CatalogFunction) -> None:
    sales.create_function(NET, function)
    assert sales.get_function(NET) == function
    assert sales.function_exists(NET)
    assert sales.list_functions("sales") == ["net"]
    assert sales.list_functions("default") == sales.list_tables("sales") == []


def test_case_does_not_tell_functions_apart(sales: ReadableWritableCatalog) -> None:
    sales.create_function(ObjectPath("sales", "Net_Price"), JAVA)
    assert sales.list_functions("sales") == ["net_price"]
    assert sales.get_function(ObjectPath("sales", "NET_PRICE")) == JAVA
    with pytest.raises(FunctionAlreadyExistsError):
        sales.create_function(ObjectPath("sales", "net_price"), PYTHON)
    sales.alter_function(ObjectPath("sales", "nET_pRICE"), PYTHON)
    sales.rename_function(ObjectPath("sales", "NET_PRICE"), "Gross")
    assert sales.get_function(ObjectPath("sales", "gross")) == PYTHON
    sales.drop_function(ObjectPath("sales", "GROSS"))
    assert sales.list_functions("sales") == []


def test_any_name_can_be_used(sales: ReadableWritableCatalog, limits: Limits) -> None:
    names = sorted({name.lower() for name in limits.names})
    for name in names:
        sales.create_function(ObjectPath("sales", name), CatalogFunction(f"com.example.C{names.index(name)}"))
    assert sales.list_functions("sales") == names
    assert [sales.get_function(ObjectPath("sales", name)).name for name in names] == [
        f"com.example.C{number}" for number in range(len(names))
    ]


def test_a_function_and_a_table_may_share_a_name(sales: ReadableWritableCatalog) -> None:
    sales.create_function(NET, JAVA)
    assert not sales.table_exists(NET)


def test_a_missing_function(sales: ReadableWritableCatalog) -> None:
    for path in (NET, ObjectPath("missing", "net")):
        assert not sales.function_exists(path)
        for call in (
            lambda path=path: sales.get_function(path),
            lambda path=path: sales.alter_function(path, JAVA),
            lambda path=path: sales.rename_function(path, "other"),
            lambda path=path: sales.drop_function(path),
        ):
            with pytest.raises(FunctionNotFoundError, match=f"^Function {path} does not exist in catalog {sales.name}.$"):
                call()
        sales.alter_function(path, JAVA, ignore_if_not_exists=True)
        sales.rename_function(path, "other", ignore_if_not_exists=True)
        sales.drop_function(path, ignore_if_not_exists=True)
    assert sales.list_functions("sales") == []


@pytest.mark.parametrize("ignore", [False, True])
def test_a_missing_database_is_an_error_in_any_case(catalog: ReadableWritableCatalog, ignore: bool) -> None:
    with pytest.raises(DatabaseNotFoundError):
        catalog.create_function(NET, JAVA, ignore_if_exists=ignore)


def test_a_taken_name_is_an_error_or_left_as_it_is(sales: ReadableWritableCatalog) -> None:
    sales.create_function(NET, JAVA)
    with pytest.raises(FunctionAlreadyExistsError, match=f"^Function sales.net already exists in catalog {sales.name}.$"):
        sales.create_function(NET, PYTHON)
    sales.create_function(NET, PYTHON, ignore_if_exists=True)
    assert sales.get_function(NET) == JAVA


def test_altering_replaces_the_whole_value(sales: ReadableWritableCatalog) -> None:
    sales.create_function(NET, JAVA)
    sales.alter_function(NET, PYTHON)
    assert sales.get_function(NET) == PYTHON


def test_renaming_to_a_taken_name(sales: ReadableWritableCatalog) -> None:
    sales.create_function(NET, JAVA)
    sales.create_function(ObjectPath("sales", "gross"), PYTHON)
    with pytest.raises(FunctionAlreadyExistsError):
        sales.rename_function(NET, "gross")
    assert sales.get_function(NET) == JAVA
    sales.rename_function(NET, "netto")
    assert sales.list_functions("sales") == ["gross", "netto"]


def test_values_are_copied_in_and_out(sales: ReadableWritableCatalog) -> None:
    properties = {"a": "1"}
    sales.create_function(NET, CatalogFunction("C", properties=properties))
    properties["a"] = "2"
    sales.get_function(NET).properties["a"] = "3"
    assert sales.get_function(NET).properties == {"a": "1"}
