"""Differences of Hive tables: what a metastore cannot change in one step is told, and nothing of it is begun."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.deployments.diffing import ApplyOutcome, apply, differences
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days


class Shop:
    """A Hive table with the columns ``ds``, ``n`` and ``extra``, which is declared anew."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace = workspace
        self.folder = folder
        self.database = f"shop_{uuid4().hex}"

    def declared(self, query: str = "SELECT '1' AS ds, 1 AS n, 1 AS extra", more: str = "") -> Definitions:
        table = f'{{name: hms.{self.database}.visits, format: parquet, freshness: 1 day, query: "{query}"{more}}}'
        (self.folder / "shop.yaml").write_text(f"dynamic_tables: [{table}]")
        return load_definitions(self.folder / "shop.yaml")

    def fill(self, table: DynamicTable, *more: str, full: bool = False) -> Version | Skipped:
        request = RefreshRequest(table, {}, datetime(2024, 3, 1, tzinfo=UTC), str(uuid4()), "a test", full_refresh=full)
        return run(self.workspace, request, lambda plan: write_days(plan, {"1": [1]}, more=more))

    def difference(self, definitions: Definitions) -> Difference:
        (table,) = definitions.tables
        (found,) = (one for one in differences(self.workspace, definitions) if one.identifier == table)
        return found

    def entry(self, table: DynamicTable) -> CatalogDynamicTable:
        entry = self.workspace.catalog("hms").get_table(table.identifier.path)
        assert isinstance(entry, CatalogDynamicTable)
        return entry


@pytest.fixture
def shop(hive_workspace: Workspace, tmp_path: Path) -> Shop:
    return Shop(hive_workspace, tmp_path)


@pytest.mark.large
@pytest.mark.metastore
def test_a_partitioned_table_is_left_alone(shop: Shop) -> None:
    keyed = ", partitioned_by: [ds]"
    (first,) = shop.declared(more=keyed).tables.values()
    shop.fill(first, "extra")
    narrow = shop.declared("SELECT '1' AS ds, 1 AS n", keyed)
    unkeyed = shop.declared()
    for definitions in (narrow, unkeyed):
        found = shop.difference(definitions)
        assert (found.change, found.is_possible) == (Change.REBUILD, False)
        assert "by another name" in (found.next or "")
        (table,) = definitions.tables.values()
        done = apply(shop.workspace, found, table, refresh=lambda table: shop.fill(table, full=True))
        assert (done.outcome, done.detail) == (ApplyOutcome.NOT_DONE, found.reason)
    assert shop.entry(first).expanded_query == first.expanded_query
    assert shop.entry(first).partition_keys == ("ds",)
    assert sample(shop.workspace, first.identifier, 9) == [{"n": 1, "extra": 1, "ds": "1"}]


@pytest.mark.large
@pytest.mark.metastore
def test_a_table_without_keys_is_made_anew(shop: Shop) -> None:
    (first,) = shop.declared().tables.values()
    shop.fill(first, "extra")
    assert shop.difference(shop.declared()).change is Change.UNCHANGED
    definitions = shop.declared("SELECT '1' AS ds, 1 AS n")
    found = shop.difference(definitions)
    assert (found.change, found.is_possible) == (Change.REBUILD, True)
    (table,) = definitions.tables.values()
    done = apply(shop.workspace, found, table, refresh=lambda table: shop.fill(table, full=True))
    assert (done.outcome, done.version) == (ApplyOutcome.REFRESHED, 2)
    assert sample(shop.workspace, first.identifier, 9) == [{"ds": "1", "n": 1}]
    assert shop.difference(definitions).change is Change.UNCHANGED
