"""Filters of sources compared with Spark: a change of a source that they exclude changes no row of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange, SomeRows
from airflow_dynamic_tables.definitions.queries.text import source_filters
from tests.definitions.queries.test_lineage_in_spark import FAST, Row, changed, results, rows_of, settings, show, text_of
from tests.support.fuzzing.lineage_queries import KEYS, KINDS, Generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_TYPES = {f"lake.raw.{name}": columns for name, columns in KINDS.items()}
_REFUSED = ("CAST_INVALID_INPUT", "CANNOT_PARSE", "AMBIGUOUS", "MISMATCH", "CAST_OVERFLOW")


def some_rows(table: str, key: Row, rows: Sequence[Row], zone: str, *, has_statistics: bool) -> SomeRows:
    """Return what the partition of changed rows, and the statistics of their file, say."""
    partition = dict(zip(KEYS[table], (text_of(value) or NULL_PARTITION for value in key), strict=True))
    ranges = {}
    for number, name in enumerate(KINDS[table]) if has_statistics else ():
        values: list[Any] = [row[number] for row in rows if row[number] is not None]
        lower, upper = (min(values), max(values)) if values else (None, None)
        ranges[name] = ColumnRange(lower, upper, may_have_nulls=len(values) < len(rows), may_have_values=bool(values))
    return SomeRows(partition, zone, ranges)


def compare(spark: SparkSession, seed: int, zone: str, *, has_days: bool) -> list[int]:
    """Compare some queries of a seed over the same tables; return how many changes were compared, and excluded."""
    from pyspark.errors import PySparkException

    random = Random(seed)
    generator = Generator(random, has_days, has_filters=True)
    tables = {table: rows_of(random, table, has_days=has_days) for table in KINDS}
    for table, rows in tables.items():
        show(spark, table, table, rows)
    variants, changes = {}, {}
    for number in range(1, 9):
        variants[number] = table = random.choice("oooccdpx")
        key, rows = changed(random, table, tables[table], has_days=has_days)
        differing = [*((Counter(rows) - Counter(tables[table])) + (Counter(tables[table]) - Counter(rows))).elements()]
        changes[number] = some_rows(table, key, differing, zone, has_statistics=random.random() < 0.7)
        show(spark, f"{table}_{number}", table, rows)
    counts = [0, 0]
    for _ in range(12):
        query = generator.query()
        found = source_filters(query.text, _TYPES)
        names = {number: f"lake.raw.{table}" for number, table in variants.items() if f"lake.raw.{table} " in query.text}
        excluded = [
            number for number, name in names.items() if name in found and found[name].excluding(changes[number]) is not None
        ]
        counts[0] += len(names)
        if not excluded:
            continue
        try:
            before, *after = results(spark, query, {number: variants[number] for number in excluded[:4]})
        except PySparkException as error:
            if not any(name in str(error) for name in _REFUSED):
                raise AssertionError(query.text) from error
            continue
        for number, rows_after in zip(excluded[:4], after, strict=True):
            counts[1] += 1
            assert before == rows_after, f"{query.text}\n{names[number]} {changes[number]} {found[names[number]]}"
    return counts


def check(spark: SparkSession, seeds: range) -> list[int]:
    total = [0, 0]
    for seed in seeds:
        ansi, zone = [("true", "UTC"), ("false", "Europe/Berlin"), ("true", "America/Sao_Paulo")][seed % 3]
        with settings(spark, {**FAST, "spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
            counts = compare(spark, seed, zone, has_days=ansi == "true" or seed % 2 == 0)
        total = [one + other for one, other in zip(total, counts, strict=True)]
    print(f"{total[0]} changes, {total[1]} excluded and compared")
    return total


def test_an_excluded_change_has_no_effect(spark: SparkSession) -> None:
    assert check(spark, range(3))[1] > 15


@pytest.mark.large
@pytest.mark.parametrize("first", range(3, 243, 12))
def test_an_excluded_change_has_no_effect_in_many_queries(spark: SparkSession, first: int) -> None:
    check(spark, range(first, first + 12))
