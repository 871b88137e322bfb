"""What a catalog keeps of a table, written as YAML and as a statement, is read as the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import Cache, normalised, restored
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.printing import hidden_settings, statement_of, yaml_of
from airflow_dynamic_tables.exceptions import UnsupportedError
from tests.definitions.test_normalised import EVERYTHING

Print = Callable[[DynamicTable], tuple[str, str]]
Tables = Mapping[TableIdentifier, DynamicTable]


def as_yaml(table: DynamicTable) -> tuple[str, str]:
    return "yaml", yaml_of([table])


def as_statement(table: DynamicTable) -> tuple[str, str]:
    return "sql", statement_of(table)


PRINTS = pytest.mark.parametrize("written", [as_yaml, as_statement])
SOURCES = """
sources:
  - {name: lake.raw.orders, format: parquet, path: /data/orders, partitioned_by: [ds, hh]}
  - {name: lake.raw.events, format: hive}
"""


def load(folder: Path, text: str) -> Tables:
    (folder / "all.yaml").write_text(text, encoding="utf-8")
    definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
    assert [str(mistake) for mistake in mistakes] == []
    return definitions.tables


def read_back(folder: Path, tables: Iterable[DynamicTable], written: Print) -> Tables:
    """What becomes of tables that a catalog kept and somebody exported, beside the sources of them."""
    texts = [written(restored(normalised(table))) for table in tables]
    for number, (suffix, text) in enumerate(texts):
        (folder / f"{number}.{suffix}").write_text(text, encoding="utf-8")
    (folder / "sources.yaml").write_text(SOURCES)
    definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
    assert [str(mistake) for mistake in mistakes] == [], texts
    return definitions.tables


def same(before: DynamicTable, after: DynamicTable) -> bool:
    """Whether two tables differ in nothing but where and how they are written, and the full names in their queries."""
    return replace(after, path=Path(), line=0, file="", text="", query="") == replace(
        before, path=Path(), line=0, file="", text="", query=""
    )


@pytest.fixture
def again(tmp_path: Path) -> Path:
    folder = tmp_path / "again"
    folder.mkdir()
    return folder


@PRINTS
def test_everything_that_can_be_said(tmp_path: Path, again: Path, written: Print) -> None:
    original = tmp_path / "original"
    original.mkdir()
    before = load(original, EVERYTHING)
    after = read_back(again, before.values(), written)
    assert list(after) == list(before)
    assert [name for name, table in before.items() if not same(table, after[name])] == []


@PRINTS
def test_queries_stay_as_they_are_written_but_for_short_names(tmp_path: Path, again: Path, written: Print) -> None:
    text = f"""{SOURCES}
defaults: {{catalog: lake, database: sales}}
views: [{{name: v, query: SELECT ds FROM raw.orders}}]
dynamic_tables:
  - name: raw.short
    freshness: 1 day
    query: |
      -- why; indeed
      SELECT o.ds, /* all */ 'orders' AS x FROM raw.orders o
      JOIN raw.events USING (ds) WHERE EXISTS (TABLE lake.raw.`orders`)
  - {{name: view_of, freshness: 1 day, query: SELECT ds FROM v;}}
  - {{name: of_another, freshness: 1 day, query: SELECT ds FROM lake.raw.orders}}
"""
    before = load(tmp_path, text)
    after = read_back(again, before.values(), written)
    assert [name for name, table in before.items() if not same(table, after[name])] == []
    short, view_of, of_another = (table.query for table in after.values())
    assert short.split("\n")[1:] == [
        "SELECT o.ds, /* all */ 'orders' AS x FROM lake.raw.orders o",
        "JOIN lake.raw.events USING (ds) WHERE EXISTS (TABLE lake.raw.`orders`)",
    ]
    assert view_of == before[TableIdentifier("lake", "sales", "view_of")].expanded_query
    assert of_another == "SELECT ds FROM lake.raw.orders"


@PRINTS
def test_a_query_of_another_scope_keeps_its_meaning(tmp_path: Path, again: Path, written: Print) -> None:
    text = f"""{SOURCES}
defaults: {{catalog: lake, database: raw}}
dynamic_tables:
  - {{name: lake.sales.orders, freshness: 1 day, query: SELECT ds FROM orders}}
  - {{name: lake.sales.all_of, freshness: 1 day, query: "SELECT 1 AS x FROM lake.sales.orders a, lake.raw.orders b, orders c"}}
