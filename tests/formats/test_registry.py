"""Formats meet stores: what a catalog can hold, what is missing, and what a reader has to accept."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from airflow_dynamic_tables.catalog.base import CatalogDefaults, CatalogEntry
from airflow_dynamic_tables.catalog.file import CATALOG_TYPES, formats_in, make_catalog
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.formats import (
    FORMATS,
    counted_formats,
    endless_format,
    sink_formats,
    source_formats,
    streamed_formats,
)
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.registry import COUNTERS, SOURCES, TABLES, Module, bind, check_held, is_bound, open_table

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


def test_streams_are_declared_for_the_formats_that_can_add_rows() -> None:
    can_add = {place: cast(type[LakeTable], module.load()).can_add for place, module in TABLES.items()}
    assert can_add == {(name, store): name in streamed_formats() for name, store in TABLES}


@pytest.mark.parametrize("place", sorted({module.place for module in (*TABLES.values(), *SOURCES.values(), *COUNTERS.values())}))
def test_every_place_is_there(place: str) -> None:
    assert callable(Module(place).load())


def test_a_format_that_no_store_can_hold_is_refused() -> None:
    for stores, instead in (((), "."), ((FOLDER,), "; use format parquet | orc, or another catalog.")):
        with pytest.raises(UnsupportedError) as refused:
            open_table(REVENUE, "iceberg", stores, "none")
        assert str(refused.value) == f"{REVENUE}: catalog lake cannot hold iceberg tables{instead}"


def test_a_catalog_that_keeps_nothing_but_entries_takes_those_of_any_format() -> None:
    check_held(REVENUE, "jdbc", ())
    with pytest.raises(UnsupportedError, match="catalog lake cannot hold jdbc tables; use format parquet"):
        check_held(REVENUE, "jdbc", (FOLDER,))


@pytest.mark.parametrize("kind", CATALOG_TYPES)
def test_definitions_are_told_of_the_formats_that_a_catalog_can_really_hold(kind: str, tmp_path: Path) -> None:
    params = {
        "hive": {"uri": "thrift://127.0.0.1:1"},
        "jdbc": {"url": "postgresql://me@127.0.0.1:1/shop"},
        "iceberg": {"uri": "sqlite:///iceberg.db", "warehouse": "warehouse"},
    }
    defaults = CatalogDefaults(f"sqlite:///{tmp_path / 'state.db'}", tmp_path.as_uri())
    catalog = make_catalog(CatalogEntry("lake", kind, params=params.get(kind, {}), base=tmp_path), defaults)
    stores = {store.kind for store in catalog.stores()}
    catalog.close()
    told = formats_in(kind)
    assert {name for name, at in TABLES if at in stores} == ({*told.atomic, *told.stepwise} if told else set())


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
