"""What only a catalog in a Hive metastore does; the rest is in the contract of all catalogs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hive_metastore import ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated

from airflow_dynamic_tables.catalog.base import CatalogDefaults
from airflow_dynamic_tables.catalog.file import load_catalogs
from airflow_dynamic_tables.catalog.hive import catalog as hive_partitions
from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.values import (
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogTable,
    CatalogView,
    ColumnStatistics,
    RefreshHandler,
    TableStatistics,
)
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import SNAPSHOT
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CatalogUnavailableError,
    ConfigurationError,
    DatabaseNotFoundError,
    InvalidPartitionError,
    PartitionAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from tests.support.benches.catalogs import empty_hive_catalog
from tests.support.faults.report import FaultReport
from tests.support.metastore import HiveMetastore

PATH = ObjectPath("sales", "daily_revenue")
DYNAMIC = CatalogDynamicTable(
    columns=(Column("ds", "string"), Column("Revenue", "decimal(38,2)", comment="in €")),
    original_query="SELECT ds, sum(amount) AS Revenue FROM orders GROUP BY ds",
    expanded_query="SELECT ds, sum(amount) AS Revenue FROM orders GROUP BY ds",
    freshness="1 day",
    declared_refresh_mode=RefreshMode.AUTO,
    refresh_handler=RefreshHandler(RefreshMode.FULL),
    partition_keys=("ds",),
    format="parquet",
)


@pytest.fixture
def sales(hive_catalog: HiveCatalog) -> HiveCatalog:
    """A catalog with an empty database ``sales``."""
    hive_catalog.create_database("sales", CatalogDatabase())
    return hive_catalog


@pytest.fixture
def thrift_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that go over the wire from now on."""
    calls: list[str] = []
    write = TBinaryProtocolAccelerated.writeMessageBegin

    def counted(protocol: TBinaryProtocolAccelerated, name: str, kind: int, number: int) -> None:
        calls.append(name)
        write(protocol, name, kind, number)

    monkeypatch.setattr(TBinaryProtocolAccelerated, "writeMessageBegin", counted)
    return calls


