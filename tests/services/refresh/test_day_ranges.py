"""Joins with rows of some days before: a change replaces the partitions of the days after it, also those spelled otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.services.source_progress import partition_names
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changing_sources import ChangingSource, DeltaSource, FolderSource, IcebergSource
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH
from tests.support.shop import COLUMNS, Shop

TWO_DAYS = "JOIN {other} o ON to_date(o.ds) BETWEEN cast(date_sub(f.ds, 2) AS date) AND to_date(f.ds)"
BY_DAY = f"SELECT f.ds, count(*) AS c, sum(o.n) AS n FROM raw.facts f {TWO_DAYS} GROUP BY f.ds"
CROSSED = f"SELECT f.ds, o.ds AS name, count(*) AS n FROM raw.facts f {TWO_DAYS} GROUP BY f.ds, o.ds"
OTHER, ITSELF = "raw.other", "raw.facts"

Open = Callable[..., Shop]


@pytest.fixture(params=[IcebergSource, DeltaSource, FolderSource])
def opened(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Open:
    def begun(query: str, other: str, keys: str = "ds") -> Shop:
        clock.time = MARCH
        kind: type[ChangingSource] = request.param
        shop = Shop(workspace, clock, tmp_path, kind, query=query.format(other=other), keys=keys)
        for name in ("facts", "other") if other == OTHER else ("facts",):
            shop.sources[name] = kind(workspace, tmp_path, name, COLUMNS, "ds")
            for day in ("2024-01-31", "2024-02-01", "2024-02-02", "2024-02-07"):
                shop.append(day, 2, source=name)
        shop.append("2024-2-12", 2)
        shop.refresh()
        shop.check()
        return shop

    return begun


def replaced(shop: Shop) -> list[str]:
    """Refresh, and check the table; return the days whose rows were replaced or merged."""
    shop.refresh()
    shop.check()
    return sorted(str(spec["ds"]) for spec in shop.plans[-1].partitions)


def test_days_after_a_change_are_replaced(opened: Open) -> None:
    shop = opened(BY_DAY, OTHER)
    shop.append("2024-01-31", 3, source="other")
    assert replaced(shop) == ["2024-01-31", "2024-02-01", "2024-02-02", "2024-2-12"]
    shop.append("2024-02-02", 3)
    assert replaced(shop) == ["2024-02-02"]
    facts, other = (sorted({*partition_names(source).values()}) for source in shop.plans[-1].sources)
    assert facts == ["ds=2024-02-02"]
    assert other == ["ds=2024-01-31", "ds=2024-02-01", "ds=2024-02-02"], "the job reads no other days"


def test_a_day_spelled_otherwise_gets_its_first_rows(opened: Open) -> None:
    """No row of the table was of that day, so only the source of the key knows it."""
    shop = opened(BY_DAY, OTHER)
    shop.append("2024-02-11", 3, source="other")
    assert "2024-2-12" in replaced(shop)
    assert {row["ds"] for row in shop.rows()} == {"2024-01-31", "2024-02-01", "2024-02-02", "2024-02-07", "2024-2-12"}


@pytest.mark.parametrize("opened", [DeltaSource], indirect=True)
def test_days_before_in_the_same_source(opened: Open) -> None:
    shop = opened(BY_DAY, ITSELF)
    shop.append("2024-02-05", 3)
    assert replaced(shop) == ["2024-02-05", "2024-02-07", "2024-2-12"], "there is no day 6"
    shop.append("2024-2-14", 3)
    shop.refresh()
    shop.check()


@pytest.mark.parametrize("opened", [DeltaSource], indirect=True)
def test_crossed_days_are_not_listed(opened: Open) -> None:
    """Each of the two keys is of another source, so a day spelled otherwise can meet any day of the other one."""
    shop = opened(CROSSED, OTHER, keys="ds, name")
    shop.append("2024-2-11", 3, source="other")
    shop.refresh()
    shop.check()
    assert shop.plans[-1].partitions.is_whole
    shop.append("2024-02-12", 3, source="other")
    shop.refresh()
    shop.check()
