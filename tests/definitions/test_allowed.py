"""What a deployment does not allow is a mistake at its place, wherever definitions hold a query."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions
from airflow_dynamic_tables.definitions.model import Conventions

CLOSED = Allowed(transform=False, java_calls=False, python_functions=False)
SCRIPTS = [
    "SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM t",
    'SELECT transform(x) using "cat" FROM t',
    "SELECT * FROM (SELECT TRANSFORM(x) USING 'cat' AS (y) FROM t) a",
]
CALLS = [
    "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x",
    "SELECT x FROM t WHERE x IN (SELECT `Reflect` ('a', 'b'))",
    "SELECT JAVA_METHOD/* */('a', 'b') AS x",
    "SELECT try_reflect\n('a', 'b') AS x",
    "SELECT system.builtin.reflect('a', 'b') AS x",
    "WITH c AS (SELECT builtin.`java_method`('a', 'b') AS x) SELECT x FROM c",
]
HARMLESS = [
    "SELECT transform(array(1), x -> x + 1) AS y",
    "SELECT a.x FROM t a JOIN t b USING (x)",
    "SELECT x AS reflect FROM t",
    "SELECT 'reflect(' AS x -- TRANSFORM(x) USING 'cat'",
]


def mistakes(folder: Path, query: str, allowed: Allowed = CLOSED, cache: Cache | None = None) -> list[str]:
    indented = query.replace("\n", "\n      ")
    (folder / "a.yaml").write_text(
        "sources: [{name: t, format: parquet, path: /t, schema: x INT}]\n"
        f"dynamic_tables:\n  - name: d\n    freshness: 1 day\n    query: |\n      {indented}\n"
    )
    _, every = load_sound_definitions(folder / "a.yaml", conventions=Conventions(allowed=allowed), cache=cache or Cache(None))
    return [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in every]


@pytest.mark.parametrize("query", SCRIPTS)
def test_scripts(tmp_path: Path, query: str) -> None:
    told = mistakes(tmp_path, query)
    assert any(line.startswith("6:") and "transform: false in DYNAMIC_TABLES_ALLOW" in line for line in told), told
    assert mistakes(tmp_path, query, EVERYTHING) == mistakes(tmp_path, query, Allowed(java_calls=False))


@pytest.mark.parametrize("query", CALLS)
def test_calls_of_java(tmp_path: Path, query: str) -> None:
    column = 7 + min(place for name in ("reflect", "java_method") if (place := query.lower().find(name)) >= 0)
    column -= 4 * ("try_reflect" in query) + ("`" in query)
    (told,) = mistakes(tmp_path, query)
    assert told.startswith(
        f"6:{column}: calling Java (reflect, java_method, try_reflect, Java functions of catalogs) is not allowed"
    )
    assert mistakes(tmp_path, query, Allowed(transform=False)) == []


@pytest.mark.parametrize("query", HARMLESS)
def test_what_only_looks_like_it(tmp_path: Path, query: str) -> None:
    assert mistakes(tmp_path, query) == []


def test_views_and_predicates(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "views:\n"
        "  - {name: v, query: \"SELECT reflect('a', 'b') AS x\"}\n"
        "dynamic_tables:\n"
        "  - name: reads_view\n    freshness: 1 day\n    query: SELECT x FROM v\n"
        "  - name: checked\n    freshness: 1 day\n    query: SELECT 1 AS x\n"
        "    expectations: [{predicate: \"x > 0 AND reflect('a', 'b') IS NULL\"}]\n"
    )
    definitions, every = load_sound_definitions(file, conventions=Conventions(allowed=CLOSED), cache=Cache(None))
    assert definitions.tables == {}
    told = [(mistake.line, mistake.column) for mistake in every if "DYNAMIC_TABLES_ALLOW" in mistake.message]
    assert told == [(2, 30), (10, 43)]
    assert len(load_definitions(file, cache=Cache(None)).tables) == 2


def test_the_cache_keeps_both_answers_apart(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for _ in range(2):
        assert len(mistakes(tmp_path, CALLS[0], CLOSED, cache)) == 1
        assert mistakes(tmp_path, CALLS[0], EVERYTHING, cache) == []
