"""Partitions are replaced while that reads fewer bytes than a merge of their new rows, which DuckDB computes instead of Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changing_sources import DeltaSource, FolderSource, IcebergSource
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH
from tests.support.shop import COLUMNS, QUERY, Shop

Open = Callable[..., Shop]


@pytest.fixture(params=[IcebergSource, DeltaSource, pytest.param(FolderSource, marks=pytest.mark.large)])
def opened(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Open:
    def begun(**others: Any) -> Shop:
        clock.time = MARCH
        shop = Shop(workspace, clock, tmp_path, request.param, **others)
        for name in ("facts", "other") if "raw.other" in shop.query else ("facts",):
            shop.sources[name] = request.param(workspace, tmp_path, name, COLUMNS, shop.source_key)
            shop.append("2024-02-11", 10, source=name)
        shop.append("2024-02-10", 8_000)
        shop.refresh()
        return shop

    return begun


def size(shop: Shop, source: str) -> float:
    """The size of the data files of a source, or of the table after its first refresh, in the partition of the large day."""
    files = (file for file in shop.folder.rglob("*.parquet") if "=2024-02-10/" in str(file))
    of_table = shop.plans[0].token
    return sum(file.stat().st_size for file in files if (of_table in str(file)) is (source == "t")) / 2**20


@pytest.mark.sampled
def test_partitions_that_are_larger_than_their_sources_are_replaced(opened: Open) -> None:
    shop = opened()
    table, before = size(shop, "t"), size(shop, "facts")
    shop.append("2024-02-10", 5)
    after = size(shop, "facts")
    done = shop.refresh()
    assert (done.action, done.reason_code) == (RefreshAction.PARTITIONS, ReasonCode.MERGE_COSTS_MORE)
    read = f"{table + after - before:.1f} MiB instead of {after:.1f} MiB"
    assert done.reason.endswith(f"; all rows are computed, because a merge of the new ones would read {read}"), done.reason
    shop.append("2024-02-11", 5)
    assert shop.refresh().action is RefreshAction.MERGE, "the other partition is small"
    shop.append("2024-02-10", 8_000, note=100)
    assert shop.refresh().reason_code is ReasonCode.MERGE_COSTS_MORE
    shop.append("2024-02-10", 5)
    done = shop.refresh()
    assert (done.action, done.reason_code) == (RefreshAction.MERGE, ReasonCode.SOURCES_CHANGED)
    shop.check()


@pytest.mark.large
@pytest.mark.parametrize("opened", [IcebergSource, DeltaSource], indirect=True)
@pytest.mark.parametrize(
    ("mode", "action", "code"),
    [
        ("incremental", RefreshAction.FULL, ReasonCode.MERGE_COSTS_MORE),
        ("incremental_strict", RefreshAction.MERGE, ReasonCode.SOURCES_CHANGED),
    ],
)
def test_strict_tables_do_not_replace_all_rows_for_it(opened: Open, mode: str, action: RefreshAction, code: ReasonCode) -> None:
    shop = opened(source_key=None, mode=mode)
    shop.append("2024-02-10", 5)
    done = shop.refresh()
    assert (done.action, done.reason_code) == (action, code)
    shop.check()


@pytest.mark.large
def test_a_merge_saves_the_other_sources_of_a_union(opened: Open) -> None:
    union = "(SELECT ds, name, n FROM raw.facts UNION ALL SELECT ds, name, n FROM raw.other)"
    shop = opened(query=QUERY.replace("raw.facts", union))
    shop.append("2024-02-10", 5)
    assert shop.refresh().reason_code is ReasonCode.MERGE_COSTS_MORE
    shop.append("2024-02-10", 8_000, note=100, source="other")
    shop.refresh()
    shop.append("2024-02-10", 5)
    assert shop.refresh().action is RefreshAction.MERGE
    shop.check()
