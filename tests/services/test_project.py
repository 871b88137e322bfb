"""A project: where the definitions are, and what holds for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.project import find_definitions, open_project

TABLE = """\
dynamic_tables:
  - {name: numbers, freshness: 1 day, query: SELECT 1 AS n}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "numbers.yaml").write_text(TABLE)
    return folder


def test_definitions_are_where_the_first_that_says_so_says(folder: Path, tmp_path: Path) -> None:
    assert find_definitions(str(folder), {"DYNAMIC_TABLES_DEFINITIONS": str(tmp_path / "other")}) == folder
    assert find_definitions(None, {"DYNAMIC_TABLES_DEFINITIONS": str(folder)}) == folder
    assert find_definitions(None, {"DYNAMIC_TABLES_DEFINITIONS": str(tmp_path / "other")}) is None


def test_no_definitions_are_refused_by_the_place_where_they_were_sought(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"No definitions at {tmp_path}/nowhere; name their folder"):
        open_project(str(tmp_path / "nowhere"), environ={})


def test_short_names_are_completed_by_the_catalogs_file(folder: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.yaml"
    named.write_text("catalogs: [{name: lake, type: memory, is-default: true, default-database: sales}]")
    defined, mistakes = open_project(str(folder), str(named), environ={}).load()
    assert (list(defined.tables), mistakes) == ([TableIdentifier("lake", "sales", "numbers")], ())


def test_one_threshold_holds_for_all(folder: Path) -> None:
    environ = {"DYNAMIC_TABLES_FRESHNESS_THRESHOLD": "5 minutes"}
    assert open_project(str(folder), environ=environ).conventions.threshold == Freshness.parse("5 minutes")
    hour = Freshness.parse("1 hour")
    assert open_project(str(folder), threshold=hour, environ=environ).conventions.threshold == hour


def test_a_broken_file_hides_no_table_of_another(folder: Path) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables: [}")
    project = open_project(str(folder), environ={})
    defined, mistakes = project.load()
    assert len(defined.tables) == len(mistakes) == 1
