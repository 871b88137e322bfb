"""The ``sql`` catalog and the Iceberg tables beneath it."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType, TimestamptzType, TimeType
from sqlalchemy import Engine, event, text

from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.catalog.values import (
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    CatalogView,
    ColumnStatistics,
    RefreshHandler,
    TableStatistics,
)
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CatalogUnavailableError,
    ConfigurationError,
    InvalidPartitionError,
    NotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from tests.support.postgres import PostgresServer

PATH = ObjectPath("sales", "revenue")
SCHEMA = Schema(NestedField(1, "ds", StringType(), required=False), NestedField(2, "n", LongType(), doc="how many"))
COLUMNS = (Column("ds", "string"), Column("n", "bigint", nullable=True, comment="how many"))
DYNAMIC = CatalogDynamicTable(
    (), "SELECT 1", "SELECT 1", "1 day", RefreshMode.AUTO, RefreshHandler(RefreshMode.FULL), partition_keys=("ds",)
)
ROWS = pa.table({"ds": ["2024-01-01", "2024-01-02"], "n": [1, 2]})
Client = Callable[[], SqlCatalog]


def make_physical(catalog: SqlCatalog, path: ObjectPath = PATH, schema: Schema = SCHEMA) -> str:
    """Make the Iceberg table of a path with one snapshot, as a refresh does.

    :return: the snapshot's id.
    """
    catalog.iceberg.create_namespace_if_not_exists((path.database,))
    table = catalog.iceberg.create_table((path.database, path.name), schema)
    if schema is SCHEMA:
        table.append(ROWS)
    current = table.current_snapshot()
    return str(current.snapshot_id) if current else ""


@pytest.fixture
def sales(sql_catalog: SqlCatalog) -> SqlCatalog:
    """A catalog with an empty database ``sales``."""
    sql_catalog.create_database("sales", CatalogDatabase())
    return sql_catalog


class TestDynamicTables:
    def test_before_the_first_refresh_it_is_what_was_declared(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        assert sales.get_table(PATH) == DYNAMIC

    def test_after_a_refresh_it_has_columns_location_and_snapshot(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        snapshot = make_physical(sales)
        table = sales.iceberg.load_table(("sales", "revenue"))
        as_made = replace(DYNAMIC, columns=COLUMNS, location=table.location(), snapshot=snapshot)
        assert sales.get_table(PATH) == replace(as_made, partition_keys=()), "those of its rows, whatever the definition says"
        with table.update_spec() as spec:
            spec.add_identity("ds")
        assert sales.get_table(PATH) == as_made
        assert sales.list_tables("sales") == ["revenue"]
        assert sales.list_dynamic_tables("sales") == ["revenue"]

    def test_an_older_version_has_the_columns_it_had(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        first = make_physical(sales)
        table = sales.iceberg.load_table(("sales", "revenue"))
        with table.update_schema() as change:
            change.add_column("extra", StringType())
        table.append(ROWS.append_column("extra", pa.array(["a", "b"])))
        then, now = sales.get_table(PATH, first), sales.get_table(PATH)
        assert isinstance(then, CatalogDynamicTable)
        assert isinstance(now, CatalogDynamicTable)
        assert (then.columns, then.snapshot) == (COLUMNS, first)
        assert now.columns == (*COLUMNS, Column("extra", "string"))
        assert now.snapshot not in (None, first)

    @pytest.mark.sampled
    @pytest.mark.parametrize("version", ["1", "", "latest", "--5", "٣"])
    def test_a_version_that_never_was(self, sales: SqlCatalog, version: str) -> None:
        sales.create_table(PATH, DYNAMIC)
        make_physical(sales)
        with pytest.raises(TableNotFoundError, match=f"Table sales.revenue in catalog {sales.name} has no version {version}"):
            sales.get_table(PATH, version)

    def test_altering_leaves_the_physical_table_alone(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        snapshot = make_physical(sales)
        sales.alter_table(PATH, replace(DYNAMIC, freshness="1 hour"))
        found = sales.get_table(PATH)
        assert isinstance(found, CatalogDynamicTable)
        assert (found.freshness, found.columns, found.snapshot) == ("1 hour", COLUMNS, snapshot)

    def test_renaming_takes_the_physical_table_along(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        snapshot = make_physical(sales)
        sales.rename_table(PATH, "Umsatz.neu")
        renamed = sales.get_table(ObjectPath("sales", "Umsatz.neu"))
        assert isinstance(renamed, CatalogDynamicTable)
        assert renamed.snapshot == snapshot
        assert sales.list_tables("sales") == ["Umsatz.neu"]
        assert sales.iceberg.load_table(("sales", "Umsatz.neu")).scan().to_arrow().num_rows == 2
        with pytest.raises(NoSuchTableError):
            sales.iceberg.load_table(("sales", "revenue"))

    def test_dropping_takes_both_entries_and_leaves_the_files(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        make_physical(sales)
        location = Path(sales.iceberg.load_table(("sales", "revenue")).location().removeprefix("file://"))
        sales.drop_table(PATH)
        assert not sales.table_exists(PATH)
        assert not sales.iceberg.table_exists(("sales", "revenue"))
        assert list(location.glob("data/*.parquet"))
        sales.create_table(PATH, DYNAMIC)
        assert sales.get_table(PATH) == DYNAMIC

    @pytest.mark.parametrize("name", ["Revenue.a", 'say "hi", it\'s', "Umsätze 売上 100%"])
    def test_any_name_finds_its_physical_table(self, sales: SqlCatalog, name: str) -> None:
        database = f"db {name}"
        sales.create_database(database, CatalogDatabase())
        path = ObjectPath(database, name)
        sales.create_table(path, DYNAMIC)
        snapshot = make_physical(sales, path)
        found = sales.get_table(path)
        assert isinstance(found, CatalogDynamicTable)
        assert found.snapshot == snapshot
        assert sales.iceberg.load_table((database, name)).scan().to_arrow().num_rows == 2
        sales.drop_database(database, cascade=True)
        assert not sales.table_exists(path)

    def test_metadata_that_are_gone_are_one_sentence_and_can_be_dropped(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        make_physical(sales)
        metadata = sales.iceberg.load_table(("sales", "revenue")).metadata_location
        Path(metadata.removeprefix("file://")).unlink()
        with pytest.raises(CatalogError, match=f"The Iceberg metadata of sales.revenue in catalog {sales.name} cannot be read"):
            sales.get_table(PATH)
        assert sales.table_exists(PATH)
        sales.drop_table(PATH)
        assert not sales.table_exists(PATH)


class TestTablesOfOthers:
    """Tables that somebody made through PyIceberg in the same catalog."""

    def test_they_are_listed_and_read(self, sales: SqlCatalog) -> None:
        make_physical(sales)
        found = sales.get_table(PATH)
        location = sales.iceberg.load_table(("sales", "revenue")).location()
        assert isinstance(found, CatalogTable)
        assert (found.columns, found.format, found.location) == (COLUMNS, "iceberg", location)
        assert sales.table_exists(PATH)
        assert sales.list_tables("sales") == ["revenue"]
        assert sales.list_dynamic_tables("sales") == sales.list_views("sales") == []

    def test_partition_keys_are_columns_or_computed_of_them(self, sales: SqlCatalog) -> None:
        schema = Schema(*SCHEMA.fields, NestedField(3, "ts", TimestamptzType()))
        spec = PartitionSpec(
            PartitionField(3, 1000, DayTransform(), "ts_day"), PartitionField(1, 1001, IdentityTransform(), "day_text")
        )
        sales.iceberg.create_namespace("sales")
        sales.iceberg.create_table(("sales", "revenue"), schema, partition_spec=spec, properties={"comment": "From Java"})
        found = sales.get_table(PATH)
        assert isinstance(found, CatalogTable)
        assert found.partition_keys == ("day(ts)", "ds")
        assert found.comment == "From Java"

    def test_their_names_are_taken(self, sales: SqlCatalog) -> None:
        make_physical(sales)
        sales.create_table(ObjectPath("sales", "other"), DYNAMIC)
        with pytest.raises(TableAlreadyExistsError):
            sales.create_table(PATH, DYNAMIC)
        with pytest.raises(TableAlreadyExistsError):
            sales.rename_table(ObjectPath("sales", "other"), "revenue")
        sales.create_table(PATH, DYNAMIC, ignore_if_exists=True)
        assert isinstance(sales.get_table(PATH), CatalogTable)

    def test_they_can_be_renamed_and_dropped_but_not_altered(self, sales: SqlCatalog) -> None:
        make_physical(sales)
        with pytest.raises(UnsupportedError, match=r"sales\.revenue was made through Iceberg"):
            sales.alter_table(PATH, CatalogTable(comment="new"))
        sales.rename_table(PATH, "renamed")
        assert sales.list_tables("sales") == ["renamed"]
        sales.drop_table(ObjectPath("sales", "renamed"))
        assert sales.list_tables("sales") == []

    def test_they_count_when_a_database_is_dropped(self, sales: SqlCatalog) -> None:
        make_physical(sales)
        with pytest.raises(NotEmptyError):
            sales.drop_database("sales")
        assert sales.list_tables("sales") == ["revenue"]
        sales.drop_database("sales", cascade=True)
        assert not sales.iceberg.table_exists(("sales", "revenue"))

    def test_types_that_spark_does_not_have_are_named(self, sales: SqlCatalog) -> None:
        make_physical(sales, schema=Schema(NestedField(1, "at", TimeType(), required=False)))
        with pytest.raises(
            UnsupportedError, match=f"sales.revenue in catalog {sales.name}: Iceberg type time has no counterpart"
        ):
            sales.get_table(PATH)

    def test_a_view_or_a_table_of_another_format_hides_one_of_its_name(self, sales: SqlCatalog) -> None:
        view, table = CatalogView("SELECT 1", "SELECT 1"), CatalogTable(format="csv", location="file:///data")
        for name, value in (("view", view), ("table", table)):
            sales.create_table(ObjectPath("sales", name), value)
            make_physical(sales, ObjectPath("sales", name))
            assert sales.get_table(ObjectPath("sales", name)) == value

    def test_a_view_of_another_engine_is_refused_by_name(self, sales: SqlCatalog, database_url: str) -> None:
        view = ObjectPath("sales", "newest")
        for path in (PATH, view):
            make_physical(sales, path)
        with closing(Database(database_url)) as database, database.transaction() as connection:
            connection.execute(text("UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE table_name = 'newest'"))
        assert sales.list_tables("sales") == ["revenue"]
        for refused in (
            lambda: sales.get_table(view),
            lambda: sales.drop_table(view),
            lambda: sales.rename_table(view, "latest"),
        ):
            with pytest.raises(UnsupportedError, match=rf"sales.newest in catalog {sales.name} is a view of another engine"):
                refused()
        with pytest.raises(TableAlreadyExistsError):
            sales.create_table(view, DYNAMIC)

    def test_tables_are_listed_in_a_database_without_types(self, sales: SqlCatalog, database_url: str) -> None:
        """PyIceberg before 0.12 made such ones."""
        make_physical(sales)
        with closing(Database(database_url)) as database, database.transaction() as connection:
            connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
        assert sales.list_tables("sales") == ["revenue"]

    def test_another_program_reads_and_writes_the_same_tables(self, sales: SqlCatalog, database_url: str, tmp_path: Path) -> None:
        make_physical(sales)
        url = Database(database_url).url
        other = IcebergCatalog(sales.name, uri=url, warehouse=f"file://{tmp_path}/warehouse")
        other.load_table(("sales", "revenue")).append(ROWS)
        other.close()
        assert sales.iceberg.load_table(("sales", "revenue")).scan().to_arrow().num_rows == 4


class TestSeveralAtOnce:
    def test_two_clients_see_one_another(self, client: Client) -> None:
        one, two = client(), client()
        one.create_database("sales", CatalogDatabase("by one"))
        two.create_table(PATH, DYNAMIC)
        snapshot = make_physical(one)
        found = two.get_table(PATH)
        assert isinstance(found, CatalogDynamicTable)
        assert found.snapshot == snapshot
        two.drop_table(PATH)
        assert one.list_tables("sales") == []

    def test_catalogs_in_one_database_do_not_see_one_another(self, sales: SqlCatalog, database_url: str, tmp_path: Path) -> None:
        other = SqlCatalog(f"{sales.name}_other", Database(database_url), f"file://{tmp_path}/other", "sales")
        other.open()
        sales.create_table(PATH, DYNAMIC)
        make_physical(sales)
        assert other.list_databases() == ["sales"]
        assert other.list_tables("sales") == []
        assert not other.table_exists(PATH)
        other.create_table(PATH, replace(DYNAMIC, comment="other"))
        other.drop_database("sales", cascade=True)
        assert sales.list_tables("sales") == ["revenue"]
        other.close()

    def test_somebody_makes_each_of_icebergs_own_tables_a_moment_earlier(self, empty_state: Path, tmp_path: Path) -> None:
        state = shutil.copy(empty_state, tmp_path)

        def make_it_first(_: object, __: object, statement: str, *___: object) -> None:
            if statement.lstrip().startswith("CREATE TABLE iceberg"):
                with suppress(sqlite3.OperationalError), closing(sqlite3.connect(state, timeout=0)) as other:
                    other.execute(statement)

        event.listen(Engine, "before_cursor_execute", make_it_first)
        try:
            with closing(SqlCatalog("lake", Database(f"sqlite:///{state}"), f"file://{tmp_path}/warehouse")) as catalog:
                catalog.open()
                assert catalog.list_databases() == ["default"]
        finally:
            event.remove(Engine, "before_cursor_execute", make_it_first)

    def test_eight_processes_open_create_and_refresh_at_once(self, client: Client, database_url: str, tmp_path: Path) -> None:
        name = client().name
        context = multiprocessing.get_context("fork")
        start, results = context.Barrier(8), context.SimpleQueue()

        def run(me: int) -> None:
            start.wait()
            try:
                catalog = SqlCatalog(name, Database(database_url), f"file://{tmp_path}/warehouse")
                catalog.open()
                catalog.create_database("sales", CatalogDatabase(), ignore_if_exists=True)
                catalog.create_table(PATH, replace(DYNAMIC, comment=str(me)), ignore_if_exists=True)
                catalog.create_table(ObjectPath("sales", f"own{me}"), DYNAMIC)
                results.put(catalog.get_table(PATH).comment)
            except Exception as error:
                results.put(repr(error))

        processes = [context.Process(target=run, args=(me,)) for me in range(8)]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
        assert len(set(found)) == 1
        assert found[0] in set("01234567")
        assert client().list_tables("sales") == [*(f"own{me}" for me in range(8)), "revenue"]

    def test_a_catalog_that_was_opened_before_a_fork_is_used_after_it(self, sales: SqlCatalog) -> None:
        make_physical(sales)
        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        processes = [
            context.Process(target=lambda: results.put([sales.get_table(PATH).columns for _ in range(5)])) for _ in range(4)
        ]
        for process in processes:
            process.start()
        assert [results.get() for _ in processes] == [[COLUMNS] * 5] * 4
        for process in processes:
            process.join()
        assert sales.list_tables("sales") == ["revenue"]


class TestPartitionsAndStatistics:
    """Those of an Iceberg table are what its metadata says."""

    @pytest.fixture
    def revenue(self, sales: SqlCatalog) -> SqlCatalog:
        """A dynamic table by day with two files on one day."""
        sales.create_table(PATH, DYNAMIC)
        make_partitioned(sales, PATH)
        return sales

    def test_partitions_have_real_rows_bytes_and_files(self, revenue: SqlCatalog) -> None:
        partitions = revenue.get_partitions(PATH)
        assert [partition.spec for partition in partitions] == [{"ds": "2024-01-01"}, {"ds": "2024-01-02"}]
        assert [(found.statistics.rows, found.statistics.files) for found in partitions] == [(3, 2), (1, 1)]
        sizes = [file.stat().st_size for file in files_of(revenue, PATH)]
        assert sum(found.statistics.bytes or 0 for found in partitions) == sum(sizes)
        assert revenue.get_partition(PATH, {"ds": "2024-01-02"}) == partitions[1]
        assert revenue.get_table_statistics(PATH) == TableStatistics(4, sum(sizes), 3)
        assert revenue.get_table_statistics(PATH, {"ds": "2024-01-01"}).rows == 3

    def test_columns_have_nulls_and_bounds(self, revenue: SqlCatalog) -> None:
        assert revenue.get_column_statistics(PATH) == {
            "ds": ColumnStatistics(nulls=0, minimum="2024-01-01", maximum="2024-01-02"),
            "n": ColumnStatistics(nulls=1, minimum="-5", maximum="40"),
        }

    def test_they_follow_every_commit(self, revenue: SqlCatalog) -> None:
        physical = revenue.iceberg.load_table(("sales", "revenue"))
        physical.delete("ds = '2024-01-01'")
        assert revenue.list_partitions(PATH) == [{"ds": "2024-01-02"}]
        assert revenue.get_table_statistics(PATH).rows == 1
        assert revenue.get_column_statistics(PATH)["n"] == ColumnStatistics(nulls=0, minimum="40", maximum="40")

    def test_before_the_first_commit_there_are_none(self, sales: SqlCatalog) -> None:
        sales.create_table(PATH, DYNAMIC)
        assert sales.list_partitions(PATH) == []
        assert sales.get_table_statistics(PATH) == TableStatistics()
        assert sales.get_column_statistics(PATH) == {}

    def test_they_cannot_be_changed_by_hand(self, revenue: SqlCatalog) -> None:
        revenue.create_table(ObjectPath("sales", "new"), DYNAMIC)
        make_partitioned(revenue, ObjectPath("sales", "foreign"))
        partition = CatalogPartition({"ds": "2024-01-01"})
        for path in (PATH, ObjectPath("sales", "new"), ObjectPath("sales", "foreign")):
            for call in (
                lambda path=path: revenue.create_partition(path, partition),
                lambda path=path: revenue.alter_partition(path, partition),
                lambda path=path: revenue.drop_partition(path, partition.spec, ignore_if_not_exists=True),
            ):
                with pytest.raises(UnsupportedError, match=f"of {path} in catalog {revenue.name} are those of its Iceberg"):
                    call()

    def test_of_a_table_of_others(self, sales: SqlCatalog) -> None:
        make_partitioned(sales, PATH)
        assert sales.list_partitions(PATH) == [{"ds": "2024-01-01"}, {"ds": "2024-01-02"}]
        make_physical(sales, ObjectPath("sales", "plain"))
        assert sales.get_table_statistics(ObjectPath("sales", "plain")).rows == 2
        with pytest.raises(InvalidPartitionError, match="is not partitioned"):
            sales.list_partitions(ObjectPath("sales", "plain"))

    def test_keys_that_iceberg_transforms_or_that_are_null(self, sales: SqlCatalog) -> None:
        schema = Schema(*SCHEMA.fields, NestedField(3, "ts", TimestampType()))
        spec = PartitionSpec(
            PartitionField(3, 1000, DayTransform(), "ts_day"), PartitionField(1, 1001, IdentityTransform(), "day_text")
        )
        sales.iceberg.create_namespace("sales")
        table = sales.iceberg.create_table(("sales", "revenue"), schema, partition_spec=spec)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(1, 19_723, "a"))
            append.append_data_file(data_file(2, 19_724, None))
        without = {"day(ts)": "2024-01-02", "ds": NULL_PARTITION}
        assert sales.list_partitions(PATH) == [{"day(ts)": "2024-01-01", "ds": "a"}, without]
        assert sales.list_partitions(PATH, {"ds": NULL_PARTITION}) == [without]
        assert sales.get_table_statistics(PATH, without) == TableStatistics(3, 100, 1)

    def test_ten_thousand_partitions(self, sales: SqlCatalog) -> None:
        table = make_partitioned(sales, PATH)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(10_000):
                append.append_data_file(data_file(number, f"d{number:05}"))
        before = time.process_time()
        assert len(sales.get_partitions(PATH)) == 10_002
        assert time.process_time() - before < 5  # of this process alone: other load does not count, but that it has grown does

    def test_renaming_the_database_takes_the_physical_tables_along(self, revenue: SqlCatalog) -> None:
        partitions = revenue.get_partitions(PATH)
        revenue.rename_database("sales", "vertrieb")
        moved = ObjectPath("vertrieb", "revenue")
        assert revenue.get_partitions(moved) == partitions
        assert revenue.iceberg.list_tables("vertrieb") == [("vertrieb", "revenue")]
        assert not revenue.iceberg.namespace_exists("sales")
        assert revenue.iceberg.load_table(("vertrieb", "revenue")).scan().to_arrow().num_rows == 4


def make_partitioned(catalog: SqlCatalog, path: ObjectPath) -> IcebergTable:
    """Make an Iceberg table by day, with two files on the first of two days."""
    catalog.iceberg.create_namespace_if_not_exists((path.database,))
    by_day = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ds"))
    table = catalog.iceberg.create_table((path.database, path.name), SCHEMA, partition_spec=by_day)
    table.append(pa.table({"ds": ["2024-01-01", "2024-01-01", "2024-01-02"], "n": [7, None, 40]}))
    table.append(pa.table({"ds": ["2024-01-01"], "n": [-5]}))
    return table


def files_of(catalog: SqlCatalog, path: ObjectPath) -> list[Path]:
    """The data files of an Iceberg table."""
    location = catalog.iceberg.load_table((path.database, path.name)).location().removeprefix("file://")
    return sorted(Path(location).glob("data/**/*.parquet"))


def data_file(number: int, *partition: object) -> DataFile:
    """A data file that only the metadata know, with statistics as a commit writes them."""
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///nowhere/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=3,
        file_size_in_bytes=100,
        column_sizes={1: 1, 2: 2},
        value_counts={1: 3, 2: 3},
        null_value_counts={1: 0, 2: 1},
        nan_value_counts={},
        lower_bounds={1: b"a", 2: (1).to_bytes(8, "little")},
        upper_bounds={1: b"b", 2: number.to_bytes(8, "little")},
        split_offsets=[4],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = 0
    return made


class TestUnavailable:
    def test_a_server_that_is_down(self, tmp_path: Path) -> None:
        catalog = SqlCatalog("lake", Database("postgresql://me:secret@127.0.0.1:1/airflow"), f"file://{tmp_path}")
        for call in (catalog.open, catalog.list_databases, lambda: catalog.get_table(PATH), lambda: catalog.iceberg):
            with pytest.raises(CatalogUnavailableError, match=r"127\.0\.0\.1:1/airflow") as raised:
                call()
            assert "secret" not in str(raised.value)

    @pytest.mark.postgres
    def test_a_schema_that_is_behind(self, postgres: PostgresServer, tmp_path: Path) -> None:
        catalog = SqlCatalog("lake", Database(postgres.create_database("old_catalog")), f"file://{tmp_path}")
        manager = CatalogManager("lake")
        manager.register(catalog)
        with pytest.raises(ConfigurationError, match="run: dynamic-tables db upgrade"):
            manager.get("lake")
        manager.upgrade()
        assert manager.get("lake").list_databases() == ["default"]
        manager.close()
