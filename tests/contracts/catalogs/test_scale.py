"""Catalogs with much in them, and with two processes at work."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogPartition, TableStatistics
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError
from tests.contracts.catalogs.samples import PATH, TABLE, VIEW, Contract, Limits


def cpu_seconds(work: Callable[[], object]) -> float:
    """What it takes of this process alone: other load does not count."""
    before = time.process_time()
    work()
    return time.process_time() - before


@pytest.mark.sampled
def test_many_tables(sales: ReadableWritableCatalog, limits: Limits) -> None:
    table = limits.kept(TABLE)
    for number in range(limits.tables):
        sales.create_table(ObjectPath("sales", f"t{number:04}"), table)
    assert cpu_seconds(lambda: sales.list_tables("sales")) < 1
    assert sales.list_tables("sales") == [f"t{number:04}" for number in range(limits.tables)]


@pytest.mark.sampled
@pytest.mark.needs("details")
def test_many_partitions(sales: ReadableWritableCatalog, limits: Limits) -> None:
    sales.create_table(PATH, limits.kept(TABLE))
    partitions = [
        CatalogPartition({"ds": f"{number // 24:03}", "hh": f"{number % 24:02}"}, statistics=TableStatistics(number))
        for number in range(limits.partitions)
    ]
    sales.create_partitions(PATH, partitions)
    assert cpu_seconds(lambda: sales.get_partitions(PATH)) < 5
    assert sales.get_partitions(PATH) == partitions
    assert len(sales.list_partitions(PATH, {"hh": "05"})) == len([one for one in partitions if one.spec["hh"] == "05"])


def in_two_processes(contract: Contract, work: Callable[[ReadableWritableCatalog, int], object]) -> list[object]:
    """What two processes got that did the same at the same time, each as a client of its own."""
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(2), context.SimpleQueue()

    def run(me: int) -> None:
        try:
            catalog = contract.client()
            catalog.open()
            start.wait()
            results.put(work(catalog, me))
        except Exception as error:
            results.put(repr(error))

    processes = [context.Process(target=run, args=(me,)) for me in range(2)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return found


@pytest.fixture
def shared(contract: Contract) -> Contract:
    """A catalog that several processes see, with an empty database ``sales``."""
    catalog = contract.client()
    catalog.open()
    catalog.create_database("sales", CatalogDatabase())
    return contract


@pytest.mark.needs("details", "several writers")
def test_of_two_that_create_the_same_one_wins(shared: Contract) -> None:
    table, view = shared.limits.kept(TABLE), shared.limits.kept(VIEW)

    def create(catalog: ReadableWritableCatalog, me: int) -> int:
        won = 0
        for number in range(10):
            path = ObjectPath("sales", f"t{number}")
            for attempt in (
                lambda path=path: catalog.create_table(path, replace(table, comment=str(me))),
                lambda path=path: catalog.create_function(path, CatalogFunction(f"C{me}")),
                lambda number=number: catalog.create_database(f"d{number}", CatalogDatabase(str(me))),
            ):
                try:
                    attempt()
                    won += 1
                except AlreadyExistsError:
                    pass
        catalog.create_table(ObjectPath("sales", f"own{me}"), view)
        return won

    found = in_two_processes(shared, create)
    assert sum(int(str(won)) for won in found) == 30
    catalog = shared.client()
    catalog.open()
    assert catalog.list_tables("sales") == ["own0", "own1", *(f"t{number}" for number in range(10))]
    assert catalog.list_functions("sales") == [f"t{number}" for number in range(10)]
    assert catalog.list_databases() == [*(f"d{number}" for number in range(10)), "default", "sales"]


@pytest.mark.needs("details", "several writers")
def test_two_add_partitions_to_one_table(shared: Contract) -> None:
    catalog = shared.client()
    catalog.open()
    catalog.create_table(PATH, shared.limits.kept(TABLE))

    def add(other: ReadableWritableCatalog, me: int) -> str:
        for number in range(20):
            other.create_partition(PATH, CatalogPartition({"ds": f"{number:02}", "hh": str(me)}))
            other.create_partition(PATH, CatalogPartition({"ds": f"{number:02}", "hh": "both"}), ignore_if_exists=True)
        return "done"

    assert in_two_processes(shared, add) == ["done", "done"]
    assert len(catalog.list_partitions(PATH)) == 60
    assert len(catalog.list_partitions(PATH, {"hh": "both"})) == 20
