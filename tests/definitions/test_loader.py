"""Loading definitions: what a file means, what is kept between two loads, and how long it takes."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml
from airflow.sdk import DAG, BaseOperator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.declarations.airflow import REFUSED
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.loader import (
    find_files,
    load_definitions,
    load_drafted_definitions,
    load_sound_definitions,
    load_task_definitions,
)

NO_CACHE = Cache(None)
DESIGN = """\
defaults: {catalog: lake, database: sales}
sources:
  - name: raw.orders
    format: parquet
    path: /data/orders
    partitioned_by: [ds]
  - {name: crm.customers, format: csv, path: ../customers, options: {header: true, sep: ;}, schema: "id int, country string"}
dynamic_tables:
  - name: daily_revenue                    # -> lake.sales.daily_revenue
    comment: Revenue per day and country
    freshness: 1 day
    refresh_mode: auto
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    format: iceberg
    timezone: Europe/Berlin
    spark: {conn_id: spark_default, conf: {spark.executor.memory: 4g}}
    query: |
      SELECT o.ds, c.country, sum(o.amount) AS revenue
      FROM raw.orders o JOIN crm.customers c ON o.customer_id = c.id GROUP BY o.ds, c.country
"""
REVENUE = TableIdentifier("lake", "sales", "daily_revenue")


def _write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def test_example_of_the_design(tmp_path: Path) -> None:
    definitions = load_definitions(_write(tmp_path, sales=DESIGN), cache=NO_CACHE)
    table = definitions.tables[REVENUE]
    assert table.upstream == (TableIdentifier("lake", "raw", "orders"), TableIdentifier("lake", "crm", "customers"))
    assert table.expanded_query == (
        "SELECT o.ds, c.country, sum(o.amount) AS revenue\n"
        "FROM `lake`.`raw`.`orders` o JOIN `lake`.`crm`.`customers` c ON o.customer_id = c.id GROUP BY o.ds, c.country"
    )
    assert (table.declared_mode, table.mode, table.freshness) == (RefreshMode.AUTO, RefreshMode.FULL, Freshness(86_400))
    assert (table.cron, table.timezone, table.format, table.atomicity) == ("0 0 * * *", "Europe/Berlin", "iceberg", "staged")
    assert (table.partition_keys, table.formatters) == (("ds",), {"ds": "yyyy-MM-dd"})
    assert table.spark.conf == {"spark.executor.memory": "4g"}
    assert (table.path, table.line) == (tmp_path / "sales.yaml", 9)
    orders, customers = definitions.sources.values()
    assert (orders.path, orders.partition_keys) == ("/data/orders", ("ds",))
    assert customers.path == str(tmp_path / "../customers")
    assert customers.options == {"header": "true", "sep": ";"}
    assert customers.schema == "id int, country string"


def test_defaults_apply_where_the_table_says_nothing(tmp_path: Path) -> None:
    text = """\
defaults:
  freshness: 1 hour
  timezone: Europe/Berlin
  options: {a: 1, partition.fields.ds.date-formatter: yyyy-MM-dd}
  spark: {conn_id: cluster, executor_cores: 2, conf: {x: 1, y: 1.10}}
  tags: [sales]
  retries: 2
  versions_to_keep: 3
  start_date: 2024-01-01
dynamic_tables:
  - {name: plain, query: SELECT 1 AS a}
  - name: own
    query: SELECT '2024-01-01' AS ds
    partitioned_by: [ds]
    freshness: P1D
    schedule: 0 6 * * 1-5
    timezone: UTC
    options: {a: 2}
    spark: {executor_cores: 4, conf: {y: on}}
    tags: [daily]
    retries: 0
    retry_delay: 90 seconds
    version_max_age: 2 weeks
    execution_timeout: 2 hours
    start_date: 2024-01-01T06:00:00+01:00
