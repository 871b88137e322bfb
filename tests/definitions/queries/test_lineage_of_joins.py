"""Partition lineage of joins compared with DuckDB: a changed partition of a source changes only rows that it says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from random import Random

import duckdb
import pytest

from airflow_dynamic_tables.core.refresh.key_sources import KeySource
from airflow_dynamic_tables.definitions.queries.text import lineage
from tests.support.fuzzing.join_queries import JoinGenerator

_TYPES = {f"lake.raw.{table}": {"ds": "string", "id": "int", "n": "int"} for table in "ocd"}
_SHAPES = ("RIGHT", "FULL", "SEMI", "ANTI", "USING", "coalesce(r", " IN ")
_DAYS = ("2024-01-01", "2024-01-02", "2024-02-01", None)

Row = tuple[str | None, int | None, int]


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for table in "ocd":
            connection.execute(f"CREATE TABLE {table} (ds VARCHAR, id INTEGER, n INTEGER)")
        yield connection


def _rows(random: Random, days: Sequence[str | None], most: int) -> list[Row]:
    return [(random.choice(days), random.choice([1, 2, 3, None]), random.randrange(5)) for _ in range(random.randrange(most))]


def _fill(database: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    database.execute(f"DELETE FROM {table}")
    if rows:
        values = ", ".join(str(row).replace("None", "NULL") for row in rows)
        database.execute(f"INSERT INTO {table} VALUES {values}")


def _result(database: duckdb.DuckDBPyConnection, query: str) -> dict[str | None, Counter[object]]:
    text = query.replace("lake.raw.", "").replace("<=>", "IS NOT DISTINCT FROM").replace("LEFT SEMI", "SEMI")
    found: dict[str | None, Counter[object]] = defaultdict(Counter)
    for key, value in database.execute(text.replace("LEFT ANTI", "ANTI")).fetchall():
        found[key][value] += 1
    return found


def _compare(database: duckdb.DuckDBPyConnection, seed: int) -> Counter[str]:
    """Compare some queries of a seed; return how many sources were mapped, by the kinds of joins."""
    random = Random(seed)
    mapped: Counter[str] = Counter()
    rows = {table: _rows(random, _DAYS, 9) for table in "ocd"}
    for table, each in rows.items():
        _fill(database, table, each)
    generator = JoinGenerator(random)
    queries = [generator.query() for _ in range(15)]
    before = [_result(database, query) for query in queries]
    for table in "ocd":
        day = random.choice(_DAYS)
        kept = [row for row in rows[table] if row[0] != day]
        _fill(database, table, kept + _rows(random, [day], 4))
        for query, old in zip(queries, before, strict=True):
            source = lineage(query, "k", _TYPES).sources.get(f"lake.raw.{table}")
            if source is None:
                continue
            new = _result(database, query)
            needed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            _check(query, table, day, needed, source)
            mapped.update({kind for kind in _SHAPES if kind in query})
        _fill(database, table, rows[table])
    return mapped


def _check(query: str, table: str, day: str | None, needed: set[str | None], source: KeySource) -> None:
    known = source.values({"ds": day})
    assert known is None or needed <= known, f"{query}\n{table} {day}: {needed} are not in {known}"


def test_joins_of_all_kinds(database: duckdb.DuckDBPyConnection) -> None:
    mapped: Counter[str] = Counter()
    for seed in range(5):
        mapped += _compare(database, seed)
    print(mapped)
    assert min(mapped[kind] for kind in _SHAPES) >= 2


@pytest.mark.large
@pytest.mark.parametrize("first", range(5, 805, 100))
def test_many_joins_of_all_kinds(database: duckdb.DuckDBPyConnection, first: int) -> None:
    for seed in range(first, first + 100):
        _compare(database, seed)
