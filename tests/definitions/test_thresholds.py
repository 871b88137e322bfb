"""From which freshness on a table is refreshed all the time is the installation's affair, and never an earlier answer's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_table_definitions, load_task_definitions
from airflow_dynamic_tables.definitions.model import Conventions
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError
from airflow_dynamic_tables.services.settings import threshold_in

TABLES = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
  - {name: quick, freshness: 5 minutes, query: SELECT 1 AS x}
  - {name: slow, freshness: 1 hour, query: SELECT 1 AS x}
  - {name: batch, freshness: 5 minutes, refresh_mode: full, query: SELECT 1 AS x}
  - {name: stream, freshness: 1 hour, refresh_mode: continuous, query: SELECT 1 AS x}
"""
MODES = {  # of quick and slow
    "5 minutes": ("FULL", "FULL"),
    "301 seconds": ("CONTINUOUS", "FULL"),
    "30 minutes": ("CONTINUOUS", "FULL"),
    "2 hours": ("CONTINUOUS", "CONTINUOUS"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sales.yaml"
    file.write_text(TABLES)
    return file


def test_the_threshold_decides_over_tables_that_declare_no_mode(path: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", settled=timedelta(0))
    for _ in range(2):  # the second time from the cache
        for text, modes in MODES.items():
            tables = load_definitions(path, conventions=Conventions(threshold=Freshness.parse(text)), cache=cache).tables.values()
            assert {table.identifier.table: table.mode for table in tables} == {
                **dict(zip(("quick", "slow"), modes, strict=True)),
                "batch": "FULL",
                "stream": "CONTINUOUS",
            }
    (reason,) = {table.mode_reason for table in tables if table.identifier.table == "slow"}
    assert reason == "freshness 1 hour is below the threshold of 2 hours"


def test_a_task_gets_the_mode_of_its_own_threshold(path: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", settled=timedelta(0))
    name = "lake.sales.quick"
    for text, (mode, _) in MODES.items():
        threshold = Freshness.parse(text)
        conventions = Conventions(threshold=threshold)
        of_task = load_task_definitions(path, "dynamic_table__lake__sales__quick", conventions=conventions, cache=cache).table(
            name
        )
        of_name = load_table_definitions(path, name, conventions=conventions, cache=cache).table(name)
        for table in (of_task, of_name):
            assert table is not None
            assert (table.mode, table.cron is None) == (mode, mode == "CONTINUOUS")


def test_a_freshness_that_no_cron_has_needs_one_only_where_it_is_not_refreshed_all_the_time(path: Path) -> None:
    path.write_text("dynamic_tables: [{name: odd, freshness: 7 minutes, query: SELECT 1 AS x}]")
    (table,) = load_definitions(path, cache=Cache(None)).tables.values()
    assert table.cron is None
    with pytest.raises(DefinitionError, match=r"sales\.yaml:1:\d+: .*7 minutes"):
        load_definitions(path, conventions=Conventions(threshold=Freshness.parse("7 minutes")), cache=Cache(None))


def test_the_environment_says_the_threshold() -> None:
    assert threshold_in({}) == threshold_in({"DYNAMIC_TABLES_FRESHNESS_THRESHOLD": ""}) == Freshness.parse("30 minutes")
    assert threshold_in({"DYNAMIC_TABLES_FRESHNESS_THRESHOLD": "PT10M"}) == Freshness.parse("10 minutes")
    with pytest.raises(ConfigurationError, match=r"^DYNAMIC_TABLES_FRESHNESS_THRESHOLD: '5' is no freshness; write for example"):
        threshold_in({"DYNAMIC_TABLES_FRESHNESS_THRESHOLD": "5"})