class TestCatalogsFile:
    @pytest.mark.large
    def test_address_and_warehouse_stand_in_it(
        self, hive_metastore: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_METASTORE", f"hive-metastore://127.0.0.1:{hive_metastore.port}")
        file = tmp_path / "catalogs.yaml"
        file.write_text(
            "catalogs:\n"
            f"- {{name: near, type: hive, connection-params: {{uri: '{hive_metastore.uri}', warehouse: lake}}}}\n"
            "- {name: far, type: hive, conn-id: metastore, default-database: far}\n"
        )
        manager = load_catalogs(file, CatalogDefaults("sqlite://", f"file://{tmp_path}"))
        near, far = manager.get("near"), manager.get("far")
        assert isinstance(near, HiveCatalog)
        assert isinstance(far, HiveCatalog)
        assert "far" in near.list_databases()
        far.drop_database("far")
        near.create_database("here", CatalogDatabase())
        near.create_table(ObjectPath("here", "t"), DYNAMIC)
        assert near.load(ObjectPath("here", "t")).sd.location.startswith(f"file:{tmp_path}/lake/here.db/t-")
        manager.close()

    @pytest.mark.parametrize(
        ("params", "words"),
        [
            ("", "needs connection parameter 'uri', or a 'conn-id'"),
            (", connection-params: {uri: 'localhost:9083'}", "write thrift://host:port"),
        ],
    )
    def test_what_is_no_address(self, tmp_path: Path, params: str, words: str) -> None:
        file = tmp_path / "catalogs.yaml"
        file.write_text(f"catalogs: [{{name: lake, type: hive{params}}}]")
        manager = load_catalogs(file, CatalogDefaults("sqlite://", f"file://{tmp_path}"))
        with pytest.raises(ConfigurationError, match=rf"/catalogs\.yaml:1:12: catalog lake: .*{words}"):
            manager.get("lake")


@pytest.mark.parametrize("name", ["Orders", "a.b", "a-b", "it's", "Umsätze", "with space", "", "x" * 257])
def test_a_name_that_the_metastore_would_change_is_refused_and_never_found(sales: HiveCatalog, name: str) -> None:
    message = f"a Hive metastore, where the name of a .* choose another name than {name!r}"
    for call in (
        lambda: sales.create_database(name, CatalogDatabase()),
        lambda: sales.create_table(ObjectPath("sales", name), DYNAMIC),
        lambda: sales.create_function(ObjectPath("sales", f"{name}-"), CatalogFunction("a.B")),
    ):
        with pytest.raises(UnsupportedError, match=message.replace("'$", "")[:60]):
            call()
    sales.create_table(ObjectPath("sales", "orders"), DYNAMIC)
    assert not sales.table_exists(ObjectPath("sales", name))
    assert not sales.table_exists(ObjectPath("Sales", "orders"))
    assert not sales.database_exists(name)
    with pytest.raises(DatabaseNotFoundError):
        sales.list_tables(name)


def test_hives_own_fields_hold_what_other_engines_read(sales: HiveCatalog) -> None:
    sales.create_table(PATH, replace(DYNAMIC, comment="Per day", properties={"owner": "sales"}))
    found = sales.load(PATH)
    assert [(field.name, field.type, field.comment) for field in found.sd.cols] == [("revenue", "decimal(38,2)", "in €")]
    assert [(field.name, field.type) for field in found.partitionKeys] == [("ds", "string")]
    assert (found.tableType, found.parameters["comment"], found.parameters["owner"]) == ("EXTERNAL_TABLE", "Per day", "sales")
    assert found.sd.serdeInfo.serializationLib.endswith("ParquetHiveSerDe")


def test_long_values_are_kept_in_short_parameters(sales: HiveCatalog) -> None:
    long = replace(DYNAMIC, expanded_query="SELECT '" + "ü€𝄞" * 5_000 + "'")
    sales.create_table(PATH, long)
    assert sales.get_table(PATH) == long
    assert max(len(value) for value in sales.load(PATH).parameters.values()) <= 4000
    sales.alter_table(PATH, DYNAMIC)
    assert sales.get_table(PATH) == DYNAMIC
    assert not [key for key in sales.load(PATH).parameters if key.startswith("dynamic-tables.value.part")]


def test_what_somebody_else_changed_in_hives_fields_is_true(sales: HiveCatalog) -> None:
    sales.create_table(PATH, DYNAMIC)
    found = sales.load(PATH)
    found.sd.cols.append(type(found.sd.cols[0])("extra", "int", None))
    found.parameters |= {"comment": "altered", "team": "crm"}
    sales.metastore.call("alter_table", "sales", "daily_revenue", found)
    altered = sales.get_table(PATH)
    assert isinstance(altered, CatalogDynamicTable)
    assert [column.name for column in altered.columns] == ["revenue", "extra", "ds"]
    assert (altered.comment, altered.properties, altered.freshness) == ("altered", {"team": "crm"}, "1 day")


def test_altering_never_undoes_a_commit_that_the_caller_did_not_see(sales: HiveCatalog, tmp_path: Path) -> None:
    sales.create_table(PATH, replace(DYNAMIC, partition_keys=()))
    seen = sales.get_table(PATH)
    found = sales.load(PATH)
    found.sd.location, found.parameters[SNAPSHOT] = f"file://{tmp_path}/version-2", "2"
    sales.metastore.call("alter_table", "sales", "daily_revenue", found)
    sales.alter_table(PATH, replace(seen, comment="new"))
    altered = sales.get_table(PATH)
    assert isinstance(altered, CatalogDynamicTable)
    assert (altered.comment, altered.location, altered.snapshot) == ("new", f"file://{tmp_path}/version-2", "2")
    assert sales.get_table(PATH, "2") == altered
    with pytest.raises(TableNotFoundError, match="has no version 1"):
        sales.get_table(PATH, "1")


def test_two_that_alter_one_table_lose_nothing(sales: HiveCatalog, hive_metastore: HiveMetastore) -> None:
    sales.create_table(PATH, replace(DYNAMIC, partition_keys=()))
    other = HiveCatalog(sales.name, Metastore(hive_metastore.uri))
    errors: list[Exception] = []

    def repeat(work: Callable[[int], None]) -> None:
        try:
            for number in range(10):
                work(number)
        except Exception as error:
            errors.append(error)

    works = (
        lambda number: sales.change_table(PATH, lambda table: replace(table, properties={"number": str(number)})),
        lambda number: other.change_table(PATH, lambda table: replace(table, comment=str(number))),
    )
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert errors == []
    table = sales.get_table(PATH)
    assert (table.comment, table.properties) == ("9", {"number": "9"})


def test_a_column_or_a_property_that_hive_cannot_have_is_an_error(sales: HiveCatalog) -> None:
    for table, words in (
        (replace(DYNAMIC, columns=(Column("a", "int"), Column("A", "int"))), "two columns a"),
        (replace(DYNAMIC, columns=(Column("a", "array<"),)), "where a type is due"),
        (replace(DYNAMIC, properties={"numRows": "3"}), "uses the property numRows itself"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            sales.create_table(PATH, table)
    sales.create_table(PATH, DYNAMIC)
    with pytest.raises(CatalogError, match="partition keys can not be changed"):
        sales.alter_table(PATH, replace(DYNAMIC, partition_keys=("Revenue",)))


@pytest.mark.parametrize(
    "kind",
    [
        "array<struct<A:int,`b c`:map<string,decimal(10,2)>>>",
        "timestamp_ntz",
        "varchar(10)",
        "struct<a:array<array<date>>>",
        "binary",
    ],
)
def test_every_type_comes_back(sales: HiveCatalog, kind: str) -> None:
    table = CatalogTable((Column("Value", kind, nullable=False),), format="orc")
    sales.create_table(PATH, table)
    assert sales.get_table(PATH) == table


def test_partitions_take_no_call_for_each(sales: HiveCatalog, thrift_calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_partitions, "BATCH", 20)
    sales.create_table(PATH, DYNAMIC)
    partitions = [CatalogPartition({"ds": f"{number:03}"}, statistics=TableStatistics(number)) for number in range(60)]
    thrift_calls.clear()
    sales.create_partitions(PATH, partitions)
    assert thrift_calls == ["get_table", "add_partitions_req"]
    thrift_calls.clear()
    assert sales.list_partitions(PATH) == [partition.spec for partition in partitions]
    assert thrift_calls == ["get_table", "get_partition_names"]
    thrift_calls.clear()
    assert sales.get_partitions(PATH) == partitions
    assert thrift_calls == ["get_table", "get_partition_names", *["get_partitions_by_names"] * 3]
    thrift_calls.clear()
    assert sales.list_partitions(PATH, {"ds": "007"}) == [{"ds": "007"}]
    assert thrift_calls == ["get_table", "get_partition_names_ps"]


def test_a_thousand_tables_take_one_call(sales: HiveCatalog, thrift_calls: list[str]) -> None:
    sales.create_table(PATH, DYNAMIC)
    sales.create_table(ObjectPath("sales", "v"), CatalogView("SELECT 1", "SELECT 1"))
    thrift_calls.clear()
    assert sales.list_tables("sales") == ["daily_revenue", "v"]
    assert sales.list_dynamic_tables("sales") == ["daily_revenue"]
    assert sales.list_views("sales") == ["v"]
    assert len(thrift_calls) == 3


@pytest.mark.long  # the metastore takes minutes to make them
@pytest.mark.postgres
def test_a_thousand_tables_and_ten_thousand_partitions(
    hive_metastore_on_postgres: HiveMetastore, thrift_calls: list[str], fault_report: FaultReport
) -> None:
    catalog = empty_hive_catalog("much", hive_metastore_on_postgres)
    catalog.create_database("sales", CatalogDatabase())
    names = [f"t{number:04}" for number in range(1_000)]
    for name in names:
        catalog.create_table(ObjectPath("sales", name), DYNAMIC)
    partitions = [CatalogPartition({"ds": f"{number:05}"}, statistics=TableStatistics(number)) for number in range(10_000)]
    catalog.create_partitions(ObjectPath("sales", names[0]), partitions)
    thrift_calls.clear()
    start = time.monotonic()
    assert catalog.list_tables("sales") == names
    listed = time.monotonic()
    assert catalog.get_partitions(ObjectPath("sales", names[0])) == partitions
    fault_report.note(f"Hive metastore: 1,000 tables {listed - start:.2f} s, 10,000 partitions {time.monotonic() - listed:.2f} s")
    batches = ["get_partitions_by_names"] * (10_000 // hive_partitions.BATCH)
    assert thrift_calls == ["get_all_tables", "get_table", "get_partition_names", *batches]
    catalog.close()


def test_values_that_look_alike_are_told_apart(sales: HiveCatalog) -> None:
    sales.create_table(PATH, DYNAMIC)
    values = [" x ", "a.b", "a/b", "a=b", "a_b", "axb", "é", "50%", "[x]", "it's"]
    sales.create_partitions(PATH, [CatalogPartition({"ds": value}) for value in values])
    assert [spec["ds"] for spec in sales.list_partitions(PATH)] == sorted(values)
    for value in values:
        assert sales.list_partitions(PATH, {"ds": value}) == [{"ds": value}]
        assert sales.get_partitions(PATH, {"ds": value}) == [CatalogPartition({"ds": value})]


def test_an_empty_partition_value_is_refused(sales: HiveCatalog) -> None:
    sales.create_table(PATH, DYNAMIC)
    with pytest.raises(InvalidPartitionError, match="never empty"):
        sales.create_partition(PATH, CatalogPartition({"ds": ""}))


def test_a_partition_comes_back_with_its_comment_and_its_size(sales: HiveCatalog) -> None:
    sales.create_table(PATH, DYNAMIC)
    partition = CatalogPartition(
        {"ds": "1"}, "file:///tmp/dynamic-tables-elsewhere", "A day", {"a": "b"}, TableStatistics(1, 2, 3)
    )
    sales.create_partition(PATH, partition)
    assert sales.get_partition(PATH, {"ds": "1"}) == partition
    with pytest.raises(PartitionAlreadyExistsError, match="Partition ds=1 of table"):
        sales.create_partitions(PATH, [CatalogPartition({"ds": "0"}), CatalogPartition({"ds": "1"})])
    assert sales.list_partitions(PATH) == [{"ds": "1"}]
    changed = replace(partition, comment=None, statistics=TableStatistics())
    sales.alter_partition(PATH, changed)
    assert sales.get_partition(PATH, {"ds": "1"}) == changed


def test_column_statistics_are_hives_own(sales: HiveCatalog) -> None:
    columns = [
        ("L", "bigint", "-5", "7"),
        ("d", "double", "0.5", "1.5"),
        ("n", "decimal(10,2)", "-1.25", "300.00"),
        ("day", "date", "1969-12-31", "2024-02-29"),
    ]
    table = CatalogTable(
        (*(Column(name, kind) for name, kind, _, _ in columns), Column("text", "string"), Column("flag", "boolean")), format="orc"
    )
    sales.create_table(PATH, table)
    days = ttypes.DateColumnStatsData
    data = {
        "l": ttypes.ColumnStatisticsData(longStats=ttypes.LongColumnStatsData(-5, 7, 1, 20)),
        "d": ttypes.ColumnStatisticsData(doubleStats=ttypes.DoubleColumnStatsData(0.5, 1.5, 1, 20)),
        "n": ttypes.ColumnStatisticsData(
            decimalStats=ttypes.DecimalColumnStatsData(
                ttypes.Decimal(2, (-125).to_bytes(1, "big", signed=True)), ttypes.Decimal(2, (30_000).to_bytes(2, "big")), 1, 20
            )
        ),
        "day": ttypes.ColumnStatisticsData(dateStats=days(ttypes.Date(-1), ttypes.Date(19_782), 1, 20)),
        "text": ttypes.ColumnStatisticsData(
            stringStats=ttypes.StringColumnStatsData(maxColLen=1, avgColLen=1.0, numNulls=2, numDVs=-1)
        ),
    }
    objects = [
        ttypes.ColumnStatisticsObj(column.name.lower(), column.type, data[column.name.lower()])
        for column in table.columns
        if column.name.lower() in data
    ]
    about = ttypes.ColumnStatisticsDesc(isTblLevel=True, dbName="sales", tableName="daily_revenue")
    sales.metastore.call("update_table_column_statistics", ttypes.ColumnStatistics(about, objects, engine="hive"))
    known = {name: ColumnStatistics(1, 20, least, greatest) for name, _, least, greatest in columns}
    assert sales.get_column_statistics(PATH) == known | {"text": ColumnStatistics(nulls=2)}


def test_a_function_with_jars_is_one_that_hive_knows(sales: HiveCatalog) -> None:
    path = ObjectPath("sales", "Answer")
    for function in (
        CatalogFunction("org.example.Answer", "java", {"jars": "file:///a.jar,file:///b.jar"}),
        CatalogFunction("module:answer", "python", {"returns": "int", "py_files": "file:///a.zip"}),
    ):
        sales.create_function(path, function, ignore_if_exists=True)
        sales.alter_function(path, function)
        assert sales.get_function(path) == function
    sales.alter_function(path, CatalogFunction("org.example.Answer", "java", {"jars": "file:///a.jar"}))
    found = sales.metastore.call("get_function", "sales", "answer")
    assert (found.className, [resource.uri for resource in found.resourceUris]) == ("org.example.Answer", ["file:///a.jar"])


def test_a_metastore_that_comes_back_needs_no_new_catalog(hive_metastore: HiveMetastore, sales: HiveCatalog) -> None:
    sales.create_table(PATH, DYNAMIC)
    hive_metastore.stop()
    try:
        with pytest.raises(CatalogUnavailableError, match="Cannot reach the Hive metastore"):
            sales.get_table(PATH)
        with pytest.raises(CatalogUnavailableError):
            sales.drop_table(PATH, ignore_if_not_exists=True)
    finally:
        hive_metastore.start()
    assert sales.get_table(PATH) == DYNAMIC


def test_the_next_address_serves_when_the_first_is_dead(hive_metastore: HiveMetastore) -> None:
    catalog = HiveCatalog("lake", Metastore(f"thrift://127.0.0.1:1,{hive_metastore.uri}"))
    catalog.open()
    assert "default" in catalog.list_databases()
    catalog.close()
