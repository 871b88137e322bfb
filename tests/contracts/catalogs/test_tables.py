"""What every catalog that can be written does with tables, dynamic tables and views."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogTable,
    JobState,
    RefreshHandler,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    DatabaseNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from tests.contracts.catalogs.samples import DYNAMIC, KINDS, PATH, TABLE, VIEW, Contract, Limits


def test_it_comes_back_as_it_was_created(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    assert sales.get_table(PATH) == table
    assert sales.table_exists(PATH)
    assert sales.list_tables("sales") == ["daily_revenue"]


@pytest.mark.needs("details")
def test_kinds_are_listed_apart_and_together(sales: ReadableWritableCatalog, limits: Limits) -> None:
    for name, table in (("b_dynamic", DYNAMIC), ("c_view", VIEW), ("a_table", TABLE), ("d_dynamic", DYNAMIC)):
        sales.create_table(ObjectPath("sales", name), limits.kept(table))
    assert sales.list_tables("sales") == ["a_table", "b_dynamic", "c_view", "d_dynamic"]
    assert sales.list_dynamic_tables("sales") == ["b_dynamic", "d_dynamic"]
    assert sales.get_dynamic_tables("sales") == dict.fromkeys(("b_dynamic", "d_dynamic"), limits.kept(DYNAMIC))
    assert sales.get_dynamic_tables("default") == {}
    assert sales.list_views("sales") == ["c_view"]
    assert sales.list_tables("default") == []


def test_any_name_can_be_used(sales: ReadableWritableCatalog, limits: Limits) -> None:
    for name in limits.names:
        sales.create_table(ObjectPath("sales", name), replace(limits.kept(TABLE), comment=name))
    assert sales.list_tables("sales") == sorted(limits.names)
    for name in limits.names:
        path, renamed = ObjectPath("sales", name), ObjectPath("sales", name[:120] + "_new")
        found = sales.get_table(path)
        assert found.comment == name
        sales.rename_table(path, renamed.name)
        assert sales.get_table(renamed) == found
        sales.drop_table(renamed)
    assert sales.list_tables("sales") == []


def test_case_never_makes_one_name_of_two(sales: ReadableWritableCatalog, limits: Limits) -> None:
    sales.create_table(PATH, limits.kept(TABLE))
    upper = ObjectPath("sales", PATH.name.upper())
    assert not sales.table_exists(upper)
    if limits.case_sensitive:
        sales.create_table(upper, limits.kept(VIEW))
    else:
        with pytest.raises(UnsupportedError, match="choose another name than 'DAILY_REVENUE'"):
            sales.create_table(upper, limits.kept(VIEW))
    assert sales.get_table(PATH) == limits.kept(TABLE)


@pytest.mark.needs("dots in names")
def test_dots_in_names_confuse_nothing(catalog: ReadableWritableCatalog, limits: Limits) -> None:
    for database, name in (("a", "b.c"), ("a.b", "c")):
        catalog.create_database(database, CatalogDatabase())
        catalog.create_table(ObjectPath(database, name), replace(limits.kept(TABLE), comment=database))
    assert catalog.list_tables("a") == ["b.c"]
    assert catalog.list_tables("a.b") == ["c"]
    catalog.drop_database("a", cascade=True)
    assert catalog.get_table(ObjectPath("a.b", "c")).comment == "a.b"


@pytest.mark.needs("details")
def test_values_are_copied_in_and_out(sales: ReadableWritableCatalog, limits: Limits) -> None:
    options = {"a": "1"}
    table = limits.kept(TABLE)
    assert isinstance(table, CatalogTable)
    sales.create_table(PATH, replace(table, options=options))
    options["a"] = "2"
    sales.get_table(PATH).options["a"] = "3"
    assert sales.get_table(PATH).options == {"a": "1"}


def test_a_missing_table(sales: ReadableWritableCatalog, limits: Limits) -> None:
    for path in (PATH, ObjectPath("missing", "daily_revenue"), ObjectPath("sales", "weekly_revenue")):
        assert not sales.table_exists(path)
        for call in (
            lambda path=path: sales.get_table(path),
            lambda path=path: sales.alter_table(path, limits.kept(TABLE)),
            lambda path=path: sales.change_table(path, lambda table: table),
            lambda path=path: sales.rename_table(path, "other"),
            lambda path=path: sales.drop_table(path),
        ):
            with pytest.raises(TableNotFoundError, match=rf"^Table \(or view\) {path} does not exist in catalog {sales.name}.$"):
                call()
        sales.alter_table(path, limits.kept(TABLE), ignore_if_not_exists=True)
        sales.rename_table(path, "other", ignore_if_not_exists=True)
        sales.drop_table(path, ignore_if_not_exists=True)
    assert sales.list_tables("sales") == []


def test_a_change_gets_what_is_there_and_gives_what_shall_be(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    assert sales.change_table(PATH, lambda now: replace(now, comment="new")) == table
    assert sales.get_table(PATH) == replace(table, comment="new")


def test_no_change_is_lost_among_several(
    contract: Contract, sales: ReadableWritableCatalog, limits: Limits, lacks: set[str]
) -> None:
    sales.create_table(PATH, replace(limits.kept(TABLE), comment=""))

    def write(letter: str) -> None:
        client = contract.client()
        for _ in range(4):
            client.change_table(PATH, lambda now: replace(now, comment=f"{now.comment or ''}{letter}"))

    with ThreadPoolExecutor(1 if "several writers" in lacks else 2) as writers:
        for writing in [writers.submit(write, letter) for letter in "ab"]:
            writing.result()
    assert sorted(sales.get_table(PATH).comment or "") == [*"aaaabbbb"]


@pytest.mark.parametrize("ignore", [False, True])
def test_a_missing_database_is_an_error_in_any_case(catalog: ReadableWritableCatalog, limits: Limits, ignore: bool) -> None:
    with pytest.raises(DatabaseNotFoundError):
        catalog.create_table(PATH, limits.kept(TABLE), ignore_if_exists=ignore)


def test_a_taken_name_is_an_error_or_left_as_it_is(sales: ReadableWritableCatalog, limits: Limits, table: AnyTable) -> None:
    taken = limits.kept(VIEW)
    sales.create_table(PATH, taken)
    message = rf"^Table \(or view\) sales.daily_revenue already exists in catalog {sales.name}.$"
    with pytest.raises(TableAlreadyExistsError, match=message):
        sales.create_table(PATH, table)
    sales.create_table(PATH, table, ignore_if_exists=True)
    assert sales.get_table(PATH) == taken


def test_altering_replaces_the_whole_value(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    changed = replace(table, comment=None, properties={})
    sales.alter_table(PATH, changed)
    assert sales.get_table(PATH) == changed


def test_the_state_of_a_job_is_kept(sales: ReadableWritableCatalog, limits: Limits) -> None:
    running = limits.kept(DYNAMIC)
    assert isinstance(running, CatalogDynamicTable)
    sales.create_table(PATH, running)
    suspended = replace(running, refresh_handler=RefreshHandler(RefreshMode.FULL, JobState.SUSPENDED))
    sales.alter_table(PATH, suspended)
    found = sales.get_table(PATH)
    assert isinstance(found, CatalogDynamicTable)
    assert found.refresh_handler.job_state is JobState.SUSPENDED
    assert found.declared_refresh_mode is RefreshMode.AUTO
    assert found.is_partitioned
    assert found.copy({"a": "b"}).options == {"a": "b"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("table", "dynamic table"),
        ("dynamic table", "view"),
        pytest.param("view", "table", marks=pytest.mark.needs("details")),
    ],
)
def test_a_table_keeps_its_kind(sales: ReadableWritableCatalog, limits: Limits, old: str, new: str) -> None:
    first, second = limits.kept(KINDS[old]), limits.kept(KINDS[new])
    sales.create_table(PATH, first)
    with pytest.raises(CatalogError, match=f"a {type(first).__name__} cannot become a {type(second).__name__}"):
        sales.alter_table(PATH, second)
    assert sales.get_table(PATH) == first


@pytest.mark.sampled
def test_renaming(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    sales.rename_table(PATH, "revenue")
    assert sales.list_tables("sales") == ["revenue"]
    assert sales.get_table(ObjectPath("sales", "revenue")) == table


@pytest.mark.parametrize("taken", ["other", "daily_revenue"], ids=["of another table", "of the table itself"])
def test_renaming_to_a_taken_name(sales: ReadableWritableCatalog, limits: Limits, taken: str) -> None:
    first, second = limits.kept(DYNAMIC), limits.kept(TABLE)
    sales.create_table(PATH, first)
    sales.create_table(ObjectPath("sales", "other"), second)
    with pytest.raises(TableAlreadyExistsError, match=taken):
        sales.rename_table(PATH, taken)
    assert sales.get_table(PATH) == first
    assert sales.get_table(ObjectPath("sales", "other")) == second


def test_dropping(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    sales.drop_table(PATH)
    assert not sales.table_exists(PATH)
    sales.create_table(PATH, table)
    assert sales.get_table(PATH) == table


def test_a_version_that_never_was(sales: ReadableWritableCatalog, table: AnyTable) -> None:
    sales.create_table(PATH, table)
    with pytest.raises(TableNotFoundError):
        sales.get_table(PATH, "4711")
