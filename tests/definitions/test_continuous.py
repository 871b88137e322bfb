"""What a definition says of being refreshed all the time, and what contradicts that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.schedule import ContinuousSettings, StrategyName
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable


def loaded(folder: Path, settings: str, defaults: str = "{}") -> tuple[DynamicTable | None, list[str]]:
    (folder / "t.yaml").write_text(
        f"defaults: {defaults}\ndynamic_tables:\n- {{name: a, freshness: 1 day, query: SELECT 1 AS x}}\n"
        f"- name: t\n  query: SELECT 1 AS x\n  {settings}\n"
    )
    definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
    return definitions.table("t"), [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in mistakes]


def test_what_is_said_of_it_wins_key_by_key_over_the_defaults(tmp_path: Path) -> None:
    table, mistakes = loaded(
        tmp_path,
        "freshness: 10 seconds\n  continuous: {hold: 10 minutes}",
        "{continuous: {hold: 2 hours, events: 30 seconds, strategy: micro-refresh}}",
    )
    assert mistakes == []
    settings = ContinuousSettings(StrategyName.MICRO_REFRESH, timedelta(minutes=10), timedelta(seconds=30))
    assert (table.continuous, table.is_continuous) == (settings, True)


def test_a_scheduled_table_may_say_it_too_because_the_threshold_may_change(tmp_path: Path) -> None:
    table, mistakes = loaded(tmp_path, "freshness: 1 day\n  continuous: {hold: 10 minutes}")
    assert (mistakes, table.is_continuous) == ([], False)


@pytest.mark.parametrize(
    ("value", "message"),
    {
        "{strategy: micro}": "'micro' is no strategy; use auto | micro-refresh | stream",
        "{hold: soon}": "'soon' is no length of time",
        "{hold: 2 days}": "at most 1 day",
        "{holds: 1 hour}": "did you mean 'hold'",
    }.items(),
)
def test_what_is_not_understood_is_a_mistake_at_its_place(tmp_path: Path, value: str, message: str) -> None:
    _, (mistake,) = loaded(tmp_path, f"freshness: 10 seconds\n  continuous: {value}")
    assert mistake.startswith("7:")
    assert message in mistake


@pytest.mark.parametrize("key", ["schedule: '* * * * *'", "on: [a]", "dag: group", "deadline: {callback: 'os:getcwd'}"])
def test_what_only_a_schedule_gives_a_sense_is_a_mistake_of_a_continuous_table(tmp_path: Path, key: str) -> None:
    _, (mistake,) = loaded(tmp_path, f"freshness: 1 minute\n  {key}")
    name = key.partition(":")[0]
    assert mistake.startswith("7:")
    assert f"refreshed all the time, by a DAG of its own, which takes no '{name}'" in mistake
    assert loaded(tmp_path, f"freshness: 1 minute\n  refresh_mode: full\n  {key}")[1] == []


def test_what_defaults_say_of_schedules_is_not_about_it(tmp_path: Path) -> None:
    defaults = "{schedule: 0 6 * * *, dag: group, deadline: {callback: 'os:getcwd'}}"
    table, mistakes = loaded(tmp_path, "freshness: 10 seconds", defaults)
    assert mistakes == []
    assert (table.cron, table.dag, table.deadline) == (None, None, None)
    assert loaded(tmp_path, "freshness: 10 seconds\n  dag: none", defaults)[1] == []


@pytest.mark.parametrize("table_format", ["jdbc", "parquet"])
def test_a_declared_stream_into_a_table_that_takes_none_is_a_mistake(tmp_path: Path, table_format: str) -> None:
    settings = f"freshness: 10 seconds\n  format: {table_format}"
    stream = "{strategy: stream}"
    message = (
        f"a stream adds rows in one step, which format {table_format} cannot; use format iceberg | delta, or 'strategy: "
        "micro-refresh'"
    )
    for said in (
        {"settings": f"{settings}\n  continuous: {stream}"},
        {"settings": settings, "defaults": f"{{continuous: {stream}}}"},
    ):
        _, mistakes = loaded(tmp_path, **said)
        assert mistakes == [f"{'8:26' if len(said) == 1 else '7:11'}: {message}"]
    assert loaded(tmp_path, f"{settings}\n  continuous: {{strategy: micro-refresh}}", f"{{continuous: {stream}}}")[1] == []
    assert loaded(tmp_path, f"freshness: 1 day\n  format: {table_format}\n  continuous: {stream}")[1] == []
    assert loaded(tmp_path, f"freshness: 10 seconds\n  format: delta\n  continuous: {stream}")[1] == []
