"""Tables of others beside dynamic tables: read, adopted, refused; and what a change of our properties leaves alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Retention
from airflow_dynamic_tables.exceptions import UnsupportedError
from tests.contracts.catalogs.samples import DYNAMIC, TABLE, VIEW
from tests.support.benches.staging import REVENUE, Bench
from tests.support.iceberg_tables import upgrade

THEIRS = ObjectPath("sales", "theirs")
COLUMNS = Schema(NestedField(1, "ds", StringType()), NestedField(2, "n", LongType()), NestedField(3, "at", TimestampType()))


@pytest.fixture
def theirs(catalog: IcebergCatalog) -> IcebergCatalog:
    """A catalog in which somebody else made a table by ``ds``, with a row."""
    catalog.create_database("sales", CatalogDatabase(), ignore_if_exists=True)
    (store,) = catalog.stores()
    by_day = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ds"))
    made = store.tables.create_table(("sales", "theirs"), COLUMNS, partition_spec=by_day, properties={"owner": "them"})
    made.append(pa.table({"ds": ["1"], "n": [1], "at": [datetime(2024, 1, 1)]}))  # noqa: DTZ001 - Iceberg's type has no zone
    return catalog


def test_a_table_of_others_is_read(theirs: IcebergCatalog) -> None:
    table = theirs.get_table(THEIRS)
    assert isinstance(table, CatalogTable)
    assert table.columns == (Column("ds", "string"), Column("n", "bigint"), Column("at", "timestamp_ntz"))
    assert (table.partition_keys, table.properties) == (("ds",), {"owner": "them"})
    assert theirs.list_partitions(THEIRS) == [{"ds": "1"}]
    assert theirs.get_table_statistics(THEIRS).rows == 1
    assert theirs.list_dynamic_tables("sales") == []


def test_a_table_of_others_is_adopted_with_its_rows(theirs: IcebergCatalog) -> None:
    assert theirs.adopt_table(THEIRS, DYNAMIC)
    assert not theirs.adopt_table(THEIRS, DYNAMIC)
    adopted = theirs.get_table(THEIRS)
    assert isinstance(adopted, CatalogDynamicTable)
    assert adopted.original_query == DYNAMIC.original_query
    assert [column.name for column in adopted.columns] == ["ds", "n", "at"]
    assert adopted.properties == {"owner": "them"}
    bench = Bench(theirs.stores()[0], THEIRS)
    assert len(bench.table.read().files) == 1
    theirs.change_table(THEIRS, lambda table: replace(table, comment="ours"))
    assert theirs.get_table(THEIRS).comment == "ours"


def test_a_table_that_does_not_fit_is_not_adopted_and_stays_as_it_is(theirs: IcebergCatalog) -> None:
    (store,) = theirs.stores()
    before = store.tables.load_table(("sales", "theirs")).metadata_location
    with pytest.raises(UnsupportedError, match=r"cannot be adopted: its partition keys are \('ds',\) and not none\."):
        theirs.adopt_table(THEIRS, replace(DYNAMIC, partition_keys=()))
    assert store.tables.load_table(("sales", "theirs")).metadata_location == before


def test_a_table_of_a_later_format_version_is_read_and_not_adopted(tmp_path: Path) -> None:
    database = {"uri": f"sqlite:///{tmp_path}/iceberg.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with closing(SqlCatalog("lake", **database)) as theirs:
        theirs.create_namespace("default")
        upgrade(theirs.create_table(("default", "theirs"), COLUMNS))
    with closing(IcebergCatalog("lake", IcebergServer("lake", "sql", database))) as catalog:
        catalog.open()
        path = ObjectPath("default", "theirs")
        assert len(catalog.get_table(path).columns) == 3
        with pytest.raises(
            UnsupportedError, match=r"cannot be adopted: its format version is 3, and commits here write versions up to 2\."
        ):
            catalog.adopt_table(path, replace(DYNAMIC, partition_keys=()))


def test_a_table_that_is_partitioned_by_what_is_computed_is_adopted_by_the_same_keys(theirs: IcebergCatalog) -> None:
    (store,) = theirs.stores()
    daily = ObjectPath("sales", "daily")
    by_day = PartitionSpec(PartitionField(3, 1000, DayTransform(), "day"))
    store.tables.create_table(("sales", "daily"), COLUMNS, partition_spec=by_day)
    with pytest.raises(UnsupportedError, match=r"cannot be adopted: its partition keys are \('day\(at\)',\) and not \('ds',\)\."):
        theirs.adopt_table(daily, DYNAMIC)
    assert theirs.adopt_table(daily, replace(DYNAMIC, partition_keys=("day(at)",)))


def test_what_an_iceberg_catalog_does_not_keep(theirs: IcebergCatalog) -> None:
    path = ObjectPath("sales", "new")
    assert isinstance(VIEW, CatalogView)
    for table, words in (
        (VIEW, "keeps no views; make sales.new in another catalog"),
        (TABLE, "keeps no parquet tables; sales.new needs format: iceberg"),
        (replace(DYNAMIC, properties={"dynamic-tables.value": "x"}), "uses the property dynamic-tables.value itself"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            theirs.create_table(path, table)
    with pytest.raises(UnsupportedError, match="the name of a database has no dots, for namespaces of several levels"):
        theirs.create_database("eu.sales", CatalogDatabase())
    with pytest.raises(UnsupportedError, match="does not support changing functions"):
        theirs.drop_function(path)


def test_a_change_of_properties_is_no_version_and_survives_expiry(catalog: IcebergCatalog, bench: Bench) -> None:
    for day in range(4):
        bench.refresh({"1": [day]})
        catalog.change_table(REVENUE, lambda table, day=day: replace(table, comment=str(day)))  # type: ignore[misc]
    assert [version.number for version in bench.table.versions()] == [1, 2, 3, 4]
    later = datetime.now(UTC) + timedelta(days=30)
    assert bench.table.expire(Retention(1, timedelta(days=1)), later, lambda: ()) == 3
    catalog.change_table(REVENUE, lambda table: replace(table, comment="last"))
    assert catalog.get_table(REVENUE).comment == "last"
    (store,) = catalog.stores()
    metadata = store.tables.load_table(("sales", "revenue")).metadata
    assert len([name for name in metadata.refs if name.startswith("dynamic-tables-")]) == 1
    assert len(metadata.snapshots) == 2


def test_a_tag_that_somebody_dropped_is_set_again(catalog: IcebergCatalog, bench: Bench) -> None:
    bench.refresh({"1": [1]})
    (store,) = catalog.stores()
    table = store.tables.load_table(("sales", "revenue"))
    (tag,) = (name for name in table.metadata.refs if name.startswith("dynamic-tables-"))
    table.manage_snapshots().remove_tag(tag).commit()
    catalog.change_table(REVENUE, lambda now: replace(now, comment="new"))
    assert catalog.get_table(REVENUE).comment == "new"
    assert bench.rows() == {"1": [1]}
