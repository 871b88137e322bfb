"""Assets whose updates refresh a table: what may be written, and what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions
from airflow_dynamic_tables.definitions.model import AssetReference, DynamicTable

TABLES = """
defaults: {catalog: lake, database: crm}
sources: [{name: raw.orders, format: parquet, path: PATH}]
dynamic_tables:
- {name: customers, freshness: 1 day, query: SELECT 1 AS x}
- name: t
  freshness: 1 day
  on: ON
  query: SELECT 1 AS x
"""


def defined(tmp_path: Path, on: str, path: str = "/data/orders", more: str = "") -> DynamicTable:
    (tmp_path / "tables.yaml").write_text(TABLES.replace("ON", on).replace("PATH", path) + more)
    table = load_definitions(tmp_path / "tables.yaml", cache=Cache(None)).table("lake.crm.t")
    assert table is not None
    return table


def meant(tmp_path: Path, on: str, path: str = "/data/orders") -> list[str | None]:
    updates = defined(tmp_path, on, path).on
    assert updates is not None
    return [asset.uri for asset in updates.assets]


CUSTOMERS = AssetReference(table=TableIdentifier("lake", "crm", "customers"))


@pytest.mark.parametrize("written", ["customers", "crm.customers", "lake.crm.customers", "'dynamic-table://lake/crm/customers'"])
def test_a_table_goes_by_its_name_or_its_uri(tmp_path: Path, written: str) -> None:
    updates = defined(tmp_path, f"[{written}, customers]").on
    assert updates is not None
    assert (updates.assets, updates.every, updates.tables) == ((CUSTOMERS,), False, (CUSTOMERS.table,))


def test_a_table_of_other_definitions_goes_by_its_uri(tmp_path: Path) -> None:
    updates = defined(tmp_path, "['dynamic-table://lake/a.b/odd%2Fname']").on
    assert updates is not None
    assert updates.tables == (TableIdentifier("lake", "a.b", "odd/name"),)


def test_all_of_them_may_be_needed(tmp_path: Path) -> None:
    updates = defined(tmp_path, "{all: [customers, {name: an odd name}, 'x-unknown:thing']}").on
    assert updates is not None
    assert updates.every
    assert updates.assets == (CUSTOMERS, AssetReference(name="an odd name"), AssetReference(uri="x-unknown:thing"))
    assert str(updates) == "lake.crm.customers and an odd name and x-unknown:thing"


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/data/a/../orders/", "file:///data/orders"),
        ("file:/data/orders", "file:///data/orders"),
        ("file:///data/orders/", "file:///data/orders"),
        ("s3a://bucket/orders/", "s3://bucket/orders/"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("gs://bucket/orders", "gs://bucket/orders"),
    ],
)
def test_a_source_is_the_asset_of_its_files_as_their_writers_name_it(tmp_path: Path, path: str, uri: str) -> None:
    assert meant(tmp_path, "[raw.orders]", path) == [uri]


def test_a_path_of_a_source_starts_from_its_file(tmp_path: Path) -> None:
    assert meant(tmp_path, "[raw.orders]", "../orders") == [f"file://{tmp_path.parent}/orders"]


def test_without_a_schedule_only_updates_refresh_it(tmp_path: Path) -> None:
    table = defined(tmp_path, "[customers]\n  schedule: none")
    assert (table.cron, table.freshness.text) == (None, "1 day")


def test_what_a_broken_file_declares_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("dynamic_tables:\n\t- name: elsewhere\n")
    (tmp_path / "tables.yaml").write_text(TABLES.replace("ON", "[elsewhere]").replace("PATH", "/data"))
    definitions, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert [mistake.path.name for mistake in mistakes] == ["broken.yaml"]
    table = definitions.table("lake.crm.t")
    assert table is not None
    assert table.on is not None
    assert table.on.tables == (TableIdentifier("lake", "crm", "elsewhere"),)
