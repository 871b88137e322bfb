"""A key without behaviour is one field of ``DynamicTable``: read, merged, kept, printed, cached and documented by that alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.planning import Bound

ROOT = Path(__file__).parents[2]
FIELDS = """
    colour: Annotated[str | None, Key("The colour of the table.", decides=Decides.ROWS, see="time.md")] = None
    stars: Annotated[int | None, Key("How good it is.", limits={"ge": 1, "le": 5}, part=AirflowPart.TASK)] = None
    patience: Annotated[timedelta, Key("How long to wait.", in_defaults=False)] = timedelta(hours=1)
    level: Annotated[Initial, Key("How much.", part=AirflowPart.DAG)] = Initial.LATEST
    labels: Annotated[Mapping[str, str], Key("What else is said.")] = field(default_factory=dict)
"""
BEHIND = "    formatters: Mapping[str, str] = "
"""The first field of the model that is no key: new ones come before it."""

DEFINITIONS = """
defaults: {colour: red, stars: 3, labels: {team: a, cost: low}}
dynamic_tables:
- {name: lake.x.own, freshness: 1 day, query: SELECT 1 AS x, colour: blue, patience: 90 seconds,
   level: all, labels: {team: "yes"}}
- {name: lake.x.default, freshness: 1 day, query: SELECT 1 AS x}
"""
PLAIN = "dynamic_tables: [{name: lake.x.plain, freshness: 1 day, query: SELECT 1 AS x}]"
WRONG = """
defaults: {patience: 1 hour}
dynamic_tables: [{name: t, freshness: 1 day, query: SELECT 1 AS x, stars: 6, level: some, colur: red, labels: [a]}]
"""

PROGRAM = """
import json, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from runpy import run_path

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.definitions.cache import Cache, Tree
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema
from airflow_dynamic_tables.definitions.loader import USUAL, find_files, load_sound_definitions
from airflow_dynamic_tables.definitions.model import OF_ONE_DAG, AirflowPart, settings_of
from airflow_dynamic_tables.definitions.cache import normalised, restored
from airflow_dynamic_tables.definitions.printing import statement_of
from airflow_dynamic_tables.definitions.printing import yaml_of
from airflow_dynamic_tables.services.deployments.values import FieldChange
from airflow_dynamic_tables.services.deployments.comparing import other_rows
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.tables.entries import new_entry

folder = Path(sys.argv[1])
cache = Cache(folder / "cache", settled=timedelta())

def load(name):
    definitions, mistakes = load_sound_definitions(folder / name, cache=cache)
    assert not mistakes, mistakes
    return list(definitions.tables.values())

def declared(table):
    return replace(table, path=Path(), line=0, file="", text="")

tables = [*load("all.yaml"), *load("plain.yaml")]
kept = [json.loads(json.dumps(normalised(table))) for table in tables]
assert [restored(each) for each in kept] == [declared(table) for table in tables]
cached, _ = cache.load(Tree.scan(folder / "all.yaml", find_files(folder / "all.yaml").files, USUAL))
assert list(cached.tables.values()) == tables[:-1]

(folder / "again.yaml").write_text(yaml_of(tables))
(folder / "again.sql").write_text("\\n".join(map(statement_of, tables)))
for name in ("again.yaml", "again.sql"):
    assert [declared(table) for table in load(name)] == [declared(table) for table in tables]

