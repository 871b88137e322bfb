"""What every catalog that can be written does with partitions and statistics of tables that it describes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogPartition, TableStatistics
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import (
    InvalidPartitionError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from tests.contracts.catalogs.samples import PATH, TABLE, VIEW, Limits

pytestmark = pytest.mark.needs("details")

FIRST, SECOND, THIRD = (
    {"ds": "2024-01-01", "hh": "03"},
    {"ds": "2024-01-01", "hh": "04"},
    {"ds": "2024-01-02", "hh": "03"},
)
PARTITION = CatalogPartition(FIRST, "file:///data/orders/first", None, {"a": "b"}, TableStatistics(10, 200, 1))
PLAIN, ONE_VIEW, MISSING = ObjectPath("sales", "plain"), ObjectPath("sales", "one"), ObjectPath("sales", "missing")


@pytest.fixture
def orders(sales: ReadableWritableCatalog, limits: Limits) -> ReadableWritableCatalog:
    """A catalog with a partitioned table, one without keys and a view."""
    sales.create_table(PATH, limits.kept(TABLE))
    sales.create_table(PLAIN, limits.kept(replace(TABLE, partition_keys=())))
    sales.create_table(ONE_VIEW, limits.kept(VIEW))
    return sales


class TestPartitions:
    def test_a_partition_comes_back_as_it_was_created(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partition(PATH, PARTITION)
        assert orders.get_partition(PATH, FIRST) == PARTITION
        assert orders.get_partition(PATH, dict(reversed(FIRST.items()))) == PARTITION
        assert orders.get_partitions(PATH) == [PARTITION]
        assert orders.partition_exists(PATH, FIRST)

    def test_they_are_listed_in_order_and_by_a_part_of_the_spec(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partitions(PATH, [CatalogPartition(spec) for spec in (THIRD, FIRST, dict(reversed(SECOND.items())))])
        assert orders.list_partitions(PATH) == [FIRST, SECOND, THIRD]
        assert [list(spec) for spec in orders.list_partitions(PATH)] == [["ds", "hh"]] * 3
        assert orders.list_partitions(PATH, {"ds": "2024-01-01"}) == [FIRST, SECOND]
        assert orders.list_partitions(PATH, {"hh": "03"}) == [FIRST, THIRD]
        assert orders.list_partitions(PATH, THIRD) == [THIRD]
        assert orders.list_partitions(PATH, {"ds": "2023-01-01"}) == []

    def test_any_value_can_be_used(self, orders: ReadableWritableCatalog) -> None:
        values = ["a/b", "a=b", "a,b", "50%", "it's", 'say "hi"', "Müller", "売上", " x ", "A", "a", "#", "x" * 200]
        orders.create_partitions(PATH, [CatalogPartition({"ds": value, "hh": "0"}) for value in values])
        assert [spec["ds"] for spec in orders.list_partitions(PATH)] == sorted(values)
        for value in values:
            assert orders.get_partition(PATH, {"ds": value, "hh": "0"}).spec["ds"] == value
            orders.drop_partition(PATH, {"ds": value, "hh": "0"})
        assert orders.list_partitions(PATH) == []

    def test_reading_what_is_not_partitioned_or_has_no_such_key(self, orders: ReadableWritableCatalog) -> None:
        for path in (PLAIN, ONE_VIEW):
            with pytest.raises(InvalidPartitionError, match=f"^Table {path} in catalog {orders.name} is not partitioned.$"):
                orders.list_partitions(path)
        with pytest.raises(InvalidPartitionError, match=r"has no partition key mm; its keys are ds, hh"):
            orders.list_partitions(PATH, {"mm": "1"})
        with pytest.raises(TableNotFoundError, match=r"sales\.missing"):
            orders.get_partitions(MISSING)

    def test_every_problem_of_one_partition_is_that_it_does_not_exist(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partition(PATH, PARTITION)
        for path, spec in ((PATH, SECOND), (PATH, {"ds": "2024-01-01"}), (PATH, {"mm": "1"}), (PLAIN, FIRST), (MISSING, FIRST)):
            assert not orders.partition_exists(path, spec)
            partition = CatalogPartition(spec)
            for call in (
                lambda path=path, spec=spec: orders.get_partition(path, spec),
                lambda path=path, partition=partition: orders.alter_partition(path, partition),
                lambda path=path, spec=spec: orders.drop_partition(path, spec),
            ):
                with pytest.raises(
                    PartitionNotFoundError, match=rf"^Partition .* of table {path} in catalog {orders.name} does not exist.$"
                ):
                    call()
            orders.alter_partition(path, partition, ignore_if_not_exists=True)
            orders.drop_partition(path, spec, ignore_if_not_exists=True)
        assert orders.get_partitions(PATH) == [PARTITION]

    def test_creating_what_does_not_fit_the_table(self, orders: ReadableWritableCatalog) -> None:
        for path, spec in ((PLAIN, FIRST), (ONE_VIEW, FIRST), (PATH, {"ds": "1"}), (PATH, {**FIRST, "mm": "1"}), (PATH, {})):
            for ignore in (False, True):
                with pytest.raises(InvalidPartitionError, match=f"Table {path} in catalog {orders.name}"):
                    orders.create_partition(path, CatalogPartition(spec), ignore_if_exists=ignore)
        with pytest.raises(TableNotFoundError):
            orders.create_partition(MISSING, PARTITION, ignore_if_exists=True)

    def test_a_taken_spec_is_an_error_or_left_as_it_is(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partition(PATH, PARTITION)
        message = f"^Partition ds=2024-01-01/hh=03 of table sales.daily_revenue in catalog {orders.name} already exists.$"
        with pytest.raises(PartitionAlreadyExistsError, match=message):
            orders.create_partition(PATH, CatalogPartition(FIRST))
        orders.create_partition(PATH, CatalogPartition(FIRST), ignore_if_exists=True)
        assert orders.get_partitions(PATH) == [PARTITION]

    def test_many_are_created_all_or_none(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partition(PATH, PARTITION)
        for specs, error in (((SECOND, FIRST), PartitionAlreadyExistsError), ((SECOND, {"ds": "1"}), InvalidPartitionError)):
            with pytest.raises(error):
                orders.create_partitions(PATH, [CatalogPartition(spec) for spec in specs])
            assert orders.get_partitions(PATH) == [PARTITION]
        orders.create_partitions(PATH, [CatalogPartition(SECOND), CatalogPartition(FIRST)], ignore_if_exists=True)
        assert orders.list_partitions(PATH) == [FIRST, SECOND]
        assert orders.get_partition(PATH, FIRST) == PARTITION
        orders.create_partitions(PATH, [])

    def test_altering_and_dropping(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partitions(PATH, [PARTITION, CatalogPartition(SECOND)])
        changed = CatalogPartition(FIRST, "file:///elsewhere", None, {"c": "d"}, TableStatistics(rows=11))
        orders.alter_partition(PATH, replace(changed, spec=dict(reversed(FIRST.items()))))
        assert orders.get_partition(PATH, FIRST) == changed
        orders.drop_partition(PATH, FIRST)
        assert orders.list_partitions(PATH) == [SECOND]

    def test_they_go_with_their_table(self, orders: ReadableWritableCatalog, limits: Limits) -> None:
        orders.create_partition(PATH, PARTITION)
        orders.rename_table(PATH, "renamed")
        assert orders.list_partitions(ObjectPath("sales", "renamed")) == [FIRST]
        orders.drop_table(ObjectPath("sales", "renamed"))
        orders.create_table(ObjectPath("sales", "renamed"), limits.kept(TABLE))
        assert orders.list_partitions(ObjectPath("sales", "renamed")) == []


class TestStatistics:
    def test_they_are_unknown_until_they_are_told(self, orders: ReadableWritableCatalog) -> None:
        orders.create_partition(PATH, CatalogPartition(FIRST))
        for path in (PATH, PLAIN, ONE_VIEW):
            assert orders.get_table_statistics(path) == TableStatistics()
            assert orders.get_column_statistics(path) == {}
        assert orders.get_table_statistics(PATH, FIRST) == TableStatistics()

    def test_of_a_partition(self, orders: ReadableWritableCatalog) -> None:
        known = CatalogPartition(FIRST, properties={"a": "b"}, statistics=TableStatistics(40, 5_000_000_000, 7))
        orders.create_partitions(PATH, [known, CatalogPartition(SECOND)])
        assert orders.get_table_statistics(PATH, FIRST) == known.statistics
        assert orders.get_table_statistics(PATH, SECOND) == TableStatistics()
        assert orders.get_partition(PATH, FIRST) == known

    def test_of_what_is_missing(self, orders: ReadableWritableCatalog) -> None:
        for call in (
            lambda: orders.get_table_statistics(MISSING),
            lambda: orders.get_table_statistics(MISSING, FIRST),
            lambda: orders.get_column_statistics(MISSING),
        ):
            with pytest.raises(TableNotFoundError, match=r"sales\.missing"):
                call()
        for call in (
            lambda: orders.get_table_statistics(PATH, FIRST),
            lambda: orders.get_table_statistics(PATH, {"ds": "2024-01-01"}),
        ):
            with pytest.raises(PartitionNotFoundError):
                call()
