"""Formats meet stores: what a catalog can hold, what is missing, and what a reader has to accept."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.formats import FORMATS, counted_formats, endless_format, sink_formats, source_formats
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError, UnsupportedError
from airflow_dynamic_tables.formats.registry import COUNTERS, SOURCES, TABLES, Module, bind, is_bound, open_table

REVENUE = TableIdentifier("lake", "sales", "revenue")
FOLDER = FolderStore("lake", "file:///warehouse")


def test_every_format_that_a_definition_may_name_is_somewhere_at_home() -> None:
    assert {name for name, _ in TABLES} == set(sink_formats())
    bound = {name for name, _ in SOURCES}
    streamed = {name for name in source_formats() if endless_format(name) is not None}
    assert bound | set(sink_formats()) == set(source_formats()) - streamed - {"view"}
    assert bound <= FORMATS.keys()
    assert {name for name, _ in COUNTERS} == set(counted_formats())
    assert COUNTERS.keys() <= SOURCES.keys()


@pytest.mark.parametrize("place", sorted({module.place for module in (*TABLES.values(), *SOURCES.values(), *COUNTERS.values())}))
def test_every_place_is_there(place: str) -> None:
    assert callable(Module(place).load())


def test_a_format_that_no_store_can_hold_is_refused() -> None:
    for stores in ((), (FOLDER,)):
        with pytest.raises(UnsupportedError, match="Catalog lake cannot hold iceberg tables"):
            open_table(REVENUE, "iceberg", stores, "none")


def test_folders_take_somebody_who_accepts_what_they_are() -> None:
    with pytest.raises(UnsupportedError, match="cannot replace orc files in one step; use format: iceberg, or accept"):
        open_table(REVENUE, "orc", (FOLDER,), "staged")
    assert open_table(REVENUE, "orc", (FOLDER,), "none").versions() == []


def test_a_source_in_a_catalog_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has format hive, but catalog lake is not of type hive"):
        bind(Source(REVENUE, "hive"), (FOLDER,), "view")
    assert is_bound(Source(REVENUE, "csv"))
    assert not is_bound(Source(REVENUE, "iceberg"))


def test_a_library_that_is_missing_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, ("iceberg", "folder"), Module("no_such_library.table:Table", "delta"))
    with pytest.raises(MissingExtraError, match=r"airflow-dynamic-tables\[delta\]"):
        open_table(REVENUE, "iceberg", (FOLDER,), "none")