"""
    definitions = load_definitions(_write(tmp_path, a=text), cache=NO_CACHE)
    plain, own = definitions.tables.values()
    assert (plain.freshness.text, plain.cron, plain.timezone) == ("1 hour", "0 * * * *", "Europe/Berlin")
    assert (plain.options, plain.formatters) == ({"a": "1"}, {})
    assert (plain.tags, plain.retries) == (("sales",), 2)
    assert plain.start_date == datetime(2023, 12, 31, 23, tzinfo=UTC)
    assert (own.freshness.text, own.cron, own.timezone) == ("1 day", "0 6 * * 1-5", "UTC")
    assert own.options == {"a": "2", "partition.fields.ds.date-formatter": "yyyy-MM-dd"}
    assert own.formatters == {"ds": "yyyy-MM-dd"}
    assert (own.spark.conn_id, own.spark.executor_cores, own.spark.conf) == ("cluster", 4, {"x": "1", "y": "on"})
    assert plain.spark.conf == {"x": "1", "y": "1.10"}
    assert (own.tags, own.retries, own.retry_delay) == (("sales", "daily"), 0, timedelta(seconds=90))
    assert own.execution_timeout == timedelta(hours=2)
    assert own.start_date == datetime(2024, 1, 1, 5, tzinfo=UTC)


def test_views_expand_into_views_and_tables(tmp_path: Path) -> None:
    text = """\
