"""Merges of the files added to a folder, which keeps no earlier versions; DuckDB computes them instead of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changing_sources import FolderSource
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH
from tests.support.shop import COLUMNS, Shop

FIRST, SECOND = "2024-02-10", "2024-02-11"
BY_HAND = PartitionSet.of([{"ds": FIRST}])


@pytest.fixture
def shop(workspace: Workspace, clock: Clock, tmp_path: Path) -> Shop:
    clock.time = MARCH
    shop = Shop(workspace, clock, tmp_path, FolderSource, query="SELECT ds, name, sum(n) AS n FROM raw.facts GROUP BY ds, name")
    shop.sources["facts"] = FolderSource(workspace, tmp_path, "facts", COLUMNS, "ds")
    for day in (FIRST, SECOND):
        shop.append(day, 3)
    shop.refresh()
    return shop


def merged(shop: Shop) -> list[str] | RefreshAction:
    """The files that the next refresh merges, or what it does instead; afterwards the table equals its query."""
    action = shop.refresh().action
    shop.check()
    return [Path(file).name for file in shop.plans[-1].sources[0].files] if action is RefreshAction.MERGE else action


def facts(shop: Shop) -> FolderSource:
    source = shop.sources["facts"]
    assert isinstance(source, FolderSource)
    return source


def test_each_file_is_read_once(shop: Shop) -> None:
    shop.append(FIRST, 4)
    shop.append("2024-02-12", 4)
    shop.before_reading = lambda: shop.append(FIRST, 5)
    shop.refresh()
    shop.before_reading = None
    assert [Path(file).name for file in shop.plans[-1].sources[0].files] == ["2.parquet", "3.parquet"]
    assert merged(shop) == ["4.parquet"]


def test_a_file_that_is_replaced_before_it_is_read(shop: Shop) -> None:
    shop.append(FIRST, 4)
    shop.before_reading = lambda: facts(shop).write_again(facts(shop).files[-2])
    assert shop.refresh().action is RefreshAction.MERGE
    shop.before_reading = None
    assert merged(shop) is RefreshAction.PARTITIONS


def test_partitions_that_lack_rows_of_the_others_are_not_merged_with_them(shop: Shop) -> None:
    shop.append(FIRST, 4)
    shop.refresh(partitions=BY_HAND, is_scheduled=False)
    shop.append(FIRST, 5)
    shop.append(SECOND, 5)
    assert merged(shop) == ["3.parquet", "4.parquet"], "the files of the second day are those of the first refresh"
    for day in (FIRST, SECOND):
        shop.append(day, 6)
    shop.refresh(partitions=BY_HAND, is_scheduled=False)
    shop.append(FIRST, 7)
    assert merged(shop) is RefreshAction.PARTITIONS, "only the first day has the rows of file 5"


@pytest.mark.sampled
@pytest.mark.parametrize("change", ["replaced", "removed", "renamed", "copied"])
def test_other_changes_of_files_replace_partitions(shop: Shop, change: str) -> None:
    source = facts(shop)
    shop.append(FIRST, 4)
    assert merged(shop) == ["2.parquet"]
    file = source.files[0]
    shop.append(FIRST, 5)
    match change:
        case "replaced":
            source.write_again(file)
        case "removed":
            file.unlink()
        case "renamed":
            file.rename(file.with_name("renamed.parquet"))
        case "copied":
            source.append(source.rows()[:2], hours=3)
    assert merged(shop) is RefreshAction.PARTITIONS


def test_the_live_plan_says_why_new_rows_are_not_merged(shop: Shop) -> None:
    shop.append(FIRST, 4)
    assert shop.foretold(shop.request()).not_merged is None
    facts(shop).files[0].unlink()
    told = shop.foretold(shop.request()).not_merged
    assert told == f"lake.raw.facts: files of ds={FIRST} may have been changed or removed"
    shop.query = "SELECT ds, name, sum(n) AS n,\n  avg(n) AS mean FROM raw.facts GROUP BY ds, name"
    shop.refresh()
    shop.append(FIRST, 4)
    plan = shop.foretold(shop.request())
    assert plan.action is RefreshAction.PARTITIONS
    assert plan.not_merged == "AVG(n) is merged from its parts, at 2:7 of the query; add count(n) to the query"