_, mistakes = load_sound_definitions(folder / "wrong.yaml", cache=cache)
page = run_path(sys.argv[2])["with_reference"]("definitions.md", "")
definitions = definitions_schema()["$defs"]
print(json.dumps({
    "kept": kept,
    "yaml": yaml_of(tables),
    "sql": statement_of(tables[0]),
    "mistakes": [f"{each.line}:{each.column}: {each.message}" for each in mistakes],
    "recipes": [Bound(table, (), table.query, ()).recipe for table in tables],
    "deciding": other_rows(new_entry(tables[0], JobState.RUNNING), tables[0], (FieldChange("colour", None, "blue"),)),
    "schema": {model: definitions[model]["properties"] for model in ("TableDeclaration", "DefaultsDeclaration")},
    "settings": [settings_of(AirflowPart.TASK), settings_of(AirflowPart.DAG), OF_ONE_DAG],
    "reference": page.splitlines(),
}))
"""


def run(package: Path, folder: Path) -> dict[str, Any]:
    """What the program finds with the package in that folder."""
    folder.mkdir()
    for name, text in {"all.yaml": DEFINITIONS, "plain.yaml": PLAIN, "wrong.yaml": WRONG}.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder), str(ROOT / "scripts" / "write_reference.py")],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What becomes of a package that differs from ours by five fields."""
    home = tmp_path_factory.mktemp("package")
    name = "airflow_dynamic_tables"
    shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    model = home / name / "definitions" / "model.py"
    before, mark, after = model.read_text().partition(BEHIND)
    model.write_text(before + FIELDS.lstrip("\n") + mark + after)
    return run(home, home / "definitions")


def test_it_is_read_with_its_defaults_and_kept_where_it_says_something(found: dict[str, Any]) -> None:
    keys = ("colour", "stars", "patience", "level", "labels")
    own, default, plain = ({key: value for key, value in each.items() if key in keys} for each in found["kept"])
    assert own == {"colour": "blue", "stars": 3, "patience": 90.0, "level": "all", "labels": {"team": "yes", "cost": "low"}}
    assert default == {"colour": "red", "stars": 3, "labels": {"team": "a", "cost": "low"}}
    assert plain == {}


def test_it_is_printed_as_yaml_and_as_a_statement(found: dict[str, Any]) -> None:
    assert "colour: blue\n  stars: 3\n  patience: 90 seconds\n  level: all\n  labels:\n    team: 'yes'" in found["yaml"]
    assert "colour" not in found["yaml"].partition("lake.x.plain")[2]
    assert "'colour' = 'blue',\n  'stars' = '3',\n  'patience' = '90 seconds',\n  'level' = 'all',\n" in found["sql"]


def test_mistakes_are_told_with_their_places(found: dict[str, Any]) -> None:
    assert found["mistakes"] == [
        "2:12: unknown key 'patience'",
        "3:75: 'stars' must be a whole number of at most 5, not '6'",
        "3:85: 'some' is no level; use all | latest",
        "3:91: unknown key 'colur'; did you mean 'colour'?",
        "3:111: 'labels' must be a mapping, not a list",
    ]


def test_it_is_in_the_schema_the_reference_and_the_lists_of_settings(found: dict[str, Any]) -> None:
    table, defaults = found["schema"]["TableDeclaration"], found["schema"]["DefaultsDeclaration"]
    assert table["colour"]["description"] == defaults["colour"]["description"] == "The colour of the table."
    assert ("patience" in table, "patience" in defaults) == (True, False)
    assert "| `colour` | The colour of the table. [More](time.md) | yes |" in found["reference"]
    assert "| `patience` | How long to wait. |  |" in found["reference"]
    assert "| `stars` | How good it is. | task |" in found["reference"]
    task, dag, of_one_dag = found["settings"]
    assert ("stars" in task, "level" in dag, "level" in of_one_dag, "stars" in of_one_dag) == (True, True, True, False)


def test_it_is_a_part_of_the_recipe_of_tables_that_say_it(found: dict[str, Any], tmp_path: Path) -> None:
    own, default, plain = found["recipes"]
    assert len({own, default, plain}) == 3
    assert found["deciding"] == ["'colour'"]
    (tmp_path / "plain.yaml").write_text(PLAIN)
    (table,) = load_definitions(tmp_path / "plain.yaml", cache=Cache(None)).tables.values()
    assert plain == Bound(table, (), table.query, ()).recipe, "which is as it was without the keys"
