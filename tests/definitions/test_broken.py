"""Every kind of mistake, at its exact place: ``broken/expected.txt`` is what ``validate`` prints for the files beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions
from airflow_dynamic_tables.exceptions import DefinitionError

BROKEN = Path(__file__).parent / "broken"
EXPECTED = (BROKEN / "expected.txt").read_text(encoding="utf-8").splitlines()
FILES = sorted(file.name for file in BROKEN.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_mistakes_of_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    with pytest.raises(DefinitionError) as caught:
        load_definitions(Path(name), cache=Cache(None))
    assert str(caught.value).splitlines() == [line for line in EXPECTED if line.startswith(f"{name}:")]


def test_at_least_forty_broken_files() -> None:
    assert len(FILES) >= 40
    assert {line.split(":")[0] for line in EXPECTED} == set(FILES)


def test_all_mistakes_of_all_files_are_reported_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["freshness_unit.yaml", "two_tables.yaml", "yaml_tab.yaml"]
    for name in names:
        shutil.copy(BROKEN / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DefinitionError) as caught:
        load_definitions(Path(), cache=Cache(None))
    assert str(caught.value).splitlines() == [line for line in EXPECTED if line.split(":")[0] in names]
    assert len(caught.value.mistakes) == 4


def test_broken_file_hides_no_table_of_another(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("dynamic_tables:\n\t- name: broken\n")
    (tmp_path / "b.yaml").write_text(
        "dynamic_tables:\n"
        "  - {name: reads_broken_file, freshness: 1 day, query: SELECT x FROM broken}\n"
        "  - {name: wrong, freshness: never, query: SELECT 1 AS x}\n"
        "  - {name: reads_wrong, freshness: 1 day, query: SELECT x FROM wrong}\n"
        "  - {name: fine, freshness: 1 day, query: SELECT 1 AS x}\n"
    )
    definitions, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert [identifier.table for identifier in definitions.tables] == ["reads_broken_file", "reads_wrong", "fine"]
    assert [(mistake.path.name, mistake.line) for mistake in mistakes] == [("a.yaml", 2), ("b.yaml", 3)]


def test_tables_of_a_circle_are_left_out_and_those_that_read_it_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    definitions, _ = load_sound_definitions(Path("circle.yaml"), cache=Cache(None))
    assert [identifier.table for identifier in definitions.tables] == ["d"]


def test_mistake_in_a_query_file_stands_in_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("dynamic_tables:\n  - {name: t, freshness: 1 day, query_file: sql/t.sql}\n")
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "t.sql").write_text("SELECT x\nFROM nothing\n")
    _, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert [(mistake.path, mistake.line, mistake.column) for mistake in mistakes] == [(tmp_path / "sql" / "t.sql", 2, 6)]


def test_missing_path_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"nowhere:1:1: there is no such file or folder"):
        load_definitions(tmp_path / "nowhere", cache=Cache(None))


def test_aliases_that_explode_are_refused(tmp_path: Path) -> None:
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(bomb))
    with pytest.raises(DefinitionError, match="aliases too often"):
        load_definitions(tmp_path, cache=Cache(None))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 20_000 + "a", "a: &a [*a]", "&a {<<: *a}"])
def test_hostile_yaml_is_a_mistake(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DefinitionError):
        load_definitions(tmp_path, cache=Cache(None))