"""
    before = load(tmp_path, text)
    after = read_back(again, before.values(), written)
    assert [name for name, table in before.items() if not same(table, after[name])] == []


_LIKE_YAML = ("yes", "no", "~", "null", "[a]", "{a: b}", "#", "a: b", "1", "1.0", "0x1", "<<", "*x", "&x", "!x", "%", "@")
_LIKE_SQL = ("it's", 'a "b"', "\\", "\\'", "${HOME}", "$${X}", "${", '"', "'", ";", "-- x", "/* x", "`", "$$")
_UNSEEN = ("a\nb", " a ", "\t", "\x7f", "\u2028", "\ufeff", "é", "😀")
_ODD = st.sampled_from((*_LIKE_YAML, *_LIKE_SQL, *_UNSEEN))
_ANY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
_TEXTS = _ODD | _ANY | st.tuples(_ODD, _ODD).map("".join)
_NAMES = st.text("abcXYZ_0 .`-é;'\"", min_size=1, max_size=6).map(lambda name: f"t{name}")
_KEYS = st.text("abc.-_", min_size=1, max_size=8)
_ENTRIES = st.fixed_dictionaries(
    {"freshness": st.sampled_from(["1 day", "30 minutes", "2 hours", "3 minutes", "INTERVAL '1' WEEK"])},
    optional={
        "comment": _TEXTS,
        "refresh_mode": st.sampled_from(["full", "auto", "incremental"]),
        "columns": st.dictionaries(st.sampled_from(["a", "b c"]), _TEXTS, min_size=1),
        "options": st.dictionaries(_KEYS, _TEXTS, min_size=1, max_size=3),
        "tags": st.lists(_TEXTS, min_size=1, max_size=3, unique=True),
        "owner": _TEXTS,
        "pool": _TEXTS,
        "timezone": st.sampled_from(["Europe/Berlin", "UTC"]),
        "skip_unchanged": st.booleans(),
        "versions_to_keep": st.integers(1, 99),
        "spark": st.fixed_dictionaries({"conf": st.dictionaries(_KEYS, _TEXTS, max_size=2)}),
        "params": st.dictionaries(st.sampled_from(["p", "q"]), st.fixed_dictionaries({"default": _TEXTS}), max_size=2),
        "executor_config": st.fixed_dictionaries({}, optional={"x": _TEXTS, "y": st.lists(_TEXTS | st.booleans(), max_size=2)}),
        "expectations": st.lists(
            st.fixed_dictionaries({"accepted_values": st.fixed_dictionaries({"a": st.lists(_TEXTS, min_size=1, max_size=2)})})
            | st.integers(1, 999).map(lambda tenths: {"row_count": {"max_decrease": f"{tenths / 10}%", "min": tenths}}),
            max_size=1,
        ),
    },
)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@settings(max_examples=40)
@given(_NAMES, _ENTRIES, st.lists(_TEXTS, max_size=2))
def test_generated_definitions(name: str, entry: dict[str, Any], constants: list[str]) -> None:
    literals = [constant.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") for constant in constants]
    query = ", ".join(["SELECT 1 AS a, 2 AS `b c`", *(f"'{literal}' AS x{number}" for number, literal in enumerate(literals))])
    entry = {**entry, "name": f"lake.sales.{quoted(name)}", "query": query}
    with TemporaryDirectory() as original:
        (Path(original) / "all.yaml").write_text(
            yaml.safe_dump({"dynamic_tables": [entry]}, allow_unicode=True), encoding="utf-8"
        )
        definitions, mistakes = load_sound_definitions(Path(original), cache=Cache(None))
    assume(not mistakes)
    [table] = definitions.tables.values()
    for written in (as_yaml, as_statement):
        with TemporaryDirectory() as folder:
            [after] = read_back(Path(folder), [table], written).values()
            assert same(restored(normalised(table)), after)
            assert after.query == table.query


def test_what_no_statement_can_hold_is_refused(tmp_path: Path) -> None:
    [table] = load(tmp_path, 'dynamic_tables: [{name: a, freshness: 1 day, query: "SELECT 1 AS x,\\r 2 AS y"}]').values()
    with pytest.raises(UnsupportedError, match="export it as YAML"):
        statement_of(table)


def test_secrets_that_the_catalog_does_not_keep_are_named(tmp_path: Path) -> None:
    text = (
        "dynamic_tables: [{name: a, freshness: 1 day, query: SELECT 1 AS x, spark: {conf: {spark.my.password: x, spark.y: z}}}]"
    )
    [table] = load(tmp_path, text).values()
    assert hidden_settings(restored(normalised(table))) == ["spark.conf.spark.my.password"]


def test_a_statement_reads_as_somebody_would_write_it(tmp_path: Path) -> None:
    text = """
dynamic_tables:
  - name: lake.sales.daily
    comment: It's the revenue
    freshness: 1 day
    columns: {revenue: in euros, ds: day}
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    timezone: Europe/Berlin
    spark: {conf: {spark.executor.memory: 4g}}
    query: |
      SELECT '2024' AS ds,
             1 AS revenue
"""
    [table] = load(tmp_path, text).values()
    assert (
        statement_of(table)
        == """\
CREATE DYNAMIC TABLE lake.sales.daily (ds COMMENT 'day', revenue COMMENT 'in euros')
COMMENT 'It''s the revenue'
PARTITIONED BY (ds)
WITH (
  'partition.fields.ds.date-formatter' = 'yyyy-MM-dd',
  'timezone' = 'Europe/Berlin',
  'spark' = '{"conf": {"spark.executor.memory": "4g"}}'
)
FRESHNESS = INTERVAL '1' DAY
AS
SELECT '2024' AS ds,
       1 AS revenue;"""
    )


@pytest.mark.parametrize("query", ["SELECT 1 AS a -- why", "SELECT 1 AS a /* why; */ -- and\n  -- more", "SELECT '-- x' AS a"])
def test_a_comment_behind_the_last_word_is_kept(tmp_path: Path, again: Path, query: str) -> None:
    text = yaml.safe_dump({"dynamic_tables": [{"name": "lake.sales.t", "freshness": "1 day", "query": query}]})
    tables = load(tmp_path, text)
    (read,) = read_back(again, tables.values(), as_statement).values()
    (table,) = tables.values()
    assert (read.query, read.expanded_query) == (query, table.expanded_query)
    assert as_statement(read) == as_statement(table)
