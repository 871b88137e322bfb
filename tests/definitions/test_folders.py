"""What a folder says for all tables below it, in its ``defaults.yaml``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml

from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions, load_task_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import DefinitionError

NO_CACHE = Cache(None)

ROOT_DEFAULTS = """\
defaults:
  catalog: lake
  retries: 5
  pool: small
  tags: [company]
  options: {a: 1, b: 1}
  spark: {executor_cores: 1, conf: {x: 1, y: 1, z: 1}, env_vars: {E: far}}
"""


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def _one(name: str, more: str = "") -> str:
    return f"dynamic_tables: [{{name: {name}, freshness: 1 day, query: SELECT 1 AS a{more}}}]\n"


def _tables(path: Path) -> dict[str, DynamicTable]:
    return {str(identifier): table for identifier, table in load_definitions(path, cache=NO_CACHE).tables.items()}


def test_nearest_defaults_win_and_dictionaries_are_merged(tmp_path: Path) -> None:
    near = "defaults: {database: sales, pool: big, tags: [sales], options: {b: 2}, spark: {conf: {y: 2}, env_vars: {F: near}}}\n"
    of_file = "defaults: {retries: 3, tags: [file], spark: {conn_id: c, conf: {z: 3}}}\n"
    own = ", tags: [own], options: {c: 4}, spark: {executor_cores: 4, conf: {w: 4}}"
    root = _write(
        tmp_path / "definitions",
        {
            "defaults.yaml": ROOT_DEFAULTS,
            "top.yaml": _one("t"),
            "sales/defaults.yaml": near,
            "sales/deep/er/own.yaml": of_file + _one("t", own),
            "sales/deep/er/plain.yaml": _one("plain"),
            "sales-2/other.yaml": _one("t2"),
        },
    )
    tables = _tables(root)
    assert set(tables) == {"lake.default.t", "lake.sales.t", "lake.sales.plain", "lake.default.t2"}
    top, own_table, plain = tables["lake.default.t"], tables["lake.sales.t"], tables["lake.sales.plain"]
    assert (top.retries, top.pool, top.tags, top.options) == (5, "small", ("company",), {"a": "1", "b": "1"})
    assert (plain.retries, plain.pool, plain.tags) == (5, "big", ("company", "sales"))
    assert (own_table.retries, own_table.pool, own_table.tags) == (3, "big", ("company", "sales", "file", "own"))
    assert own_table.options == {"a": "1", "b": "2", "c": "4"}
    assert own_table.spark.conf == {"x": "1", "y": "2", "z": "3", "w": "4"}
    assert own_table.spark.env_vars == {"E": "far", "F": "near"}
    assert (own_table.spark.conn_id, own_table.spark.executor_cores) == ("c", 4)
    assert (plain.spark.conn_id, plain.spark.executor_cores) == ("spark_default", 1)
    assert tables["lake.default.t2"].pool == "small"


def test_names_of_sources_views_and_references_follow_the_folder(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "defaults.yaml": "defaults: {catalog: lake, database: raw}\n",
            "a.yaml": "sources: [{name: orders, format: orc, path: a}]\nviews: [{name: v, query: SELECT a FROM orders}]\n",
            "crm/defaults.yaml": "defaults: {database: crm}\n",
            "crm/t.yaml": "dynamic_tables: [{name: t, freshness: 1 day, query: SELECT a FROM raw.v}]\n",
        },
    )
    (table,) = load_definitions(root, cache=NO_CACHE).tables.values()
    assert str(table.identifier) == "lake.crm.t"
    assert [str(name) for name in table.upstream] == ["lake.raw.orders"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("defaults:\n  retires: 3\n", "2:3: unknown key 'retires'; did you mean 'retries'?"),
        ("defaults:\n  timezone: Mars\n", "2:13: there is no time zone 'Mars'; use a name such as 'Europe/Berlin'"),
        ("defaults: {pool: [a]}\n", "1:18: 'pool' must be text, not a list"),
        ("retries: 3\n", "1:1: 'retries' cannot stand here: defaults.yaml has only the key 'defaults'; move it below 'defaults'"),
        (
            "defaults: {retries: 3}\nsources: []\n",
            "2:1: 'sources' cannot stand here: defaults.yaml has only the key 'defaults'; move it into another file",
        ),
        ("", "1:1: is empty; declare 'defaults', or remove the file"),
        ("defaults:\n\t- x\n", None),
    ],
)
def test_broken_defaults_leave_out_the_tables_below_only(tmp_path: Path, text: str, mistake: str | None) -> None:
    root = _write(
        tmp_path,
        {
            "fine.yaml": _one("fine"),
            "sub/defaults.yaml": text,
            "sub/deeper/t.yaml": _one("t"),
            "other/reads.yaml": "dynamic_tables: [{name: reads, freshness: 1 day, query: SELECT a FROM t}]\n",
        },
    )
    definitions, mistakes = load_sound_definitions(root, cache=NO_CACHE)
    assert sorted(identifier.table for identifier in definitions.tables) == ["fine", "reads"]
    first, below = sorted(mistakes, key=lambda mistake: mistake.path.name)
    assert first.path == root / "sub/defaults.yaml"
    if mistake is not None:
        assert str(first) == f"{first.path}:{mistake}"
    assert str(below) == (
        f"{root / 'sub/deeper/t.yaml'}:1:1: these tables are left out: their defaults in {first.path} have mistakes"
    )


def test_sources_below_broken_defaults_stay_when_their_names_are_known(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "sub/defaults.yaml": "defaults: {retries: often}\n",
            "sub/s.yaml": "sources: [{name: raw.s, format: orc, path: s}]\n" + _one("t"),
            "reads.yaml": "dynamic_tables: [{name: reads, freshness: 1 day, query: SELECT a FROM raw.s}]\n",
        },
    )
    definitions, _ = load_sound_definitions(root, cache=NO_CACHE)
    assert [name.table for name in definitions.tables] == ["reads"]
    assert [str(name) for name in definitions.sources] == ["default.raw.s"]


def test_a_files_own_broken_defaults_leave_its_tables_out(tmp_path: Path) -> None:
    _write(tmp_path, {"a.yaml": "defaults: {timezone: Mars}\n" + _one("t"), "b.yaml": _one("u")})
    definitions, mistakes = load_sound_definitions(tmp_path, cache=NO_CACHE)
    assert [name.table for name in definitions.tables] == ["u"]
    assert len(mistakes) == 1


@pytest.mark.parametrize("name", ["defaults.yml", "Defaults.yaml", "DEFAULTS.YML"])
def test_other_spellings_of_the_name_are_refused(tmp_path: Path, name: str) -> None:
    _write(tmp_path, {f"sub/{name}": "defaults: {retries: 3}\n", "sub/t.yaml": _one("t"), "fine.yaml": _one("fine")})
    definitions, mistakes = load_sound_definitions(tmp_path, cache=NO_CACHE)
    assert [identifier.table for identifier in definitions.tables] == ["fine"]
    assert {mistake.path.name for mistake in mistakes} == {name, "t.yaml"}
    assert any("rename this file" in mistake.message for mistake in mistakes)


def test_a_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    _write(tmp_path, {"t.yaml": _one("t")})
    (tmp_path / "defaults.yaml").symlink_to(tmp_path / "gone.yaml")
    definitions, mistakes = load_sound_definitions(tmp_path, cache=NO_CACHE)
    assert not definitions.tables
    assert (tmp_path / "defaults.yaml") in {mistake.path for mistake in mistakes}


def test_what_counts_is_where_a_file_is_found_not_where_a_link_leads(tmp_path: Path) -> None:
    elsewhere = _write(tmp_path / "elsewhere", {"defaults.yaml": "defaults: {pool: elsewhere}\n", "linked/t.yaml": _one("t")})
    root = _write(tmp_path / "root", {"defaults.yaml": "defaults: {pool: root}\n"})
    (root / "linked").symlink_to(elsewhere / "linked", target_is_directory=True)
    assert [table.pool for table in _tables(root).values()] == ["root"]


def test_a_single_file_has_the_defaults_of_its_own_folder(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {"defaults.yaml": ROOT_DEFAULTS, "sales/defaults.yaml": "defaults: {pool: big}\n", "sales/t.yaml": _one("t")},
    )
    (table,) = _tables(root / "sales/t.yaml").values()
    assert (table.pool, table.retries) == ("big", None)


def test_the_cache_notices_every_change_of_defaults(tmp_path: Path) -> None:
    root = _write(tmp_path / "root", {"sub/t.yaml": _one("t")})
    cache = Cache(tmp_path / "cache", settled=timedelta(0))

    def pools() -> list[str | None]:
        every = load_definitions(root, cache=cache).tables.values()
        of_task = load_task_definitions(root, "dynamic_table__default__default__t", cache=cache).tables.values()
        assert [table.pool for table in of_task] == [table.pool for table in every]
        return [table.pool for table in every]

    assert pools() == [None]
    _write(root, {"defaults.yaml": "defaults: {pool: one}\n"})
    assert pools() == ["one"]
    _write(root, {"defaults.yaml": "defaults: {pool: two}\n"})
    assert pools() == ["two"]
    _write(root, {"sub/defaults.yaml": "defaults: {pool: three}\n"})
    assert pools() == ["three"]
    (root / "sub/defaults.yaml").unlink()
    assert pools() == ["two"]


def test_defaults_alone_define_nothing(tmp_path: Path) -> None:
    _write(tmp_path, {"defaults.yaml": ROOT_DEFAULTS})
    assert not _tables(tmp_path)
    assert not _tables(tmp_path / "defaults.yaml")
    with pytest.raises(DefinitionError, match="no such file"):
        load_definitions(tmp_path / "missing.yaml", cache=NO_CACHE)


def test_the_schema_takes_a_file_of_defaults() -> None:
    jsonschema.validate(yaml.safe_load(ROOT_DEFAULTS), definitions_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"defaults": {"retires": 3}}, definitions_schema())