sources: [{name: raw.orders, format: orc, path: s3://bucket/orders}]
views:
  - {name: big, query: "SELECT * FROM Raw.Orders WHERE amount > 10 -- big ones"}
  - {name: big_german, query: SELECT * FROM big WHERE country = 'DE'}
dynamic_tables:
  - {name: t, freshness: 1 day, query: SELECT big_german.a FROM big_german}
"""
    table = load_definitions(_write(tmp_path, a=text), cache=NO_CACHE).table("t")
    assert table is not None
    assert table.upstream == (TableIdentifier("default", "raw", "orders"),)
    assert table.expanded_query == (
        "SELECT big_german.a FROM (\n"
        "SELECT * FROM (\n"
        "SELECT * FROM `default`.`raw`.`orders` AS `Orders` WHERE amount > 10 -- big ones\n"
        ") AS `big` WHERE country = 'DE'\n"
        ") AS `big_german`"
    )


def test_anchors_aliases_and_merge_keys(tmp_path: Path) -> None:
    text = """\
dynamic_tables:
  - &base {name: a, freshness: 1 day, query: &q SELECT 1 AS x}
  - {<<: *base, name: b}
  - {name: c, query: *q, freshness: 2 hours}
"""
    tables = load_definitions(_write(tmp_path, a=text), cache=NO_CACHE).tables.values()
    assert [(table.identifier.table, table.freshness.text, table.query) for table in tables] == [
        ("a", "1 day", "SELECT 1 AS x"),
        ("b", "1 day", "SELECT 1 AS x"),
        ("c", "2 hours", "SELECT 1 AS x"),
    ]


def test_scalars_are_what_is_written(tmp_path: Path) -> None:
    text = """
    sources:
      - {name: s, format: csv, path: /s, options: {header: True, sep: off}}
    dynamic_tables:
      - name: t
        freshness: 1 day
        query: SELECT country, f FROM s
        options: {a: yes, b: 0x10}
        spark: {conf: {x: on, y: 1_000}, env_vars: {NO: No}}
        expectations:
          - {accepted_values: {country: [NO, SE], f: [yes, no, ~x]}, action: drop}
    """
    definitions = load_definitions(_write(tmp_path, a=text), cache=NO_CACHE)
    (table,) = definitions.tables.values()
    (source,) = definitions.sources.values()
    assert source.options == {"header": "True", "sep": "off"}
    assert table.options == {"a": "yes", "b": "0x10"}
    assert (table.spark.conf, table.spark.env_vars) == ({"x": "on", "y": "1_000"}, {"NO": "No"})
    assert table.expectations[0].predicate == "`country` IN ('NO', 'SE') AND `f` IN ('yes', 'no', '~x')"


def test_folders_are_searched_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/z.yml", "a/catalogs.yaml", ".hidden.yaml", ".git/x.yaml", "a/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(file.relative_to(tmp_path)) for file in find_files(tmp_path).files] == ["a/z.yml", "b.yaml"]
    assert find_files(tmp_path / "b.yaml").files == [tmp_path / "b.yaml"]


def test_query_file_is_read_and_watched(tmp_path: Path) -> None:
    _write(tmp_path, a="dynamic_tables: [{name: t, freshness: 1 day, query_file: t.sql}]")
    (tmp_path / "t.sql").write_text("SELECT 1 AS a")
    cache = _cache(tmp_path / "cache")
    assert _queries(tmp_path, cache) == ["SELECT 1 AS a"]
    (tmp_path / "t.sql").write_text("SELECT 2 AS a")
    assert _queries(tmp_path, cache) == ["SELECT 2 AS a"]


def test_graph_of_tables(tmp_path: Path) -> None:
    tables = {"c": "b", "b": "a", "a": "s", "z": "c JOIN a USING (x)"}
    entries = [f"{{name: {name}, freshness: 1 day, query: SELECT x FROM {reads}}}" for name, reads in tables.items()]
    text = f"sources: [{{name: s, format: json, path: /s}}]\ndynamic_tables: [{', '.join(entries)}]"
    definitions = load_definitions(_write(tmp_path, a=text), cache=NO_CACHE)
    name = {table: TableIdentifier("default", "default", table) for table in "abcsz"}
    assert [table.identifier.table for table in definitions.topological()] == ["a", "b", "c", "z"]
    assert definitions.downstream(name["a"]) == (name["b"], name["z"])
    assert definitions.table("default.z") is definitions.tables[name["z"]]
    assert definitions.table("nothing") is None


def _cache(folder: Path) -> Cache:
    """A cache that trusts a file at once; these tests never write one twice within a tick of the clock."""
    return Cache(folder, settled=timedelta(0))


def _queries(path: Path, cache: Cache) -> list[str]:
    return [table.query for table in load_definitions(path, cache=cache).tables.values()]


def test_cached_result_is_the_same_and_follows_every_change(tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    cache = _cache(tmp_path / "cache")
    broken = "dynamic_tables: [{name: wrong, freshness: 5 hours, query: SELECT 1 AS a}]"
    _write(folder, sales=DESIGN, broken=broken)
    first = load_sound_definitions(folder, cache=cache)
    assert load_sound_definitions(folder, cache=cache) == first
    kept = load_sound_definitions(folder, cache=cache)
    assert kept == first == load_sound_definitions(folder, cache=NO_CACHE)
    assert load_task_definitions(folder, REVENUE.workflow_id, cache=cache).tables[REVENUE] == first[0].tables[REVENUE]
    _write(folder, broken=broken.replace("5 hours", "4 hours"))
    assert load_sound_definitions(folder, cache=cache)[1] == ()
    (folder / "sales.yaml").unlink()
    assert load_task_definitions(folder, REVENUE.workflow_id, cache=cache).tables == {}


def test_file_that_just_changed_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    cache = Cache(tmp_path / "cache")
    for number in range(10):
        _write(folder, a=f"dynamic_tables: [{{name: t, freshness: 1 day, query: SELECT {number} AS a}}]")
        assert _queries(folder, cache) == [f"SELECT {number} AS a"]


def test_task_gets_its_table_with_what_it_reads(tmp_path: Path) -> None:
    reader = "dynamic_tables: [{name: lake.sales.monthly, freshness: 1 day, query: SELECT ds FROM lake.sales.daily_revenue}]"
    folder = tmp_path / "definitions"
    folder.mkdir()
    _write(folder, sales=DESIGN, reader=reader)
    monthly = TableIdentifier("lake", "sales", "monthly")
    cache = _cache(tmp_path / "cache")
    for _ in range(2):
        found = load_task_definitions(folder, monthly.workflow_id, cache=cache)
        assert (set(found.tables), set(found.sources)) == ({monthly, REVENUE}, set())
        found = load_task_definitions(folder, REVENUE.workflow_id, cache=cache)
        assert (list(found.tables), len(found.sources)) == ([REVENUE], 2)


@pytest.mark.parametrize("damage", [b"", b"\x00\xff", b"{}", b'{"versions": 1}\n{}', b"[]\n[]"])
def test_damaged_cache_is_not_noticed(damage: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    _write(folder, sales=DESIGN)
    cache = _cache(tmp_path / "cache")
    expected = load_definitions(folder, cache=cache)
    for file in (tmp_path / "cache").rglob("*.json*"):
        file.write_bytes(damage)
    assert load_definitions(folder, cache=cache) == expected


def test_cache_that_cannot_be_written_is_not_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load_definitions(_write(tmp_path, sales=DESIGN), cache=Cache(tmp_path / "file" / "cache")).tables


def test_place_of_the_cache(tmp_path: Path) -> None:
    _write(tmp_path, sales=DESIGN)
    environ = {**os.environ, "DYNAMIC_TABLES_CACHE": str(tmp_path / "named")}
    program = (
        "import sys, pathlib; from airflow_dynamic_tables.definitions.loader import load_definitions\n"
        "load_definitions(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "sales.yaml")], env=environ, check=True)
    assert {folder.name for folder in (tmp_path / "named").iterdir() if folder.is_dir()} == {"queries", "trees"}


def test_warm_cache_needs_neither_sqlglot_nor_pydantic(tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    _write(folder, sales=DESIGN)
    load_definitions(folder, cache=_cache(tmp_path / "cache"))
    program = (
        "import sys, pathlib; from airflow_dynamic_tables.definitions.loader import load_definitions\n"
        "from airflow_dynamic_tables.definitions.cache import Cache\n"
        "from datetime import timedelta\n"
        "assert load_definitions(pathlib.Path(sys.argv[1]), cache=Cache(pathlib.Path(sys.argv[2]), timedelta(0))).tables\n"
        "print([name for name in ('sqlglot', 'pydantic', 'yaml', 'croniter') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(folder), str(tmp_path / "cache")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.large
@pytest.mark.parametrize("tables_per_file", [1, 1000])
def test_thousand_definitions_are_read_from_the_cache(tables_per_file: int, tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    head, entry = DESIGN.split("  - name: daily_revenue")
    for start in range(0, 1000, tables_per_file):
        text = "".join(f"  - name: t{number}{entry}" for number in range(start, start + tables_per_file))
        own = head if start == 0 else "defaults: {catalog: lake, database: sales}\ndynamic_tables:\n"
        _write(folder, **{f"f{start}": own + text})
    cache = _cache(tmp_path / "cache")
    load_definitions(folder, cache=cache)
    whole = _fastest(lambda: load_definitions(folder, cache=cache))
    task = _fastest(lambda: load_task_definitions(folder, "dynamic_table__lake__sales__t500", cache=cache))
    # Far above what the benchmark measures: this only notices a cache that is not used.
    assert whole < 1
    assert task < 0.2


def _fastest(call: object) -> float:
    """Seconds of this process alone, so that other load does not count."""
    durations = []
    for _ in range(3):
        start = time.process_time()
        assert call() is not None
        durations.append(time.process_time() - start)
    return min(durations)


def test_schema_accepts_the_design_and_describes_every_key() -> None:
    schema = definitions_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(DESIGN), schema)
    parts = [schema, *schema["$defs"].values()]
    undescribed = [name for part in parts for name, field in part["properties"].items() if "description" not in field]
    assert undescribed == []
    json.dumps(schema)


@pytest.mark.parametrize(
    ("written", "instead"),
    [("freshness: 1 day", "freshnes: 1 day"), ("format: parquet", "format: parkett"), ("[ds]", "ds"), ("query: |", "sql: |")],
)
def test_schema_refuses_mistakes(written: str, instead: str) -> None:
    document = yaml.safe_load(DESIGN.replace(written, instead))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, definitions_schema())


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.sampled_from(["1 day", "SELECT a FROM t", "t", "auto"])
)
_KEYS = st.sampled_from(["name", "query", "freshness", "options", "spark", "partitioned_by", "columns", "tags", "conf", "x"])
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=12
)
_SECTIONS = st.sampled_from(["defaults", "sources", "views", "dynamic_tables"])
_FILES = st.dictionaries(_SECTIONS, _TREES | st.lists(_TREES, max_size=3))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.one_of(st.text(), _FILES.map(yaml.safe_dump), st.text().map(lambda text: DESIGN.replace("SELECT", text))))
def test_any_text_gives_definitions_and_mistakes(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    _, mistakes = load_sound_definitions(tmp_path, cache=NO_CACHE)
    assert list(mistakes) == sorted(mistakes)


@pytest.mark.parametrize(
    ("setting", "place", "message"),
    [
        (
            "on_failure_callback: page",
            "3:24",
            "'page' names nothing in Python; write 'module:name', for example 'alerts:page'",
        ),
        (
            "on_retry_callback: {call: x}",
            "3:22",
            "a callback is 'module:function', or {notifier: 'module:class', arguments: {…}}",
        ),
        ("on_failure_calback: a:b", "3:3", "unknown key 'on_failure_calback'; did you mean 'on_failure_callback'?"),
        ("depends_on_past: maybe", "3:20", "'maybe' is neither true nor false"),
        ("weight_rule: heavy", "3:16", "'heavy' is no weight_rule; use 'downstream', 'upstream' or 'absolute'"),
        ("pool_slots: 0", "3:15", "'pool_slots' must be a whole number of at least 1, not '0'"),
        ("pool_slots: 9999999999", "3:15", "'pool_slots' must be a whole number of at most 2,147,483,647, not '9999999999'"),
        (
            "owner_links: {ada: ada}",
            "3:22",
            "'ada' is no link; write for example https://example.org/team",
        ),
        ("access_control: {ops: [read]}", "3:26", "'read' is no permission; use can_read | can_edit | can_delete"),
        ("dagrun_timeout: long", "3:19", "'long' is no length of time; write for example '5 minutes'"),
        ("start_date: 2024-01-02\n  end_date: 2024-01-01", "4:13", "'end_date' is before 'start_date'"),
        ("deadline: company:late", "3:13", "'deadline' must be a mapping, not 'company:late'"),
        ("deadline: {after: 1 hour}", "3:13", "'callback' is missing"),
        ("deadline: {after: -1 hour, callback: a:b}", "3:21", "'-1 hour' is no length of time; write for example '5 minutes'"),
        ("deadline: {callback: a:b, by: noon}", "3:29", "unknown key 'by'"),
        (
            "deadline: {reference: started, callback: a:b}",
            "3:25",
            "'started' is no reference; use 'queued_at' or 'logical_date'",
        ),
        (
            "deadline: {callback: [a:b, late]}",
            "3:24",
            "'late' names nothing in Python; write 'module:name', for example 'alerts:page'",
        ),
        ("executor_config: big", "3:20", "'executor_config' must be a mapping, not 'big'"),
        (
            "executor_config: {pod_override: big}",
            "3:20",
            "'big' names nothing in Python; write 'module:name', for example 'alerts:page'",
        ),
        (
            "catchup: true",
            "3:3",
            "'catchup' is not taken: the refresh of the last tick makes up for missed ones; a backfill fills earlier partitions",
        ),
        (
            "max_active_runs: 3",
            "3:3",
            "'max_active_runs' is not taken: a table is refreshed by one task at a time, whatever the schedule",
        ),
        ("sla: 1 hour", "3:3", "'sla' is not taken: use 'deadline'"),
        ("is_paused_upon_creation: 1", "3:28", "'1' is neither true nor false"),
        ("end_date: soon", "3:13", "'end_date' must be a date or time such as '2024-01-01', not 'soon'"),
    ],
)
def test_a_wrong_setting_of_airflow_is_told_with_its_place(tmp_path: Path, setting: str, place: str, message: str) -> None:
    text = f"# The table\ndynamic_tables:\n- {setting}\n  name: t\n  freshness: 1 day\n  query: SELECT 1 AS x\n"
    _, mistakes = load_sound_definitions(_write(tmp_path, a=text), cache=NO_CACHE)
    assert [str(mistake) for mistake in mistakes] == [f"{tmp_path / 'a.yaml'}:{place}: {message}"]


def test_every_setting_of_airflow_is_taken_or_refused_with_a_reason() -> None:
    taken = TableDeclaration.model_fields.keys()
    assert not taken & REFUSED.keys()
    for kind in (BaseOperator, DAG):
        every = inspect.signature(kind.__init__).parameters.keys()
        assert every - taken - REFUSED.keys() == every & {"self", "kwargs"}


def test_drafts_are_read_instead_of_what_stands_in_the_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("dynamic_tables: [{name: a.b.old, freshness: 1 day, query: SELECT 1 AS n}]")
    changed = "dynamic_tables: [{name: a.b.changed, freshness: 1 day, query: SELECT n FROM a.b.new}]"
    added = "dynamic_tables: [{name: a.b.new, freshness: 1 day, query: SELECT 2 AS n}]"

    definitions, mistakes = load_drafted_definitions(tmp_path, {old: changed.encode(), new: added.encode()})
    assert (sorted(map(str, definitions.tables)), mistakes) == (["a.b.changed", "a.b.new"], ())
    definitions, mistakes = load_drafted_definitions(tmp_path, {old: None, new: None})
    assert (definitions.tables, mistakes) == ({}, ())
    assert list(map(str, load_definitions(tmp_path).tables)) == ["a.b.old"]


def test_mistakes_of_drafts_are_told_by_their_files(tmp_path: Path) -> None:
    draft = tmp_path / "draft.yaml"
    _, (mistake,) = load_drafted_definitions(tmp_path, {draft: b"\ndynamic_tables: 1"})
    assert str(mistake) == f"{draft}:2:17: 'dynamic_tables' must be a list; start each entry with '- name:'"
    assert not draft.exists()
