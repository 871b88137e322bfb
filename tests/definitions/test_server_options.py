"""Options of how the rows of a table get into a database server: read where they stand, of a table or of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.sinks import Sink, tuned
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions

NUMBER = "is no number from 1 to"


def table(options: str, table_format: str = "jdbc") -> str:
    keys = (f"format: {table_format}", f"options: {options}", "query: SELECT 1 AS x")
    return "\n    ".join(("  - name: pg.shop.totals", "freshness: 1 day", *keys)) + "\n"


def mistakes(folder: Path, text: str) -> list[str]:
    path = folder / "tables.yaml"
    path.write_text(text)
    return [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in load_sound_definitions(path)[1]]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            "{jdbc.batch_size: 10}",
            "5:15: unknown option 'jdbc.batch_size'; did you mean 'jdbc.batch-size'?; known are jdbc.batch-size, jdbc.writers",
        ),
        ("{jdbc.url: x}", "5:15: unknown option 'jdbc.url'; known are jdbc.batch-size, jdbc.writers"),
        ("{jdbc.batch-size: 0}", f"5:32: '0' {NUMBER} 1 000 000"),
        ("{jdbc.batch-size: 1000001}", f"5:32: '1000001' {NUMBER} 1 000 000"),
        ("{jdbc.batch-size: 1e3}", f"5:32: '1e3' {NUMBER} 1 000 000"),
        ("{jdbc.writers: many}", f"5:29: 'many' {NUMBER} 128"),
        ("{jdbc.writers: -1}", f"5:29: '-1' {NUMBER} 128"),
        ("{jdbc.writers: '٣'}", f"5:29: '٣' {NUMBER} 128"),
        ("{jdbc.writers: 200}", f"5:29: '200' {NUMBER} 128"),
    ],
)
def test_a_wrong_option_is_told_where_it_stands(tmp_path: Path, options: str, told: str) -> None:
    assert mistakes(tmp_path, "dynamic_tables:\n" + table(options)) == [told]


def test_files_go_into_no_server(tmp_path: Path) -> None:
    text = "dynamic_tables:\n" + table("{jdbc.writers: 2}", "iceberg")
    told = "'jdbc.writers' is for tables in a database server, and this one is of format iceberg; remove it"
    assert mistakes(tmp_path, text) == [f"5:29: {told}"]


@pytest.mark.parametrize("option", ["jdbc.wirters: 2", "jdbc.writers: 0"])
def test_options_of_all_tables_are_checked_though_none_needs_them(tmp_path: Path, option: str) -> None:
    (told,) = mistakes(tmp_path, f"defaults:\n  options:\n    {option}\n")
    words = {
        "jdbc.wirters: 2": "unknown option 'jdbc.wirters'; did you mean 'jdbc.writers'?; known are jdbc.batch-size, jdbc.writers",
        "jdbc.writers: 0": f"'0' {NUMBER} 128",
    }
    assert told == f"3:5: {words[option]}"


def test_options_of_all_tables_are_those_of_tables_in_a_server(tmp_path: Path) -> None:
    path = tmp_path / "tables.yaml"
    defaults = "defaults: {options: {jdbc.writers: 2, jdbc.batch-size: 500}}\ndynamic_tables:\n"
    others = "  - {name: lake.shop.numbers, freshness: 1 day, query: SELECT 1 AS x}\n"
    path.write_text(defaults + table("{jdbc.writers: 8}") + others)
    definitions = load_definitions(path)
    numbers, totals = (definitions.table(name) for name in ("lake.shop.numbers", "pg.shop.totals"))
    assert numbers is not None
    assert totals is not None
    assert (dict(numbers.options), dict(totals.options)) == ({}, {"jdbc.writers": "8", "jdbc.batch-size": "500"})
    sink = tuned(Sink("jdbc:postgresql://h/d", "org.postgresql.Driver", '"t"'), totals.options)
    assert (sink.writers, sink.batch_size) == (8, 500)
    assert tuned(sink, {}) == sink
