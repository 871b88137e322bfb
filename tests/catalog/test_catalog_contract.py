"""What every catalog that can be written does, whatever keeps its state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogTable,
    CatalogView,
    ColumnStatistics,
    JobState,
    RefreshHandler,
    TableStatistics,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    DatabaseAlreadyExistsError,
    DatabaseNotFoundError,
    NotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)

PATH = ObjectPath("sales", "daily_revenue")
TABLE = CatalogTable(
    columns=(Column("id", "bigint", nullable=False), Column("price", "decimal(10,2)", comment="in €")),
    comment="Orders as they came in",
    partition_keys=("ds",),
    format="parquet",
    location="file:///data/orders",
    options={"mergeSchema": "true"},
    properties={"owner": "sales"},
)
DYNAMIC = CatalogDynamicTable(
    columns=(Column("ds", "string"), Column("revenue", "decimal(38,2)")),
    original_query="SELECT ds, sum(amount) AS revenue FROM orders GROUP BY ds",
    expanded_query="SELECT `o`.`ds`, sum(`o`.`amount`) AS `revenue` FROM `lake`.`sales`.`orders` AS `o` GROUP BY `o`.`ds`",
    freshness="1 day",
    declared_refresh_mode=RefreshMode.AUTO,
    refresh_handler=RefreshHandler(
        RefreshMode.FULL, JobState.RUNNING, {"schedulerType": "airflow", "endpoint": "", "workflowId": "dynamic_table__x"}
    ),
    comment="Umsatz pro Tag",
    partition_keys=("ds",),
    options={"partition.fields.ds.date-formatter": "yyyy-MM-dd"},
    properties={"owner": "sales"},
)
VIEW = CatalogView("SELECT 1 AS one", "SELECT 1 AS `one`", (Column("one", "int", nullable=False),), "One", {"a": "b"})
ALL_KINDS = pytest.mark.parametrize("table", [TABLE, DYNAMIC, VIEW], ids=["table", "dynamic table", "view"])
NAMES = ["Orders", "orders", "a.b", 'say "hi"', "it's", "`tick`", "Umsätze", "売上", "with space", "100%_x", "select", "x" * 255]


@pytest.fixture
def sales(catalog: ReadableWritableCatalog) -> ReadableWritableCatalog:
    """A catalog with an empty database ``sales``."""
    catalog.create_database("sales", CatalogDatabase())
    return catalog


class TestDatabases:
    def test_the_default_database_is_there_from_the_start(self, catalog: ReadableWritableCatalog) -> None:
        assert catalog.default_database == "default"
        assert catalog.list_databases() == ["default"]
        assert catalog.list_tables("default") == []

    def test_opening_again_changes_nothing(self, sales: ReadableWritableCatalog) -> None:
        sales.open()
        assert sales.list_databases() == ["default", "sales"]

    def test_a_database_comes_back_as_it_was_created(self, catalog: ReadableWritableCatalog) -> None:
        value = CatalogDatabase("Vertrieb & Co.", {"owner": "Zoë", "empty": ""})
        catalog.create_database("sales", value)
        assert catalog.get_database("sales") == value
        assert catalog.database_exists("sales")

    def test_databases_are_listed_in_order(self, catalog: ReadableWritableCatalog) -> None:
        for name in NAMES:
            catalog.create_database(name, CatalogDatabase(name))
        assert catalog.list_databases() == sorted([*NAMES, "default"])
        assert all(catalog.get_database(name).comment == name for name in NAMES)

    def test_a_missing_database(self, catalog: ReadableWritableCatalog) -> None:
        assert not catalog.database_exists("Default")
        for call in (
            lambda: catalog.get_database("Default"),
            lambda: catalog.list_tables("Default"),
            lambda: catalog.list_dynamic_tables("Default"),
            lambda: catalog.list_views("Default"),
            lambda: catalog.alter_database("Default", CatalogDatabase()),
            lambda: catalog.drop_database("Default"),
        ):
            with pytest.raises(DatabaseNotFoundError, match=f"^Database Default does not exist in catalog {catalog.name}.$"):
                call()

    def test_a_taken_name_is_an_error_or_left_as_it_is(self, sales: ReadableWritableCatalog) -> None:
        with pytest.raises(DatabaseAlreadyExistsError, match=f"^Database sales already exists in catalog {sales.name}.$"):
            sales.create_database("sales", CatalogDatabase("new"))
        sales.create_database("sales", CatalogDatabase("new"), ignore_if_exists=True)
        assert sales.get_database("sales") == CatalogDatabase()

    def test_altering(self, sales: ReadableWritableCatalog) -> None:
        sales.alter_database("sales", CatalogDatabase("new", {"a": "1"}))
        assert sales.get_database("sales") == CatalogDatabase("new", {"a": "1"})
        sales.alter_database("missing", CatalogDatabase(), ignore_if_not_exists=True)
        assert not sales.database_exists("missing")

    def test_dropping_an_empty_one(self, sales: ReadableWritableCatalog) -> None:
        sales.drop_database("sales")
        assert sales.list_databases() == ["default"]
        sales.drop_database("sales", ignore_if_not_exists=True)

    @ALL_KINDS
    def test_dropping_one_with_content_needs_cascade(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        with pytest.raises(NotEmptyError, match=f"^Database sales in catalog {sales.name} is not empty.$"):
            sales.drop_database("sales")
        assert sales.get_table(PATH) == table
        sales.drop_database("sales", cascade=True)
        assert not sales.database_exists("sales")
        sales.create_database("sales", CatalogDatabase())
        assert sales.list_tables("sales") == []

    def test_renaming_databases_is_refused_by_name(self, sales: ReadableWritableCatalog) -> None:
        with pytest.raises(UnsupportedError, match="does not support renaming databases"):
            sales.rename_database("sales", "other")


class TestTables:
    @ALL_KINDS
    def test_it_comes_back_as_it_was_created(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        assert sales.get_table(PATH) == table
        assert sales.table_exists(PATH)
        assert sales.list_tables("sales") == ["daily_revenue"]

    def test_kinds_are_listed_apart_and_together(self, sales: ReadableWritableCatalog) -> None:
        for name, table in (("b_dynamic", DYNAMIC), ("c_view", VIEW), ("a_table", TABLE), ("B_dynamic", DYNAMIC)):
            sales.create_table(ObjectPath("sales", name), table)
        assert sales.list_tables("sales") == ["B_dynamic", "a_table", "b_dynamic", "c_view"]
        assert sales.list_dynamic_tables("sales") == ["B_dynamic", "b_dynamic"]
        assert sales.list_views("sales") == ["c_view"]
        assert sales.list_tables("default") == []

    def test_any_name_can_be_used_and_case_tells_names_apart(self, sales: ReadableWritableCatalog) -> None:
        for name in NAMES:
            sales.create_table(ObjectPath("sales", name), replace(TABLE, comment=name))
        assert sales.list_tables("sales") == sorted(NAMES)
        for name in NAMES:
            path, renamed = ObjectPath("sales", name), ObjectPath("sales", name[:250] + "_new")
            found = sales.get_table(path)
            assert found.comment == name
            sales.rename_table(path, renamed.name)
            assert sales.get_table(renamed) == found
            sales.drop_table(renamed)
        assert sales.list_tables("sales") == []

    def test_dots_in_names_confuse_nothing(self, catalog: ReadableWritableCatalog) -> None:
        for database, name in (("a", "b.c"), ("a.b", "c")):
            catalog.create_database(database, CatalogDatabase())
            catalog.create_table(ObjectPath(database, name), replace(TABLE, comment=database))
        assert catalog.list_tables("a") == ["b.c"]
        assert catalog.list_tables("a.b") == ["c"]
        catalog.drop_database("a", cascade=True)
        assert catalog.get_table(ObjectPath("a.b", "c")).comment == "a.b"

    def test_values_are_copied_in_and_out(self, sales: ReadableWritableCatalog) -> None:
        options = {"a": "1"}
        sales.create_table(PATH, replace(TABLE, options=options))
        options["a"] = "2"
        sales.get_table(PATH).options["a"] = "3"  # type: ignore[index]
        assert sales.get_table(PATH).options == {"a": "1"}

    def test_a_missing_table(self, sales: ReadableWritableCatalog) -> None:
        for path in (PATH, ObjectPath("missing", "daily_revenue"), ObjectPath("sales", "DAILY_REVENUE")):
            assert not sales.table_exists(path)
            for call in (
                lambda path=path: sales.get_table(path),
                lambda path=path: sales.alter_table(path, TABLE),
                lambda path=path: sales.rename_table(path, "other"),
                lambda path=path: sales.drop_table(path),
            ):
                with pytest.raises(
                    TableNotFoundError, match=rf"^Table \(or view\) {path} does not exist in catalog {sales.name}.$"
                ):
                    call()
            sales.alter_table(path, TABLE, ignore_if_not_exists=True)
            sales.rename_table(path, "other", ignore_if_not_exists=True)
            sales.drop_table(path, ignore_if_not_exists=True)
        assert sales.list_tables("sales") == []

    @pytest.mark.parametrize("ignore", [False, True])
    def test_a_missing_database_is_an_error_in_any_case(self, catalog: ReadableWritableCatalog, ignore: bool) -> None:
        with pytest.raises(DatabaseNotFoundError):
            catalog.create_table(PATH, TABLE, ignore_if_exists=ignore)

    @ALL_KINDS
    def test_a_taken_name_is_an_error_or_left_as_it_is(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, VIEW)
        message = rf"^Table \(or view\) sales.daily_revenue already exists in catalog {sales.name}.$"
        with pytest.raises(TableAlreadyExistsError, match=message):
            sales.create_table(PATH, table)
        sales.create_table(PATH, table, ignore_if_exists=True)
        assert sales.get_table(PATH) == VIEW

    @ALL_KINDS
    def test_altering_replaces_the_whole_value(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        changed = replace(table, comment=None, properties={})
        sales.alter_table(PATH, changed)
        assert sales.get_table(PATH) == changed

    def test_the_state_of_a_job_is_kept(self, sales: ReadableWritableCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        suspended = replace(DYNAMIC, refresh_handler=RefreshHandler(RefreshMode.FULL, JobState.SUSPENDED))
        sales.alter_table(PATH, suspended)
        found = sales.get_table(PATH)
        assert isinstance(found, CatalogDynamicTable)
        assert found.refresh_handler.job_state is JobState.SUSPENDED
        assert found.declared_refresh_mode is RefreshMode.AUTO
        assert found.is_partitioned
        assert found.copy({"a": "b"}).options == {"a": "b"}

    @pytest.mark.parametrize(("old", "new"), [(TABLE, DYNAMIC), (DYNAMIC, VIEW), (VIEW, TABLE)])
    def test_a_table_keeps_its_kind(self, sales: ReadableWritableCatalog, old: AnyTable, new: AnyTable) -> None:
        sales.create_table(PATH, old)
        with pytest.raises(CatalogError, match=f"a {type(old).__name__} cannot become a {type(new).__name__}"):
            sales.alter_table(PATH, new)
        assert sales.get_table(PATH) == old

    @ALL_KINDS
    def test_renaming(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        sales.rename_table(PATH, "revenue")
        assert sales.list_tables("sales") == ["revenue"]
        assert sales.get_table(ObjectPath("sales", "revenue")) == table

    @pytest.mark.parametrize("taken", ["other", "daily_revenue"], ids=["of another table", "of the table itself"])
    def test_renaming_to_a_taken_name(self, sales: ReadableWritableCatalog, taken: str) -> None:
        sales.create_table(PATH, DYNAMIC)
        sales.create_table(ObjectPath("sales", "other"), TABLE)
        with pytest.raises(TableAlreadyExistsError, match=taken):
            sales.rename_table(PATH, taken)
        assert sales.get_table(PATH) == DYNAMIC
        assert sales.get_table(ObjectPath("sales", "other")) == TABLE

    @ALL_KINDS
    def test_dropping(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        sales.drop_table(PATH)
        assert not sales.table_exists(PATH)
        sales.create_table(PATH, table)
        assert sales.get_table(PATH) == table

    @ALL_KINDS
    def test_a_version_that_never_was(self, sales: ReadableWritableCatalog, table: AnyTable) -> None:
        sales.create_table(PATH, table)
        with pytest.raises(TableNotFoundError):
            sales.get_table(PATH, "4711")


def test_what_cannot_be_written_says_so(sales: ReadableWritableCatalog) -> None:
    partition, function = CatalogPartition({"ds": "2024-01-01"}), CatalogFunction("f")
    for call in (
        lambda: sales.create_partition(PATH, partition),
        lambda: sales.alter_partition(PATH, partition),
        lambda: sales.drop_partition(PATH, partition.spec),
        lambda: sales.create_function(PATH, function),
        lambda: sales.alter_function(PATH, function),
        lambda: sales.rename_function(PATH, "g"),
        lambda: sales.drop_function(PATH),
        lambda: sales.alter_table_statistics(PATH, TableStatistics()),
        lambda: sales.alter_column_statistics(PATH, {"a": ColumnStatistics()}),
    ):
        with pytest.raises(UnsupportedError, match=f"^Catalog {sales.name} .* does not support"):
            call()
